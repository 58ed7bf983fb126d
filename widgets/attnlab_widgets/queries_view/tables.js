// The same numbers as tables of text. They are filled when they are opened.
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";
import { asideOf } from "./study.js";
import { besides, half, MASKED, place, unmasked, weight } from "./words.js";

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    const { found, shown } = study;
    const queries = Array.from({ length: found.queries }, (_, query) => {
      const row = Array.from(study.row(query), unmasked);
      const best = row.indexOf(Math.max(...row));
      return [query, place(found, best), weight(row[best]), half(row), ...(found.before ? [weight(asideOf(found, shown, query))] : [])];
    });
    const row = study.row(shown.query);
    const patches = Array.from(row, (code, at) => [at, code]).filter(([, code]) => code !== MASKED).sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    body.replaceChildren(
      headed("All queries", ["query", "strongest patch", "weight", ...(found.before ? ["patches with half of what goes to patches", `to the ${besides(found)}`] : ["patches with half of the weight"])], queries, "queries-table"),
      headed(`What query ${shown.query} reads`, ["patch", "weight"], patches.map(([at, code]) => [place(found, at), weight(code)]), "patches-table"),
    );
  }
  return { node, draw };
}
