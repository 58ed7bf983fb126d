// What the step does, and the chosen cell written out with its numbers.
import { below, branch, fromWords } from "./trees.js";
import { choice, el, slider } from "#parts/dom.js";
import { said, short } from "./study.js";

const TITLES = {
  interpolation: "Each phrase lays its value over its words",
  average: "Averages, from each phrase down to each word",
  aggregation: "Each phrase adds up its averages",
  mask: "A phrase attends to its own subtree",
  attention: "What the selected node attends to",
};
const RULES = {
  interpolation: ["S(i, j) = nᵢ if word j is below phrase i, else 0", "The first row holds the words' own values ℓ. Orange: above 0, blue: below."],
  average: ["Ŝ(i, j) = mean of ℓⱼ and every n from phrase i down to word j", "Only phrases on the branch count: a phrase beside it is left out."],
  aggregation: ["v̄(i) = Σⱼ wⱼ Ŝ(i, j) / number of words below i", "The sum is divided by the number of words, not by the sum of the weights."],
  mask: ["A phrase may attend to itself and to all that is below it. A word may attend to all words, and to no phrase."],
  attention: ["Keys are the words, then the phrases. A phrase hands out its v̄, not its own value.", "Dark blue: weight 0, yellow: weight 1 (square-root scale). Hatched: may not be attended to."],
};
const MOST_TERMS = 8;

export function explainPanel(study, view) {
  const title = el("h3", {});
  const rule = el("div", { class: "te-rule" });
  const formula = el("p", { class: "te-formula", "data-testid": "formula" });
  const plain = el("p", { class: "te-plain av-quiet", "data-testid": "said" });
  const menu = choice("map", "shown", study.maps.map(({ name }) => [name, name]), (name) => study.choseMap(name));
  const layer = slider("layer", "layer", { min: 0, max: 0, step: 1 }, (value) => study.set({ layer: value }));
  const head = slider("head", "head", { min: 0, max: 0, step: 1 }, (value) => study.set({ head: value }));
  const choose = el("div", { class: "te-choose" }, menu.node, layer.node, head.node);
  const bars = el("ol", { class: "te-weights", "data-testid": "weights" });
  const weightNode = el("div", { class: "te-weigh", role: "group", "aria-label": "Weights of the words" });
  const sliders = [];
  const live = el("div", { class: "av-live", role: "status", "data-testid": "live" });
  const node = el("section", { class: "te-explain", "aria-label": "The chosen cell" }, title, rule, choose, formula, weightNode, plain, bars, live);
  formula.addEventListener("pointerover", ({ target }) => {
    const key = target.closest?.("[data-term]")?.dataset.term;
    view.point(key === undefined ? null : { key: Number(key) });
  });
  formula.addEventListener("pointerleave", () => view.point(null));

  const term = (key, text) => el("span", { class: "te-term", "data-term": key, text });
  const joined = (parts, sign) => parts.flatMap((part, at) => (at ? [sign, part] : [part]));

  function draw() {
    const step = study.get("step");
    title.textContent = TITLES[step];
    rule.replaceChildren(...RULES[step].map((text, at) => el("p", { class: at ? "av-quiet" : "te-law", text })));
    choose.hidden = step !== "attention";
    weightNode.hidden = step !== "aggregation";
    bars.hidden = step !== "attention" || !study.attentionFits;
    formula.hidden = step === "attention" || step === "mask";
    const [parts, words] = { interpolation, average, aggregation, mask, attention }[step]();
    formula.replaceChildren(...parts);
    plain.textContent = words;
    const news = parts.length ? `${formula.textContent} ${words}` : words;
    if (live.textContent !== news) live.textContent = news;
  }

  function interpolation() {
    const { names, n, s } = study.tree;
    const [i, j] = study.cell;
    const [phrase, word] = [names[n + i], names[j]];
    const value = s[i + 1][j];
    if (value === null) return [[`S(${phrase}, ${word}) = 0`], `“${word}” is not below ${phrase}: the cell is hatched, and counted nowhere.`];
    const count = below(study.tree, i).length;
    return [[`S(${phrase}, ${word}) = n(${phrase}) = `, term(n + i, said(value))], `${phrase} lays its value ${said(value)} over its ${count} ${count === 1 ? "word" : "words"}.`];
  }

  function average() {
    const { names, n, hat, keys } = study.tree;
    const [i, j] = study.cell;
    const [phrase, word] = [names[n + i], names[j]];
    const line = branch(study.tree, i, j);
    if (!line) return [[`Ŝ(${phrase}, ${word}) = 0`], `“${word}” is not below ${phrase}: the cell is hatched, and counted nowhere.`];
    const path = [j, ...[...line].reverse().map((t) => n + t)];
    const letters = joined(path.map((key) => term(key, `${key < n ? "ℓ" : "n"}(${names[key]})`)), " + ");
    const numbers = joined(path.map((key) => term(key, said(keys[key].value))), " + ");
    return [
      [`Ŝ(${phrase}, ${word})`, el("br"), "= (", ...letters, `) / ${path.length}`, el("br"), "= (", ...numbers, `) / ${path.length}`, el("br"), "= ", el("strong", { text: said(hat[i][j]) })],
      `The branch from ${phrase} down to “${word}” has ${line.length} ${line.length === 1 ? "phrase" : "phrases"} and the word: ${path.length} numbers.`,
    ];
  }

  function aggregation() {
    const { names, n, hat, leaves, gathered, counts } = study.tree;
    const [i, j] = study.cell;
    const phrase = names[n + i];
    const inside = below(study.tree, i);
    const shown = inside.length > MOST_TERMS ? inside.slice(0, MOST_TERMS) : inside;
    const parts = joined(shown.map((k) => el("span", { class: k === j ? "te-term te-own" : "te-term", "data-term": k, text: `${said(leaves[k].weight)} · ${said(hat[i][k])}` })), " + ");
    if (shown.length < inside.length) parts.push(` + … (${inside.length - shown.length} more)`);
    weigh();
    const words = fromWords(study.tree, study.tree, i);
    return [
      [`v̄(${phrase})`, el("br"), "= (", ...parts, `) / ${counts[i]}`, el("br"), "= ", el("strong", { text: said(gathered[i]) })],
      `Of this the words' own values add ${said(words)}, the phrases' values ${said(gathered[i] - words)}. Move the weight of a word: only the phrases above it change.`,
    ];
  }

  /** A slider for each word, or for the chosen one where they are many. */
  function weigh() {
    const { names, leaves, n } = study.tree;
    const words = n > MOST_TERMS ? [study.cell[1]] : leaves.map((_, j) => j);
    while (sliders.length < words.length) {
      const at = sliders.length;
      sliders.push(slider("", `weight-${at}`, { min: -2, max: 3, step: 0.1 }, (value) => study.weigh(sliders[at].word, value)));
    }
    words.forEach((j, at) => {
      const one = sliders[at];
      one.word = j;
      one.input.value = String(leaves[j].weight);
      one.output.textContent = said(leaves[j].weight);
      one.node.firstChild.textContent = `w(${short(names[j], 90)})`;
    });
    const nodes = sliders.slice(0, words.length).map((one) => one.node);
    if (nodes.length !== weightNode.children.length) weightNode.replaceChildren(...nodes);
  }

  function mask() {
    const { names, n, keys } = study.tree;
    const query = study.selected;
    const allowed = keys.map((_, key) => key).filter((key) => study.tree.mask[query][key]);
    const who = query < n ? `The word “${names[query]}”` : `The phrase ${names[query]}`;
    const pairs = study.tree.mask.flat().filter(Boolean).length;
    return [[], `${who} may attend to ${allowed.length} of ${keys.length}: ${allowed.map((key) => names[key]).join(", ")}. Hatched: may not. In all ${pairs} of ${keys.length ** 2} pairs.`];
  }

  function attention() {
    const { names, keys, n } = study.tree;
    const query = study.selected;
    const map = study.map;
    menu.select.value = map.name;
    menu.node.hidden = study.maps.length < 2;
    for (const [one, most, at] of [[layer, map.layers - 1, "layer"], [head, map.heads - 1, "head"]]) {
      one.input.max = most;
      one.input.value = study.get(at);
      one.input.disabled = most === 0;
      one.output.textContent = study.get(at);
    }
    bars.replaceChildren();
    if (!study.attentionFits) return [[], "The attention was recorded for a tree of another shape."];
    const found = keys.map((_, key) => ({ key, weight: study.weight(query, key) })).filter(({ weight }) => !Number.isNaN(weight)).sort((a, b) => b.weight - a.weight);
    const top = found.slice(0, MOST_TERMS);
    const most = Math.max(1e-12, top[0]?.weight ?? 0);
    bars.append(...top.map(({ key, weight }) => el("li", { "data-term": key }, el("span", { class: "te-weight-name", text: `${key < n ? "" : "◇ "}${names[key]}` }), el("span", { class: "te-weight-bar" }, el("span", { style: `width:${(100 * weight) / most}%` })), el("span", { class: "te-weight-said", text: said(weight, 3) }))));
    return [[], `${names[query]} attends most to ${top.slice(0, 3).map(({ key, weight }) => `${names[key]} (${said(weight)})`).join(", ")}. ${keys.length - found.length} of ${keys.length} keys are masked.`];
  }

  return { node, draw, hover() {} };
}
