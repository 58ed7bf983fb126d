// The same numbers as tables of text. They are filled when they are opened.
import { el } from "./dom.js";
import { known, listed, STATISTICS } from "../lib/heads.js";
import { exactly, weight } from "../lib/words.js";

const MOST = 200;

export function asTables(store) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", draw);

  function draw() {
    if (!node.open) return;
    body.replaceChildren(weightsTable(), headsTable());
  }

  function weightsTable() {
    const heads = store.lineHeads;
    const query = store.pinned("query");
    const { n } = store.shape;
    const title = query === null
      ? `Where each query looks most, ${store.called(...heads[0])}`
      : `Query ${query} “${store.token("q", query).short}”: its strongest keys`;
    const rows = query === null ? strongestOfEach(heads[0], n) : keysOf(query, heads);
    const columns = query === null
      ? ["query", "token", "strongest key", "token", "weight"]
      : ["key", "token", ...heads.map((head) => store.called(...head))];
    const more = query === null && n > MOST ? `The first ${MOST} of ${n} queries.` : "";
    return headed(title, columns, rows, "weights-table", more);
  }

  function strongestOfEach([layer, head], n) {
    const map = store.map(layer, head);
    const rows = [];
    for (let i = 0; i < Math.min(n, MOST); i += 1) {
      const best = map.row(i).reduce((a, b) => (a && Math.abs(a.w) >= Math.abs(b.w) ? a : b), null);
      const query = store.token("q", i).short;
      rows.push(best ? [i, query, best.j, store.token("k", best.j).short, said(map.value(i, best.j))] : [i, query, "—", "—", "—"]);
    }
    return rows;
  }

  function keysOf(query, heads) {
    const maps = heads.map(([layer, head]) => store.map(layer, head));
    const cells = [...maps[0].row(query)].sort((a, b) => Math.abs(b.w) - Math.abs(a.w));
    return cells.slice(0, 50).map(({ j }) => [j, store.token("k", j).short, ...maps.map((map) => said(map.value(query, j)))]);
  }

  const said = (value) => exactly(value, store.signed);

  function headsTable() {
    const names = known(store.statistics).filter((name) => name !== "layer");
    const heads = listed(store.layers, store.statistics, "layer");
    const rows = heads.map(({ layer, head }) => [
      layer,
      head,
      store.layers[layer].name,
      ...names.map((name) => {
        const value = store.statistics[layer][name]?.[head];
        return value === null || value === undefined ? "—" : weight(value, 0.001);
      }),
    ]);
    return headed("Statistics of every head (raw weights)", ["layer", "head", "name", ...names.map((name) => STATISTICS[name].label)], rows, "heads-table");
  }

  return { node, draw, hover() {} };
}

/** A table with its title and the names of its columns, in a frame that scrolls. */
export function headed(title, columns, rows, testid, more = "") {
  const head = el("tr", {}, ...columns.map((name) => el("th", { scope: "col", text: name })));
  const lines = rows.map((row) => el("tr", {}, ...row.map((value) => el("td", {}, el("bdi", { text: String(value) })))));
  return el(
    "div",
    { class: "av-table-frame", tabindex: "0", role: "region", "aria-label": title },
    el("table", { testid: testid }, el("caption", { text: `${title}. ${more}` }), el("thead", {}, head), el("tbody", {}, ...lines)),
  );
}
