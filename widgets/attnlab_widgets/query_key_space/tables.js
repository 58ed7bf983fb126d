// The same as tables of text; they are filled when they are opened.
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";
import { weight } from "#lib/words.js";

const said = (value) => (value === null || value === undefined ? "—" : weight(value, 0.001).replace("-", "−"));

export function tablesPanel(study) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", "data-testid": "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", draw);

  function draw() {
    if (node.open) body.replaceChildren(...(study.selected ? [partners()] : []), heads());
  }

  function heads() {
    const { statistics } = study.space;
    const figures = Object.keys(study.head.faithfulness);
    const rows = study.heads.map(({ is, faithfulness }, at) => [
      ...is, study.kind(at) || "—", ...statistics.map((name) => said(study.statistic(name, at))), ...figures.map((name) => said(faithfulness[name])),
    ]);
    return headed("Every head", ["layer", "head", "kind", ...[...statistics, ...figures].map((name) => name.replaceAll("_", " "))], rows, "heads-table");
  }

  function partners() {
    const { side, row } = study.selected;
    const other = study.setOf(side === "query" ? "key" : "query");
    const rows = study.partners(side, row).map((one) => [other.position[one.row], other.short(one.row), weight(one.w, 0.02)]);
    const title = side === "query" ? "Strongest keys of the query" : "Queries of which this is a strongest key:";
    return headed(`${title} “${study.setOf(side).short(row)}”`, ["position", "token", "weight"], rows, "partners-table");
  }

  return { node, draw };
}
