import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { arranged, power, within } from "../src/lib/survey.js";

const { rows, cases } = JSON.parse(readFileSync(new URL("survey.json", import.meta.url)));

test("rows are filtered and sorted as in Python", () => {
  for (const [chosen, names] of cases) assert.deepEqual(arranged(rows, chosen).map(({ name }) => name), names);
});

test("rows without a value come last, whatever the direction", () => {
  const three = [{ name: "a", title: "a", family: "f", measured: 1.5 }, { name: "b", title: "b", family: "f", measured: null }, { name: "c", title: "c", family: "f", measured: 2 }];
  const order = (down) => arranged(three, { order: "measured", down, family: "", search: "" }).map(({ name }) => name).join("");
  assert.deepEqual([order(false), order(true)], ["acb", "cab"]);
});

test("numbers in words", () => {
  assert.deepEqual([power(1.234), power(null), within(1.5, [1.25, 1.75]), within(null, null)], ["1.23", "–", "1.50 (1.25 to 1.75)", "–"]);
});
