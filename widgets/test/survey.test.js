import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { arranged, arrangedForms, arrangedParts, formCells, power, times, within } from "../attnlab_widgets/survey/rows.js";

const { rows, cases } = JSON.parse(readFileSync(new URL("survey.json", import.meta.url)));

test("rows are filtered and sorted as in Python", () => {
  for (const [chosen, names] of cases) assert.deepEqual(arranged(rows, chosen).map(({ name }) => name), names);
});

const timed = JSON.parse(readFileSync(new URL("forms.json", import.meta.url)));

test("forms that were timed on a GPU are filtered, sorted and told as in Python", () => {
  for (const [chosen, names] of timed.cases) assert.deepEqual(arrangedForms(timed.rows, chosen).map(({ name }) => name), names);
  assert.deepEqual(timed.rows.map(formCells), timed.cells);
});

test("an order of the forms leaves the mechanisms as they are", () => {
  assert.deepEqual(arranged(rows, { order: "share", down: true, family: "", search: "" }).map(({ name }) => name), rows.map(({ name }) => name));
});

test("rows without a value come last, whatever the direction", () => {
  const three = [{ name: "a", title: "a", family: "f", measured: 1.5 }, { name: "b", title: "b", family: "f", measured: null }, { name: "c", title: "c", family: "f", measured: 2 }];
  const order = (down) => arranged(three, { order: "measured", down, family: "", search: "" }).map(({ name }) => name).join("");
  assert.deepEqual([order(false), order(true)], ["acb", "cab"]);
});

test("numbers in words", () => {
  assert.deepEqual([power(1.234), power(null), within(1.5, [1.25, 1.75]), within(null, null)], ["1.23", "–", "1.50 (1.25 to 1.75)", "–"]);
  assert.deepEqual([times(1.304, [1.2, 1.4]), times(null, null)], ["1.30 ×", "not measured"]);
  assert.deepEqual([times(1.304, [0.99, 1.4]), times(0.9, [0.8, 0.98])], ["≈ 1 ×", "0.90 ×"]);
});

test("pages of another shelf are filtered by role and words, and sorted by name and year", () => {
  const page = (name, role, year) => ({ name, title: name.toUpperCase(), role, year });
  const pages = [page("b", "join", 2020), page("a", "join", 2022), page("c", "feed", 2017)];
  const names = (chosen) => arrangedParts(pages, { shelf: "join", order: "claimed", down: false, search: "", ...chosen }).map(({ name }) => name).join("");
  assert.deepEqual([names({}), names({ order: "name" }), names({ order: "year", down: true }), names({ shelf: "feed" }), names({ search: "A" })], ["ba", "ab", "ab", "c", "a"]);
});
