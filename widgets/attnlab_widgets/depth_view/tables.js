// The same numbers as tables of text. They are filled when they are opened.
import { power, running, settledAt } from "./depth.js";
import { two } from "#lib/plane.js";
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (node.open) body.replaceChildren(way(), tokens(), steps());
  }

  /** The chosen token, step by step. */
  function way() {
    const { depth, state: { token } } = study;
    const rows = [];
    for (let at = 0; at < depth.left[token]; at += 1) {
      const place = token * depth.s + at;
      const change = Number.isNaN(depth.change[place]) ? "–" : power(depth.change[place]);
      rows.push([depth.steps[at], power(depth.distance[place]), change, ...(depth.guesses ? [depth.guesses[token][at], two(depth.probability[place])] : [])]);
    }
    return headed(`Token ${token} “${depth.tokens[token]}”`, [depth.what, "distance to the final state", "change", ...(depth.guesses ? ["answer", "probability"] : [])], rows, "way-table");
  }

  function tokens() {
    const { depth, rows } = study;
    const lines = rows.map((i) => [i, depth.tokens[i], depth.steps[depth.left[i] - 1], depth.steps[settledAt(depth, i) - 1]]);
    return headed("Where each token leaves, and from where on it is near its final state", ["token", "text", "leaves after", "near from"], lines, "tokens-table");
  }

  function steps() {
    const { depth } = study;
    const lines = running(depth).map((count, at) => [depth.steps[at], count, ...(depth.residual ? [power(depth.residual[at])] : [])]);
    return headed(`Every ${depth.what}`, [depth.what, "tokens on the way", ...(depth.residual ? ["residual"] : [])], lines, "steps-table");
  }

  return { node, draw };
}
