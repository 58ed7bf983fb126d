// The table: scores of the rows along its side, of the columns along its top, their sums in its
// cells. Arrow keys go from cell to cell.
import { moved } from "#lib/keys.js";
import { two } from "#lib/plane.js";
import { best, same, share, sum } from "./scored.js";
import { el, plain } from "#parts/dom.js";

/** `chosen()` is the cell that is read out, `choose(cell)` another one. */
export function heatTable({ chosen, choose }) {
  const node = el("div", { class: "tv-frame", testid: "table" });
  let [shown, cells, tops, sides] = [null, [], [], []];
  node.addEventListener("keydown", (event) => {
    const columns = tops.length;
    const [row, column] = chosen();
    const next = plain(event) ? moved(row * columns + column, cells.length * columns, event.key, columns) : null;
    if (next === null) return;
    event.preventDefault();
    const cell = [Math.floor(next / columns), next % columns];
    choose(cell);
    cells[cell[0]][cell[1]].node.focus();
  });

  function build(question) {
    shown = question;
    tops = question.header.map((_, column) => el("td", { class: "tv-score", testid: `column-${column}` }));
    sides = question.cells.map((_, row) => el("td", { class: "tv-score", testid: `row-${row}` }));
    cells = question.cells.map((texts, row) => texts.map((text, column) => cellOf(text, [row, column])));
    const names = question.header.map((text) => el("th", { scope: "col" }, el("bdi", { text })));
    const head = el("thead", {},
      el("tr", {}, el("td", { colspan: 2 }), ...names),
      el("tr", {}, el("th", { class: "tv-corner", scope: "row", colspan: 2, text: "scores" }), ...tops));
    const body = el("tbody", {}, ...cells.map((line, row) =>
      el("tr", {}, el("th", { class: "tv-number", scope: "row", text: row }), sides[row], ...line.map((one) => one.node))));
    node.replaceChildren(el("table", { class: "tv-table", role: "grid", "aria-label": "The table; arrow keys go from cell to cell" }, head, body));
  }

  function cellOf(text, cell) {
    const score = el("span", { class: "tv-sum" });
    const tag = el("span", { class: "tv-tag" });
    const one = el("td", { class: "tv-cell", tabindex: -1, testid: `cell-${cell.join("-")}`, onclick: () => choose(cell) },
      el("bdi", { class: "tv-text", text: text || "—" }), el("span", { class: "tv-low" }, score, tag));
    return { node: one, score, tag };
  }

  function draw(question) {
    if (question !== shown) build(question);
    const { rows, columns } = question;
    const [row, column] = chosen();
    const heat = (one, score, scores) => one.style.setProperty("--share", share(score, Math.min(...scores), Math.max(...scores)).toFixed(4));
    for (const [nodes, scores, now] of [[tops, columns, column], [sides, rows, row]]) {
      nodes.forEach((one, at) => {
        one.textContent = two(scores[at]);
        one.classList.toggle("tv-of", at === now);
        heat(one, scores[at], scores);
      });
    }
    const ends = [Math.min, Math.max].map((end) => end(...rows) + end(...columns));
    const first = best(question);
    cells.forEach((line, i) => line.forEach(({ node: one, score, tag }, j) => {
      const names = [...(same([i, j], first) ? ["best"] : []), ...(same([i, j], question.answer) ? ["answer"] : [])];
      const now = i === row && j === column;
      score.textContent = two(sum(question, [i, j]));
      tag.replaceChildren(...names.map((text) => el("b", { text })));
      one.className = ["tv-cell", ...names.map((name) => `tv-${name}`)].join(" ");
      one.tabIndex = now ? 0 : -1;
      one.setAttribute("aria-selected", String(now));
      heat(one, sum(question, [i, j]), ends);
    }));
  }

  return { node, draw };
}
