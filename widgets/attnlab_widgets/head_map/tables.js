// The same numbers as tables of text. They are filled when they are opened.
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";
import { MASKED, weightOf } from "./study.js";
import { called } from "./words.js";

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    const { found, at, order, state: { query } } = study;
    const { heads, looks, kinds, importance, divergence, count, n, tokens } = found;
    const rows = [at, ...order].map((other) => [...heads[other], looks[kinds[other]], divergence[at * count + other].toFixed(3), ...(importance ? [importance[other].toPrecision(3)] : [])]);
    const keys = Array.from({ length: n }, (_, j) => [j, study.code(query, j)]).filter(([, code]) => code !== MASKED).sort((a, b) => b[1] - a[1]);
    body.replaceChildren(
      headed(`All heads, from ${called(heads[at])} on`, ["layer", "head", "kind", "divergence", ...(importance ? ["importance"] : [])], rows, "heads-table"),
      headed(`What “${tokens[query]}” (${query}) attends to`, ["key", "token", "weight"], keys.map(([j, code]) => [j, tokens[j], weightOf(code).toFixed(3)]), "keys-table"),
    );
  }
  return { node, draw };
}
