// The table: scores of the rows along its side, of the columns along its top, their sums in its
// cells. Arrow keys go from cell to cell.
import { moved } from "../../lib/keys.js";
import { two } from "../../lib/plane.js";
import { best, same, share, sum } from "../../lib/scored.js";
import { el, plain } from "../dom.js";

/** `table` is {header, rows}; `chosen()` is the cell that is read out, `choose(cell)` another one. */
export function heatTable({ table, chosen, choose }) {
  const columns = table.header.length;
  const tops = table.header.map((_, column) => el("td", { class: "tv-score", testid: `column-${column}` }));
  const sides = table.rows.map((_, row) => el("td", { class: "tv-score", testid: `row-${row}` }));
  const cells = table.rows.map((texts, row) => texts.map((text, column) => cellOf(text, [row, column])));
  const head = el("thead", {},
    el("tr", {}, el("td", { colspan: 2 }), ...table.header.map((text) => el("th", { scope: "col" }, el("bdi", { text })))),
    el("tr", { class: "tv-tops" }, el("th", { class: "tv-corner", scope: "row", colspan: 2, text: "scores" }), ...tops));
  const body = el("tbody", {}, ...cells.map((line, row) =>
    el("tr", {}, el("th", { class: "tv-number", scope: "row", text: row }), sides[row], ...line.map(({ node }) => node))));
  const grid = el("table", { class: "tv-table", role: "grid", "aria-label": "The table; arrow keys go from cell to cell" }, head, body);
  const node = el("div", { class: "tv-frame", testid: "table" }, grid);

  function cellOf(text, cell) {
    const score = el("span", { class: "tv-sum" });
    const tag = el("span", { class: "tv-tag" });
    const one = el("td", { class: "tv-cell", tabindex: -1, testid: `cell-${cell.join("-")}`, onclick: () => choose(cell) },
      el("bdi", { class: "tv-text", text: text || "—" }), el("span", { class: "tv-low" }, score, tag));
    return { node: one, score, tag };
  }

  body.addEventListener("keydown", (event) => {
    const [row, column] = chosen();
    const next = plain(event) ? moved(row * columns + column, cells.length * columns, event.key, columns) : null;
    if (next === null) return;
    event.preventDefault();
    const cell = [Math.floor(next / columns), next % columns];
    choose(cell);
    cells[cell[0]][cell[1]].node.focus();
  });

  function draw(question) {
    const [lowest, highest] = [Math.min, Math.max].map((end) => [end(...question.rows), end(...question.columns)]);
    const heat = (one, by) => one.style.setProperty("--share", by.toFixed(4));
    const now = chosen();
    tops.forEach((one, column) => {
      one.textContent = two(question.columns[column]);
      one.classList.toggle("tv-of", column === now[1]);
      heat(one, share(question.columns[column], lowest[1], highest[1]));
    });
    sides.forEach((one, row) => {
      one.textContent = two(question.rows[row]);
      one.classList.toggle("tv-of", row === now[0]);
      heat(one, share(question.rows[row], lowest[0], highest[0]));
    });
    const first = best(question);
    cells.forEach((line, row) => line.forEach(({ node: one, score, tag }, column) => {
      const cell = [row, column];
      const value = sum(question, cell);
      const names = [...(same(cell, first) ? ["best"] : []), ...(same(cell, question.answer) ? ["answer"] : [])];
      score.textContent = two(value);
      tag.replaceChildren(...names.map((name) => el("b", { class: `tv-is-${name}`, text: name })));
      one.className = `tv-cell ${names.map((name) => `tv-${name}`).join(" ")}`;
      one.tabIndex = same(cell, now) ? 0 : -1;
      one.setAttribute("aria-selected", String(same(cell, now)));
      heat(one, share(value, lowest[0] + lowest[1], highest[0] + highest[1]));
    }));
  }

  return { node, draw };
}
