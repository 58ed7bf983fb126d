// The tables below the tree: S, Ŝ and v̄ in the columns of the words, or who may attend to whom.
import { branch } from "./trees.js";
import { el } from "#parts/dom.js";
import { columnOf, filled, LEFT, RIGHT } from "./drawing.js";
import { said, short } from "./study.js";

const MOST_HIGH = 262, ROW = 22, MOST_ROWS = 14, SQUARE = 245;

export function tablesPanel(study, view) {
  const frame = el("div", { class: "te-tables" });
  const node = el("section", { "aria-label": "Tables" }, frame);
  frame.addEventListener("pointerover", ({ target }) => view.point(placeOf(target)));
  frame.addEventListener("pointerleave", () => view.point(null));
  frame.addEventListener("click", ({ target }) => {
    const cell = target.closest("td[data-row]");
    if (!cell) return;
    const [row, column] = [Number(cell.dataset.row), Number(cell.dataset.column)];
    if (cell.dataset.of === "matrix") study.select(row);
    else if (row < 0) study.select(column);
    else study.choose(row, column);
  });

  function placeOf(target) {
    const cell = target.closest?.("td[data-row]");
    if (!cell) return null;
    const [row, column] = [Number(cell.dataset.row), Number(cell.dataset.column)];
    if (cell.dataset.of === "matrix") return { key: column, query: row };
    return row < 0 ? { leaf: column } : { node: row, leaf: column };
  }

  function draw() {
    const step = study.get("step");
    const { n, m } = study.tree;
    const wide = node.clientWidth;
    if (step === "mask" || step === "attention") {
      frame.replaceChildren(matrix(wide));
    } else {
      const column = columnOf(wide, n);
      const both = step === "average" && 2 * m + 1 <= MOST_ROWS;
      const rows = (step === "interpolation" ? m + 1 : both ? 2 * m + 1 : m) + 1;
      const size = { column, row: Math.max(7, Math.min(ROW, Math.floor((MOST_HIGH - study.tall) / rows))) };
      const tables = [];
      if (step === "interpolation" || both) tables.push(values(size));
      if (step !== "interpolation") tables.push(averages(size, step === "aggregation"));
      frame.replaceChildren(...tables);
    }
    hover();
  }

  function table(caption, size, rows, end = null) {
    const { n } = study.tree;
    const columns = el("colgroup", {}, el("col", { style: `width:${LEFT}px` }), ...Array.from({ length: n }, () => el("col", { style: `width:${size.column}px` })), end ? el("col", { style: `width:${RIGHT}px` }) : null);
    const head = el("tr", { class: "te-head" }, el("td", { class: "te-corner", text: caption.name, title: caption.said }), ...study.tree.names.slice(0, n).map((name) => el("th", { scope: "col" }, el("span", { class: "av-live", text: name }))), end ? el("th", { scope: "col", text: end }) : null);
    return el("table", { class: "te-table", "data-testid": caption.id, style: `width:${LEFT + n * size.column + (end ? RIGHT : 0)}px;--row:${size.row}px;--letters:${size.row < 16 ? Math.min(8, size.row) : 12}px` },
      el("caption", { class: "av-live", text: caption.said }), columns, head, ...rows);
  }

  function cell(of, row, column, value, largest, size, marks = "") {
    const at = { "data-of": of, "data-row": row, "data-column": column };
    if (value === null) return el("td", { ...at, class: `te-cell te-none ${marks}`, "aria-label": "outside the subtree" });
    const { fill, ink } = filled(value, largest, true, view.dark);
    const shows = size.column >= 34 && size.row >= 14;
    return el("td", { ...at, class: `te-cell ${marks}`, style: `background:${fill};color:${ink}`, title: said(value, 4), text: shows ? said(value) : "", "aria-label": said(value) });
  }

  const rowName = (key) => el("th", { class: "te-row", scope: "row", title: study.tree.names[key], text: short(study.tree.names[key], LEFT - 12) });

  function values(size) {
    const { s, n, keys } = study.tree;
    const [i, j] = study.cell;
    const average = study.get("step") === "average";
    const line = branch(study.tree, i, j) ?? [];
    const largest = Math.max(...keys.map(({ value }) => Math.abs(value)));
    const marks = (row, column) => {
      if (column !== j) return row === i && !average ? "te-line" : "";
      if (!average) return row === i ? "te-chosen" : "";
      return line.length && (row < 0 || line.includes(row)) ? "te-member" : "";
    };
    const first = el("tr", {}, el("th", { class: "te-row", scope: "row", text: "words ℓ" }), ...s[0].map((value, column) => cell("S", -1, column, value, largest, size, marks(-1, column))));
    const others = s.slice(1).map((list, row) => el("tr", {}, rowName(n + row), ...list.map((value, column) => cell("S", row, column, value, largest, size, marks(row, column)))));
    return table({ id: "table-values", name: "S: values", said: "S: the words' values, and each phrase's value laid over its words" }, size, [first, ...others]);
  }

  function averages(size, sums) {
    const { hat, n, leaves, gathered } = study.tree;
    const [i, j] = study.cell;
    const largest = Math.max(1e-12, ...hat.flat().map((value) => Math.abs(value ?? 0)));
    const most = Math.max(1e-12, ...gathered.map(Math.abs));
    const rows = hat.map((list, row) => el("tr", {}, rowName(n + row),
      ...list.map((value, column) => cell("hat", row, column, value, largest, size, row === i ? (sums ? (value === null ? "" : "te-member") : column === j ? "te-chosen" : "") : "")),
      sums ? sum(row, gathered[row], most, size, row === i) : null));
    if (sums) {
      rows.unshift(el("tr", {}, el("th", { class: "te-row", scope: "row", text: "weights w" }),
        ...leaves.map(({ weight }, column) => el("td", { class: "te-cell te-weight", "data-of": "w", "data-row": -1, "data-column": column, title: `weight ${said(weight)}`, text: size.column >= 26 ? said(weight) : "" }))));
    }
    return table({ id: "table-averages", name: "Ŝ: averages", said: "Ŝ: the mean of each word and the phrases on its branch, for each phrase" }, size, rows, sums ? "v̄" : null);
  }

  function sum(row, value, most, size, chosen) {
    const { fill, ink } = filled(value, most, true, view.dark);
    return el("td", { class: `te-cell te-sum ${chosen ? "te-chosen" : ""}`, "data-testid": `sum-${row}`, style: `background:${fill};color:${ink}`, title: said(value, 4), text: size.row >= 14 ? said(value) : "" });
  }

  // ---- queries in rows, keys in columns

  function matrix(wide) {
    const { n, keys, names, mask } = study.tree;
    const attention = study.get("step") === "attention";
    if (attention && !study.attentionFits) {
      return el("p", { class: "av-status", text: "The attention was recorded for a tree of another shape. Undo the changes to see it." });
    }
    const count = keys.length;
    const side = Math.max(5, Math.min(26, Math.floor((wide - LEFT - 8) / count), Math.floor((SQUARE - study.tall / 2) / count)));
    const names_ = side >= 11;
    const head = el("tr", { class: names_ ? "te-keys" : "" }, el("td", { class: "te-corner te-long", text: names_ ? "query ↓  key →" : "" }), ...names.map((name) => el("th", { scope: "col" }, names_ ? el("span", { text: short(name, 58) }) : el("span", { class: "av-live", text: name }))));
    const rows = keys.map((_, query) => el("tr", { class: query === study.selected ? "te-query" : "" },
      el("th", { class: "te-row", scope: "row", text: names_ ? short(names[query], LEFT - 12) : "" }),
      ...keys.map((__, key) => pair(query, key, attention, mask[query][key], key === n || query === n))));
    const columns = el("colgroup", {}, el("col", { style: `width:${LEFT}px` }), ...keys.map(() => el("col", { style: `width:${side}px` })));
    const caption = attention ? `Attention, ${study.map.name}, layer ${study.get("layer")}, head ${study.get("head")}` : "The subtree mask";
    return el("table", { class: "te-table te-matrix", "data-testid": "matrix", style: `width:${LEFT + count * side}px;--row:${side}px;--letters:${Math.min(12, side - 3)}px` }, el("caption", { class: "av-live", text: caption }), columns, head, ...rows);
  }

  function pair(query, key, attention, allowed) {
    const { n } = study.tree;
    const edge = `${key === n ? "te-left" : ""} ${query === n ? "te-top" : ""}`;
    const at = { "data-of": "matrix", "data-row": query, "data-column": key };
    if (!attention) return el("td", { ...at, class: `te-cell ${allowed ? "te-may" : "te-none"} ${edge}`, "aria-label": allowed ? "may attend" : "may not attend" });
    const weight = study.weight(query, key);
    if (Number.isNaN(weight)) return el("td", { ...at, class: `te-cell te-none ${edge}`, "aria-label": "may not attend" });
    return el("td", { ...at, class: `te-cell ${edge}`, style: `background:${filled(weight, 1, false, view.dark).fill}`, "aria-label": said(weight, 3) });
  }

  function hover() {
    const at = study.at;
    for (const one of frame.querySelectorAll("td[data-row]")) one.classList.toggle("te-hot", Boolean(at) && hot(one.dataset, at));
  }

  function hot({ of, row, column }, at) {
    const [i, j] = [Number(row), Number(column)];
    const { n } = study.tree;
    if (of === "matrix") {
      const key = at.key ?? at.leaf ?? (at.node === undefined ? undefined : n + at.node);
      return at.query === undefined ? j === key : i === at.query && j === key;
    }
    if (at.key !== undefined) return of === "S" && (at.key < n ? i < 0 && j === at.key : i === at.key - n && j === study.cell[1]);
    if (at.node !== undefined && at.leaf !== undefined) return i === at.node && j === at.leaf;
    return at.node === undefined ? j === at.leaf : i === at.node;
  }

  return { node, draw, hover };
}
