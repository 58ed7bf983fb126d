// The tree as text, what can be done to the selected node, and the steps.
import { oneWord } from "./brackets.js";
import { changed, unwrapped, without, withWord, wrapped } from "./trees.js";
import { el, labelled } from "#parts/dom.js";
import { neighbours } from "./drawing.js";

const STEPS = [
  ["interpolation", "1 Values S"],
  ["average", "2 Averages Ŝ"],
  ["aggregation", "3 Weighted sums v̄"],
  ["mask", "4 Subtree mask"],
  ["attention", "5 Attention"],
];

const HINT = "Type a tree, or click in the drawing. Keys there: arrows, A (add a word), W (wrap), U (unwrap), Enter (rename), Delete.";

export function composePanel(study, view) {
  const text = el("input", { class: "te-text", type: "text", spellcheck: "false", autocomplete: "off", "data-testid": "tree", oninput: () => { study.type(text.value); view.changed(); } });
  const error = el("p", { class: "te-error", role: "alert", "data-testid": "error" });
  const hint = el("p", { class: "te-hint av-quiet", text: HINT });
  const label = el("input", { class: "te-field te-label", type: "text", "data-testid": "label", oninput: () => rename() });
  const value = number("value", (given) => change({ value: given }, "value"));
  const weight = number("weight", (given) => change({ weight: given }, "weight"));
  weight.step = "0.1";
  const weightNode = labelled("weight", weight);
  const button = (text, testid, title, onclick) => el("button", { class: "av-button", type: "button", title, "data-testid": testid, text, onclick });
  const tools = {
    add: button("Add word", "add", "Add a word to the phrase, or after the word (key A)", () => view.act("add")),
    wrap: button("Wrap", "wrap", "Put what is selected into a new phrase (key W); Shift and ← → select neighbours, too", () => view.act("wrap")),
    unwrap: button("Unwrap", "unwrap", "Remove the phrase and keep its words (key U)", () => view.act("unwrap")),
    remove: button("Delete", "delete", "Delete the word, or the phrase with its words (Delete key)", () => view.act("delete")),
    undo: button("Undo", "undo", "Take back the last change (Ctrl+Z)", () => view.act("undo")),
    redo: button("Redo", "redo", "Do it again (Ctrl+Y)", () => view.act("redo")),
    random: button("Other numbers", "random", "Other values for all words and phrases", () => study.remember(other())),
  };
  const steps = STEPS.filter(([name]) => name !== "attention" || study.maps.length).map(([name, said]) => {
    const node = el("button", { class: "av-button te-step", type: "button", "data-testid": `step-${name}`, text: said, onclick: () => study.set({ step: name }) });
    return { name, node };
  });
  const node = el("header", { class: "te-compose" },
    el("label", { class: "av-field te-typed" }, el("span", { text: "Tree" }), text), error, hint,
    el("div", { class: "te-tools", role: "group", "aria-label": "Change the selected word or phrase" }, labelled("label", label), labelled("value", value), weightNode, ...Object.values(tools)),
    el("div", { class: "te-steps", role: "group", "aria-label": "What is shown" }, ...steps.map(({ node: one }) => one)));

  function number(testid, change_) {
    const input = el("input", { class: "te-field te-number", type: "number", step: "1", "data-testid": testid });
    input.addEventListener("input", () => {
      const given = input.valueAsNumber;
      if (Number.isFinite(given) && Math.abs(given) <= 1e6) change_(given);
    });
    return input;
  }

  let clicks = 0;
  const current = () => study.tree.keys[study.selected];

  function change(given, what) {
    const { root } = study.tree;
    const [old, key] = [current(), study.selected];
    const next = changed(root, old, given);
    study.edit(next, found(next, root, old), `${what} ${key}`);
  }

  function rename() {
    const name = oneWord(label.value);
    if (name) change({ label: name }, "label");
  }

  /** Whole numbers from −9 to 9: the same on every page after as many clicks. */
  function other() {
    clicks += 1;
    const chance = generator(clicks);
    const draw = () => Math.floor(chance() * 19) - 9;
    return { leaf_values: study.tree.leaves.map(draw), node_values: study.tree.nodes.map(draw) };
  }

  view.act = (what) => {
    const { root, n, m } = study.tree;
    const old = current();
    if (what === "undo" || what === "redo") {
      study[what]();
    } else if (what === "add") {
      const word = { label: "word", value: n + 1, weight: 1, children: [] };
      study.edit(withWord(root, old, word), word);
    } else if (what === "wrap") {
      const phrase = { label: "X", value: 10 * (m + 1) };
      const inside = neighbours(study).map((key) => study.tree.keys[key]);
      const next = wrapped(root, inside, phrase);
      study.edit(next, holder(next, inside[0]));
    } else if (what === "unwrap" || what === "delete") {
      const next = (what === "unwrap" ? unwrapped : without)(root, old);
      if (!next) return;
      const parent = study.tree.nodes[study.tree.parents[study.selected]];
      study.edit(next, parent ? found(next, root, parent) ?? next : next);
    }
    view.changed();
  };

  function draw() {
    const { keys, n, root } = study.tree;
    const key = study.selected;
    const old = keys[key];
    show(text, (study.mistake ? study.draft : null) ?? study.get("tree"));
    const wrong = study.mistake;
    error.textContent = wrong;
    error.hidden = !wrong;
    hint.hidden = Boolean(wrong);
    text.setAttribute("aria-invalid", String(Boolean(wrong)));
    show(label, old.label);
    show(value, String(old.value));
    weightNode.hidden = key >= n;
    if (key < n) show(weight, String(old.weight));
    tools.unwrap.disabled = !unwrapped(root, old);
    tools.remove.disabled = !without(root, old);
    tools.undo.disabled = !study.past.length;
    tools.redo.disabled = !study.future.length;
    steps.forEach(({ name, node: one }) => one.setAttribute("aria-pressed", String(study.get("step") === name)));
  }

  view.rename = () => {
    label.focus();
    label.select();
  };
  label.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === "Escape") view.focusTree();
  });
  return { node, draw, hover() {} };
}

/** Marsaglia's xorshift: numbers from 0 to 1. */
function generator(seed) {
  let x = (seed * 0x9e3779b9) >>> 0;
  return () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    x >>>= 0;
    return x / 2 ** 32;
  };
}

/** What an input says, unless it is being typed into and says the same. */
function show(input, said) {
  if (input.value === said || (document.activeElement === input && (input.type === "number" ? input.valueAsNumber === Number(said) : sameTree(input.value, said)))) return;
  if (document.activeElement === input && input.value === "") return;
  input.value = said;
}

const sameTree = (typed, said) => typed.replace(/\s+/g, " ").replace(/ ?([()]) ?/g, "$1") === said.replace(/ ?([()]) ?/g, "$1");

/** The node of the new tree that stands where `old` stood in the old one. */
function found(next, root, old) {
  const path = pathTo(root, old);
  return path && path.reduce((one, at) => one?.children[at], next);
}

function pathTo(tree, old) {
  if (tree === old) return [];
  for (let at = 0; at < tree.children.length; at += 1) {
    const rest = pathTo(tree.children[at], old);
    if (rest) return [at, ...rest];
  }
  return null;
}

function holder(tree, child) {
  if (tree.children.includes(child)) return tree;
  for (const one of tree.children) {
    const inside = holder(one, child);
    if (inside) return inside;
  }
  return null;
}
