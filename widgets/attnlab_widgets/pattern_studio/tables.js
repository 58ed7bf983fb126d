// The same as tables: who attends to whom, and the receptive field. Filled when they are opened.
import { keysOf, pairsOf, percent, runs } from "./mask.js";
import { weight } from "#lib/words.js";
import { el } from "#parts/dom.js";

export function tablesPanel(study) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", "data-testid": "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", draw);

  function draw() {
    if (node.open) body.replaceChildren(rowsTable(), receptiveFieldTable());
  }

  function rowsTable() {
    const { n, mask } = study;
    const rows = Array.from({ length: n }, (_, i) => {
      const keys = keysOf(mask, n, i);
      const weights = study.weights(i);
      const best = weights.indexOf(Math.max(...weights));
      return keys.length ? [i, keys.length, runs(keys), best, weight(weights[best])] : [i, 0, "nothing: its output is zero", "—", "—"];
    });
    return table("Who may attend to whom", ["query", "keys attended to", "which", "strongest key", "weight"], rows, "mask-table");
  }

  function receptiveFieldTable() {
    const { n } = study;
    const rows = study.receptiveField.frames.map((frame, at) => [at + 1, pairsOf(frame), percent(pairsOf(frame) / n ** 2)]);
    return table("Receptive field", ["after layer", "pairs connected", "share"], rows, "receptive-field-table");
  }

  return { node, draw };
}

function table(title, columns, rows, testid) {
  return el("div", { class: "av-table-frame", tabindex: "0", role: "region", "aria-label": title },
    el("table", { "data-testid": testid },
      el("caption", { text: title }),
      el("thead", {}, el("tr", {}, ...columns.map((text) => el("th", { scope: "col", text })))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((text) => el("td", { text: String(text) })))))));
}
