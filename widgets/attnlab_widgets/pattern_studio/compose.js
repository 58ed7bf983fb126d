// Composing: how many positions, the list of parts, and the expression that they write.
import { typed } from "./parts.js";
import { maskedRowsText, MOST } from "./mask.js";
import { choice, el, labelled, slider, toggle } from "#parts/dom.js";

const JOINS = [["|", "or"], ["&", "and"]];
const HINTS = { positions: "0, 5, −1 …", grid: "4 × 8" };

export function composePanel(study, view) {
  const { choices, fresh, partsOf, partsText } = study.lists;
  const presets = study.get("_presets");
  const preset = choice("Pattern", "preset", [["", "of your own"], ...presets.map(([title, code]) => [code, title])], (text) => text && propose({ text }, "parts"));
  const length = slider("Positions n", "n", { min: 1, max: MOST, step: 1 }, (n) => propose({ n }, "n"));
  const causal = toggle("Causal", "causal", (value) => change((list) => (list.causal = value)));
  const rows = el("ol", { class: "ps-parts", "data-testid": "parts" });
  const add = el("button", { type: "button", class: "av-button", text: "Add a part", "data-testid": "add", onclick: () => change((list) => list.parts.push(fresh("local", study.wanted))) });
  const anew = el("p", { class: "av-quiet", "data-testid": "no-parts" }, "This expression is more than a list of parts: change it as text, or ",
    el("button", { type: "button", class: "av-button", text: "begin a list anew", onclick: () => propose({ text: "local(2)" }, "parts") }));
  const field = el("input", { type: "text", class: "ps-code", spellcheck: "false", autocomplete: "off", "aria-label": "The expression", "data-testid": "expression", oninput: () => propose({ text: field.value }, "text") });
  const copy = el("button", { type: "button", class: "av-button", text: "Copy", title: "Copy the code, painted cells and all", "data-testid": "copy", onclick: () => copied() });
  const error = el("p", { class: "ps-error", role: "alert", "data-testid": "error" });
  const full = el("code", { class: "ps-painted-code", "data-testid": "painted-code", tabindex: "0", "aria-label": "The code with its painted cells" });
  const byHand = el("div", { class: "ps-by-hand" }, el("p", { class: "av-quiet" }), full);
  const notes = el("ul", { class: "ps-remarks", role: "status", "data-testid": "remarks" });
  const said = el("p", { class: "ps-words", "data-testid": "words" });
  const node = el(
    "section", { class: "av-panel ps-compose", "aria-label": "Compose" },
    rows, el("div", { class: "av-row" }, add), anew,
    el("div", { class: "ps-expression" }, field, copy),
    error, byHand, notes, said,
  );
  let shape = "";

  function propose(changes, kind) {
    study.propose(changes, kind);
    view.changed();
  }

  function change(act) {
    const list = partsOf(study.written);
    if (!list) return;
    act(list);
    propose({ text: partsText(list) }, "parts");
  }

  async function copied() {
    try {
      await navigator.clipboard.writeText(study.code);
    } catch {
      // Without a right to the clipboard there is still the old way.
      const text = el("textarea", { class: "av-live" });
      text.value = study.code;
      view.root.append(text);
      text.select();
      document.execCommand("copy");
      text.remove();
      copy.focus();
    }
    view.announce("the code is copied");
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1200);
  }

  function draw() {
    length.input.max = study.get("scores") === "given" ? Math.min(MOST, study.get("_side")) : MOST;
    length.input.value = study.wanted;
    length.output.textContent = study.wanted;
    preset.select.value = presets.some(([, code]) => code === study.written) ? study.written : "";
    const list = partsOf(study.written);
    anew.hidden = Boolean(list);
    rows.hidden = add.hidden = !list;
    causal.box.disabled = !list;
    causal.box.checked = list ? list.causal : false;
    if (list) drawParts(list);
    if (document.activeElement !== field || field.value.trim() !== study.written.trim()) field.value = study.written;
    field.setAttribute("aria-invalid", String(Boolean(study.error)));
    error.hidden = !study.error;
    const still = study.draft || study.get("expression") !== study.text || study.get("n") !== study.n;
    error.textContent = study.error && `${sentence(study.error)}${still ? " The mask is still the last one that could be drawn." : ""}`;
    byHand.hidden = !study.byHand;
    byHand.firstChild.textContent = `With ${study.byHand} ${study.byHand === 1 ? "cell" : "cells"} painted, the code is:`;
    full.textContent = study.byHand ? study.code : "";
    const found = [maskedRowsText(study.fullyMasked), ...study.remarks].filter(Boolean);
    const texts = found.map(sentence);
    if (texts.join() !== [...notes.children].map((one) => one.textContent).join()) {
      notes.replaceChildren(...texts.map((text) => el("li", { text })));
    }
    notes.hidden = !texts.length;
    said.textContent = `In words: ${study.description}${study.byHand ? `; but for ${study.byHand} painted by hand` : ""}.`;
  }

  /** Rows are made anew only where others are needed: what has the focus keeps it. */
  function drawParts(list) {
    const wanted = list.parts.map((part) => part.name).join();
    if (wanted !== shape) {
      const held = rows.contains(document.activeElement) ? document.activeElement.dataset.testid : null;
      rows.replaceChildren(...list.parts.map((part, at) => partRow(part, at, list.parts.length)));
      if (held) (rows.querySelector(`[data-testid="${held}"]`) ?? add).focus();
      shape = wanted;
    }
    list.parts.forEach((part, at) => rows.children[at].fill(part));
  }

  function partRow(part, at, count) {
    const named = (what) => `${what}-${at}`;
    const join = choice("", named("join"), JOINS, (value) => change((list) => (list.parts[at].join = value)));
    join.select.setAttribute("aria-label", `How part ${at + 1} is joined`);
    join.node.hidden = at === 0;
    const not = toggle("not", named("not"), (value) => change((list) => (list.parts[at].not = value)));
    const words = study.get("_words");
    const names = [...choices.keys()].map((name) => [name, words[name] ? `${name}: ${words[name]}` : name]);
    const kind = choice("", named("kind"), names, (name) => change((list) => {
      list.parts[at] = { ...fresh(name, study.wanted, list.parts[at].join), not: list.parts[at].not, blocks: list.parts[at].blocks };
    }));
    kind.node.classList.add("ps-kind");
    kind.select.setAttribute("aria-label", `Part ${at + 1}: the primitive`);
    const inputs = choices.get(part.name).map((known, place) => argumentField(at, place, known));
    const blocks = numberField("blocks of", named("blocks"), 1, (value) => change((list) => (list.parts[at].blocks = value)));
    blocks.node.title = "The same between blocks of so many positions; 1 = between positions";
    const remove = el("button", { type: "button", class: "av-button", text: "×", title: "Remove this part", "aria-label": `Remove part ${at + 1}, ${part.name}`, "data-testid": named("remove"), onclick: () => change((list) => list.parts.splice(at, 1)) });
    remove.disabled = count === 1;
    const row = el("li", { class: "ps-part" }, join.node, not.node, kind.node, ...inputs.map((one) => one.node), blocks.node, remove);
    row.fill = (now) => {
      join.select.value = now.join;
      not.box.checked = now.not;
      kind.select.value = now.name;
      inputs.forEach((one, place) => one.fill(now.args[place]));
      blocks.fill(now.blocks);
    };
    return row;
  }

  function argumentField(at, place, { name, kind, at_least: least }) {
    const testid = `${name}-${at}`;
    const set = (value) => change((list) => (list.parts[at].args[place] = value));
    if (kind === "side") {
      const side = choice(name, testid, [["column", "column"], ["row", "row"]], set);
      return { node: side.node, fill: (value) => (side.select.value = value) };
    }
    if (kind === "whole") return numberField(name, testid, least, set);
    const input = el("input", { type: "text", class: "av-number ps-list", placeholder: HINTS[kind], "data-testid": testid, onchange: () => taken(kind, input, name, set) });
    const text = (value) => (kind === "grid" ? value.join(" × ") : value.join(", "));
    return { node: labelled(name, input), fill: (value) => document.activeElement !== input && (input.value = text(value)) };
  }

  function numberField(name, testid, least, set) {
    const input = el("input", { type: "number", class: "av-number", step: 1, min: least, "data-testid": testid, oninput: () => input.value !== "" && taken("whole", input, name, set) });
    input.addEventListener("blur", () => view.changed());
    return {
      node: labelled(name, input),
      fill(value) {
        if (document.activeElement !== input || Number(input.value) !== value) input.value = value;
      },
    };
  }

  function taken(kind, input, name, set) {
    try {
      set(typed(kind, input.value, name));
    } catch (problem) {
      study.error = problem.message;
      view.changed();
    }
  }

  return { node, draw, controls: [preset.node, length.node, causal.node] };
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
