// What the page reads of the switches, against Python: test/switches.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { few, isSilent, meanParts, signed, spokenOf, wordsOf } from "../attnlab_widgets/head_switchboard/parts.js";
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

test("the parts of a logit are Python's for every choice, and sum to the logit above the mean", () => {
  for (const { board, writers, states } of known) {
    const floats = new Float32Array(Uint8Array.from(Buffer.from(writers, "hex")).buffer);
    assert.equal(floats.length, states.length * board.coming.length * (board.writers.parts.length + 2));
    states.forEach(({ parts, third }, state) => {
      for (const [wanted, at] of [[parts, null], [third, 3]]) {
        const found = meanParts(board, floats, state, at);
        found.values.forEach((value, k) => assert.ok(Math.abs(value - wanted[k]) < 1e-4));
        assert.ok(Math.abs(found.sum - (found.logit - found.mean)) < 1e-4);
        const { line } = wordsOf(board, found, { at, state });
        assert.ok(line.startsWith(`The bars sum to ${signed(found.sum)} = logit `));
      }
    });
  }
});

test("small parts are one where there is no room, and nothing of the sum is lost", () => {
  const parts = [..."abcde"].map((name) => ({ name, short: name }));
  const shown = few(parts, [0.5, -4, 0.25, 3, -0.125], 3);
  assert.deepEqual(shown.map(({ name, value }) => [name, value]), [["b", -4], ["d", 3], ["3 others", 0.625]]);
  assert.equal(few(parts, [1, 2, 3, 4, 5], 5).length, 5);
});

test("every part of a silent head is marked, and none where the bars are of all heads on", () => {
  const parts = [{ name: "embedding" }, { name: "head 0.1", switch: 1 }, { name: "head 1.1", switch: 1 }, { name: "head 1.0", switch: 0 }];
  const marked = (choices, state) => parts.filter((part) => isSilent({ writers: { parts, choices } }, part, state)).map(({ name }) => name);
  assert.deepEqual(marked(4, 2), ["head 0.1", "head 1.1"]);
  assert.deepEqual(marked(4, 0), []);
  assert.deepEqual(marked(1, 2), []);
  for (const { board } of known) {
    board.heads.forEach((head, bit) => {
      const names = board.writers.parts.filter((part) => part.switch === bit).map(({ name }) => name);
      assert.deepEqual(names, [`head ${head.join(".")}`]);
    });
  }
});

test("what is read out has the heading, the two largest parts and the sum", () => {
  const parts = ["embedding", "head 1.0", "feed-forward 1"].map((name) => ({ name }));
  const board = { coming: [0, 1], repeats: [false, true], tokens: ["a", "b", "c"], unit: "letter", writers: { parts, choices: 1 } };
  const found = meanParts(board, new Float32Array([0, 0, 0, 0, 0, 0.5, -2, 4, 3, 0.5]), 0, 2);
  assert.equal(spokenOf(board, found, { at: 2, state: 0 }), "Who writes “c” here? Most: feed-forward 1 +4.00, head 1.0 −2.00. The bars sum to +2.50 = logit 3.00 less 0.50, the mean of all logits.");
});

test("what rounds to nothing has no sign", () => {
  assert.deepEqual([0.004, -0.004, -0.006, 2.5].map((value) => signed(value)), ["0", "0", "−0.01", "+2.50"]);
});

test("a page that holds one choice alone says so when heads are silent", () => {
  const board = { coming: [0, 1], repeats: [false, true], tokens: ["a", "b", "c"], unit: "letter", writers: { parts: [{ name: "x" }], choices: 1 } };
  const found = meanParts(board, new Float32Array([1, 1, 0, 3, 2, -1]), 1);
  assert.deepEqual([found.values, found.logit, found.mean], [[3], 2, -1]);
  assert.match(wordsOf(board, found, { at: null, state: 1 }).line, /With all heads on/);
  assert.doesNotMatch(wordsOf(board, found, { at: null, state: 0 }).line, /With all heads on/);
  assert.equal(wordsOf(board, found, { at: 2, state: 0 }).heading, "Who writes “c” here?");
});
