// The rows, maps and sentences of KernelLab against Python's: test/kernels.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { approximate, countOf, isRandom, seenBy } from "../attnlab_widgets/kernel_lab/approximation.js";
import { rowsOf } from "../attnlab_widgets/kernel_lab/draws.js";
import { Study } from "../attnlab_widgets/kernel_lab/study.js";
import { axesAround, placeOf, sharesOf, shareSaid } from "../attnlab_widgets/kernel_lab/axes.js";
import { description, digitsOf, pairSaid, percent, placed, reach, temperature } from "../attnlab_widgets/kernel_lab/words.js";
import { modelOf } from "../src/parts/page_model.js";

const known = JSON.parse(readFileSync(new URL("./kernels.json", import.meta.url), "utf8"));
const kinds = Object.fromEntries(known.kinds);

/** Apart by a billionth of the largest of them at most. */
function near(found, wanted, what) {
  assert.equal(found.length, wanted.length, what);
  const most = wanted.reduce((size, value) => Math.max(size, Math.abs(value)), 1);
  wanted.forEach((value, at) => assert.ok(Math.abs(found[at] - value) <= 1e-9 * most, `${what} ${at}: ${found[at]} is not ${value}`));
}

test("the rows are those that PyTorch draws for the seed", () => {
  const drawn = known.cases.filter(({ choice }) => isRandom(choice));
  assert.ok(drawn.length >= 12);
  for (const { head, choice, rows } of drawn) near(rowsOf(choice, head.d), rows, JSON.stringify(choice));
});

test("maps, errors and sentences are Python's", () => {
  assert.equal(new Set(known.cases.map(({ choice }) => choice.feature)).size, known.kinds.length);
  for (const one of known.cases) {
    const found = approximate(one.head, one.choice);
    const what = JSON.stringify(one.choice);
    for (const name of ["exact", "map", "misplaced"]) near(found[name], one[name], `${what} ${name}`);
    near([found.error], [one.error], `${what} error`);
    assert.deepEqual([found.negative, found.empty, countOf(one.choice, one.head.d)], [one.negative, one.empty, one.count], what);
    assert.equal(description(found, one.choice, one.head, kinds), one.said);
    assert.equal(reach(found), one.reach);
  }
});

test("numbers are said as Python says them", () => {
  for (const [share, said] of known.percents) assert.equal(percent(share), said);
  for (const [value, said] of known.temperatures) assert.equal(temperature(value), said);
  for (const [values, digits] of known.digits) assert.equal(digitsOf(values), digits);
});

test("axes grow to the points as Python's do", () => {
  for (const { points, axes, places, shares } of known.axes) {
    const found = axesAround(points);
    near(Object.values(found), [axes.smallest, axes.largest, axes.least, axes.most], "axes");
    points.forEach((point, at) => near(placeOf(found, ...point), places[at], `place of ${point}`));
    assert.deepEqual(sharesOf(found).map(shareSaid), shares);
  }
});

test("a position that is all of a name is said once", () => {
  assert.deepEqual([placed("a", 4), placed("4", 4), placed("key 4", 4), placed("4", 5)], ["a (4)", "4", "key 4", "4 (5)"]);
});

test("a query sees the keys up to its own, aligned at the last", () => {
  assert.deepEqual([0, 1, 2].map((i) => seenBy(i, { n: 3, m: 5, causal: true })), [3, 4, 5]);
  assert.equal(seenBy(0, { n: 3, m: 5, causal: false }), 5);
});

function study(changes = {}) {
  const { n, m, d, names, q, k } = known.cases[0].head;
  const setting = { head: "one", feature: "positive", features: 8, orthogonal: true, seed: 0, temperature: 1 };
  const told = { heads: [{ name: "one", n, m, d, names }], causal: true, kinds: known.kinds, numbers: [4, 8, 16], temperatures: [1, 2], lengths: [64], kept: 3, seeds: 9999 };
  const state = { ...setting, length: 64, tried: [setting], _told: told, _numbers: new DataView(new Float32Array([...q, ...k]).buffer), _times: {}, _measuring: "", _trouble: "", _live: false, ...changes };
  return new Study(modelOf(state));
}

test("what a slider passes is not kept, what it stops at is, once and as the newest", () => {
  const one = study();
  for (const features of [16, 4, 16, 8, 16]) {
    one.set({ features });
    one.read();
  }
  assert.equal(one.tried.length, 1);
  const settings = () => one.model.get("tried").map(({ features, seed }) => [features, seed]);
  one.keep();
  one.keep();
  assert.deepEqual(settings(), [[8, 0], [16, 0]]);
  one.set({ features: 8 });
  one.keep();
  assert.deepEqual(settings(), [[16, 0], [8, 0]]);
  for (const seed of [1, 2]) {
    one.set({ seed });
    one.keep();
  }
  assert.deepEqual(settings(), [[8, 0], [8, 1], [8, 2]]);
});

test("temperatures that read alike at two digits are two settings, and said apart", () => {
  const one = study({ temperature: 0.714 });
  one.keep();
  one.set({ temperature: 0.711 });
  one.keep();
  assert.deepEqual(one.model.get("tried").map(({ temperature }) => temperature), [1, 0.714, 0.711]);
  one.read();
  assert.match(one.said(one.state), /temperature 0\.711$/);
  assert.match(one.sentence, /temperature 0\.711: /);
});

test("settings with the same effect have one error, and the curve those of all numbers", () => {
  const one = study();
  assert.deepEqual(one.curve.map(({ features }) => features), [4, 8, 16]);
  assert.ok(!one.isKnown(one.curve[0]));
  assert.equal(one.error(one.curve[1]), one.seen.error);
  one.set({ feature: "elu", features: 50 });
  one.read();
  assert.equal(one.curve.length, 1);
  assert.equal(one.keyOf({ ...one.state, seed: 7, features: 4 }), one.key);
  one.set({ feature: "positive" });
  one.read();
  assert.deepEqual(one.curve.map(({ features }) => features), [4, 8, 16, 50]);
});

test("the pair that is read first is the one that differs most", () => {
  const one = study();
  const { i, j } = one.shownCell;
  const apart = one.seen.map.map((value, at) => Math.abs(value - one.seen.exact[at]));
  assert.equal(apart[i * one.head.m + j], Math.max(...apart));
  assert.equal(one.pair, `Most apart: ${pairSaid(one.seen, one.head, { i, j })}`);
  one.cell = { i: 2, j: 0 };
  assert.match(one.pair, /^t2 \(2\) to key 0: exact \d\.\d\d, by features \d\.\d\d, difference −?\d\.\d\d\. Of this row \d+(\.\d)? % is in the wrong place\.$/);
});

test("a saved file shows the time that was measured, and asks for none", () => {
  const one = study({ _times: { "positive 8 3 64": { said: "fast" } } });
  assert.deepEqual(one.speed(assert.fail), { said: "fast", alone: true });
  one.set({ features: 16 });
  one.read();
  assert.match(one.speed(assert.fail).said, /where Python runs/);
});
