// Tables with scores, against Python's: test/scored.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { best, rank, ranked, readOut, same, share, sum } from "../attnlab_widgets/table_view/scored.js";

const known = JSON.parse(readFileSync(new URL("./scored.json", import.meta.url), "utf8"));

test("sums and best cell are Python's", () => {
  assert.ok(known.length >= 3);
  for (const { questions, best: firsts, scores } of known) {
    questions.forEach((question, at) => {
      assert.deepEqual(best(question), firsts[at]);
      scores[at].forEach((line, row) => line.forEach((score, column) => assert.equal(sum(question, [row, column]), score)));
    });
  }
});

test("cells in the order of their scores, and the number of each", () => {
  for (const { questions } of known) {
    for (const question of questions) {
      const cells = ranked(question);
      assert.deepEqual(cells[0], best(question));
      cells.slice(1).forEach((cell, at) => assert.ok(sum(question, cells[at]) >= sum(question, cell)));
      cells.forEach((cell, at) => assert.ok(rank(question, cell) <= at + 1));
      assert.equal(rank(question, cells[0]), 1);
    }
  }
  const question = { rows: [1, 3], columns: [2, 1] };
  assert.deepEqual(ranked(question), [[1, 0], [1, 1], [0, 0], [0, 1]]);
  assert.deepEqual([[0, 0], [0, 1], [1, 0], [1, 1]].map((cell) => rank(question, cell)), [3, 4, 1, 2]);
});

test("the readout of a cell adds up", () => {
  const { questions } = known[0];
  assert.equal(readOut(questions[0], [0, 1]), "Row 0, column “flows into”: −1.20 + 2.80 = 1.60, number 7 of 20");
});

test("where a score lies, and which cells are the same", () => {
  assert.deepEqual([share(2, 2, 4), share(3, 2, 4), share(4, 2, 4), share(5, 5, 5)], [0, 0.5, 1, 1]);
  assert.equal(same([1, 2], [1, 2]), true);
  assert.equal(same([1, 2], [2, 1]), false);
  assert.equal(same([1, 2], null), false);
});
