// TableView: which cell answers a question, when rows and columns are scored apart.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./table_view.css";
import { two } from "#lib/plane.js";
import { best, ranked, readOut, sum } from "./scored.js";
import { bar } from "#parts/bar.js";
import { choice, el } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountOn } from "#parts/page_model.js";
import { headed } from "#parts/table.js";
import { heatTable } from "./heat.js";

const TRAITS = ["question", "cell"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const MOST = 200; // rows of the tables of numbers
const HELP = `Two models read the question: one scores every row, the other every column. A table of r rows and c columns needs r + c scores, not r · c.

The number in a cell is the sum of the scores of its row and of its column, so the best cell is where the best row and the best column meet. The deeper a colour, the higher the score among the rows, the columns or the cells.

Where the answer is marked elsewhere, look which of the two scores points away from it. Click a cell, or use the arrow keys, to see its sum below the table.`;

function render({ model, el: host }) {
  const view = viewOf("attnlab-table", "Table view", "table-view");
  const { root } = view;
  const questions = model.get("_questions");
  const set = (changes) => {
    for (const [name, value] of Object.entries(changes)) model.set(name, value);
    model.save_changes();
  };
  const ask = (at) => set({ question: at, cell: best(questions[at]) });
  const question = choice("question", "question", questions.map(({ text }, at) => [at, `${at}: ${text}`]), (value) => ask(Number(value)));
  const controls = bar({ frequent: [question.node], help: HELP });
  const asked = el("p", { class: "tv-asked", "data-testid": "asked" });
  const summary = el("p", { class: "av-summary tv-said", "data-testid": "summary" });
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": "readout" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const heat = heatTable({ chosen: () => model.get("cell"), choose: (cell) => set({ cell }) });
  const tables = el("div", { class: "av-tables" });
  const twin = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), tables);
  twin.addEventListener("toggle", () => view.changed());
  root.append(
    el("style", { text: base + barStyle + style }),
    el("header", { class: "av-top" }, controls.node, asked, summary),
    heat.node, readout, twin, spoken,
  );
  host.replaceChildren(root);

  let [reading, heard] = [null, ""];
  function readAloud(said) {
    if (said === heard) return;
    heard = said;
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = said), QUIET);
  }

  function drawTables(now) {
    if (!twin.open) return;
    const cells = ranked(now).slice(0, MOST).map((cell, at) => {
      const [row, column] = cell;
      return [at + 1, row, now.header[column], now.cells[row][column], ...[now.rows[row], now.columns[column], sum(now, cell)].map((x) => two(x, 3))];
    });
    const more = now.rows.length * now.columns.length > MOST ? `The first ${MOST}.` : "";
    const lines = questions.map((one, at) => [at, one.text, one.said]);
    tables.replaceChildren(
      headed("Cells, the highest score first", ["number", "row", "column", "cell", "score of the row", "score of the column", "sum"], cells, "cells-table", more),
      headed("Questions", ["number", "question", "what is found"], lines, "questions-table"),
    );
  }

  function draw() {
    const at = model.get("question");
    const now = questions[at];
    question.select.value = at;
    question.node.hidden = questions.length === 1;
    asked.textContent = now.text;
    summary.textContent = now.said;
    readout.textContent = readOut(now, model.get("cell"));
    readAloud(`${now.text} ${summary.textContent}`);
    heat.draw(now);
    drawTables(now);
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["width", { wide: 860, narrow: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountOn(document, { render }) };
