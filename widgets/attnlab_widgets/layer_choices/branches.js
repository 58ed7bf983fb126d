// What each branch reads of the query's keys, what of full attention that is, and its gate.
import { el } from "#parts/dom.js";
import { count, percent } from "./study.js";

export function branchesPanel(study) {
  const body = el("tbody", {});
  const columns = ["", "keys", "kept", "kept, mean", "gate"];
  const table = el("table", { class: "lc-table", "data-testid": "branches" }, el("thead", {}, el("tr", {}, ...columns.map((text) => el("th", { scope: "col", text })))), body);
  const node = el("section", { class: "av-panel lc-branches" }, table);

  function draw() {
    const { layer, m, head } = study;
    body.replaceChildren(...layer.branches.map((name) => {
      const part = layer.parts[name];
      const gate = layer.branches.length > 1 ? study.at(part.gates).toFixed(2) : "–";
      return el("tr", { class: name === study.branch ? "lc-row-at" : "" }, el("th", { scope: "row", text: name }), el("td", { text: count(study.rowOf(part.read, m)) }), el("td", { text: percent(study.at(part.kept)) }), el("td", { text: percent(part.mean[head]) }), el("td", { text: gate }));
    }));
  }
  return { node, draw };
}
