// The page's arithmetic against Python's: test/positions.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { apart, curveOf, opened, rangeOf, ticks } from "../attnlab_widgets/position_explorer/distances.js";
import { frequencies, pairsOf, wrapped } from "../attnlab_widgets/position_explorer/rotation.js";

const known = JSON.parse(readFileSync(new URL("./positions.json", import.meta.url), "utf8"));
const close = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);

test("the score of a turned query and key is Python's", () => {
  for (const { query, key, score } of known.pairs) {
    const pairs = pairsOf(query, key, known.phases, 6, known.base);
    close(pairs.reduce((sum, { adds }) => sum + adds, 0) / Math.sqrt(6), score);
  }
});

test("moving both leaves every difference of angles", () => {
  const near = pairsOf(9, 4, known.phases, 6, known.base);
  const far = pairsOf(41, 36, known.phases, 6, known.base);
  near.forEach(({ between, query }, t) => {
    close(between, far[t].between);
    assert.ok(Math.abs(query - far[t].query) > 0.01, "the arrows themselves have turned");
  });
});

test("frequencies fall from 1 radian per position", () => {
  assert.deepEqual(frequencies(4, 100), [1, 0.1]);
});

test("an angle is brought to (−π, π]", () => {
  close(wrapped(3 * Math.PI), Math.PI);
  close(wrapped(-0.5), -0.5);
  close(wrapped(7), 7 - 2 * Math.PI);
  close(wrapped(3.5), 3.5 - 2 * Math.PI);
});

test("curves are Python's means of diagonals", () => {
  const n = 7;
  const numbers = [];
  for (const slope of [1, 2, 0.5]) for (let i = 0; i < n; i += 1) for (let j = 0; j < n; j += 1) numbers.push(j > i ? NaN : -slope * (i - j));
  for (let i = 0; i < n; i += 1) for (let j = 0; j < n; j += 1) numbers.push(j > i ? NaN : j);
  const bytes = new Uint8Array(Float32Array.from([99, ...numbers]).buffer);
  const view = new DataView(bytes.buffer, 4); // not at the start of its buffer
  const schemes = opened(view, [{ name: "falling", heads: 3, at: 0 }, { name: "even", heads: 1, at: 147 }], n);
  curveOf(schemes.get("falling"), 2).forEach((score, t) => close(score, known.curves[0][t]));
  curveOf(schemes.get("even"), 0).forEach((score, t) => close(score, known.curves[1][t]));
});

test("labels move apart and stay on the page", () => {
  const placed = apart([10, 10, 12, 98], 5, 0, 100);
  const sorted = [...placed].sort((a, b) => a - b);
  sorted.slice(1).forEach((value, at) => assert.ok(value - sorted[at] >= 5 - 1e-9));
  assert.ok(Math.max(...placed) <= 100);
  assert.deepEqual(apart([99, 99], 5, 0, 100), [95, 100]);
});

test("ranges hold zero, ticks are round", () => {
  assert.deepEqual(rangeOf([[0, 0]]), [-0.06, 0.06]);
  assert.ok(rangeOf([[2, 3]])[0] < 0);
  assert.deepEqual(ticks([-1.1, 1.1], 4), [-1, 0, 1].map((t) => t));
});
