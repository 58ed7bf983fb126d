// The maps in words: of each row the key with the largest weight, exactly and by the features.
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";
import { two } from "#lib/plane.js";
import { grouped } from "#lib/wall.js";
import { keyName, percent, placed } from "./words.js";

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    const { head, seen, curve } = study;
    const most = (map, i) => {
      const row = map.subarray(i * head.m, (i + 1) * head.m);
      const j = row.reduce((best, value, at) => (value > row[best] ? at : best), 0);
      return `${placed(keyName(head, j), j)}, ${two(row[j])}`;
    };
    const rows = head.names.map((name, i) => [placed(name, i), most(seen.exact, i), most(seen.map, i), percent(seen.misplaced[i])]);
    const errors = curve.filter(study.isKnown).map((one) => [study.countOf(one) === null ? "all" : grouped(study.countOf(one)), percent(study.error(one))]);
    body.replaceChildren(
      headed("Where each query looks most", ["query", "exact: most on", "features: most on", "misplaced"], rows, "rows-table"),
      headed("Attention in the wrong place", ["features per token", "share"], errors, "errors-table"),
    );
  }

  return { node, draw };
}
