// What the page reads of the switches, against Python: test/switches.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { countRight, kindsIn, lampWidth, mapAt, ordered, sentence, silentIn, stateOf } from "../attnlab_widgets/head_switchboard/switches.js";

const known = JSON.parse(readFileSync(new URL("./switches.json", import.meta.url), "utf8"));

test("sentences, counts and maps are Python's for every choice", () => {
  for (const { board, maps, states } of known) {
    const cells = board.tokens.length ** 2;
    states.forEach(({ silent, said, right, maps: sums }, state) => {
      assert.equal(stateOf(board.heads, silent), state);
      assert.deepEqual(silentIn(board.heads, state), silent);
      assert.equal(sentence(board, silent), said);
      assert.equal(countRight(board, state), right);
      board.heads.forEach((_, bit) => {
        const start = mapAt(board, bit, state);
        assert.equal(maps.slice(start, start + cells).reduce((sum, level) => sum + level, 0), sums[bit]);
      });
    });
  }
});

test("a lamp says what changed", () => {
  const board = { coming: [1, 2, 3, 4], guesses: [[1, 2, 0, 0], [1, 0, 3, 0]] };
  assert.deepEqual(kindsIn(board, 1), ["right", "lost", "gained", "never"]);
  assert.deepEqual(kindsIn(board, 0), ["right", "right", "never", "never"]);
});

test("choices with fewer silent heads come first", () => {
  assert.deepEqual(ordered(3), [0, 1, 2, 4, 3, 5, 6, 7]);
  assert.equal(new Set(ordered(8)).size, 256);
});

test("lamps fill equal lines", () => {
  assert.equal(lampWidth(32, 961), 26);
  assert.equal(lampWidth(32, 666), 37);
  assert.equal(lampWidth(4, 961), 44);
});
