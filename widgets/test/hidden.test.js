// Which place WhatIsHidden reads out: the same as Python's, where an objective is chosen anew.
import assert from "node:assert/strict";
import test from "node:test";
import { Study } from "../attnlab_widgets/what_is_hidden/study.js";

/** Two tokens, a sign that is not scored, and a sign that is, as MPNet has them. */
const asked = [[0, -1, 0, 0], [1, -1, 0, 1], [2, -1, 5, -1], [3, 1, 5, -1]];
const row = (name) => ({ name, rate: false, span: false, draws: Array(3).fill({ asked, said: "", whole: "" }) });

function studied() {
  const values = { objective: "first", rate: 0.15, span: 3, seed: 0, place: 1 };
  values._hidden = { objectives: [row("first"), row("second")], tokens: ["a", "b"], words: [] };
  const model = { get: (name) => values[name], set: (name, value) => (values[name] = value), save_changes() {} };
  const study = new Study(model);
  study.read();
  return { study, values };
}

test("an objective chosen without a token begins at its first scored place, not at a sign", () => {
  const { study, values } = studied();
  study.choose(1);
  assert.deepEqual([values.objective, values.place], ["second", 3]);
});

test("a token of the text leads to its place", () => {
  const { study, values } = studied();
  study.choose(1, 0);
  assert.deepEqual([values.objective, values.place], ["second", 0]);
});
