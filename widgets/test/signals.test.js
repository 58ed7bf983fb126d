// The signal lab against Python's numbers: test/signals.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { allowed, cut, extents, responded, announcement, shortStep, spectrum, stroked, typed } from "../attnlab_widgets/signal_lab/signals.js";

const known = JSON.parse(readFileSync(new URL("./signals.json", import.meta.url), "utf8"));
const near = (a, b, what) => assert.ok(Math.abs(a - b) < 1e-9, `${what}: ${a} is not ${b}`);
const same = (found, wanted, what) => {
  assert.equal(found.length, wanted.length, what);
  found.forEach((value, at) => (Array.isArray(value) ? same(value, wanted[at], `${what} ${at}`) : near(value, wanted[at], `${what} ${at}`)));
};

test("decays, kernel, states, output, spectrum and sentence are Python's", () => {
  assert.ok(known.length >= 10);
  for (const one of known) {
    const found = responded(one);
    same(found.modes.map(({ decay }) => decay), one.decays, "decay");
    same(found.kernel, one.kernel, "kernel");
    same(found.states, one.states, "states");
    same(found.output, one.output, "output");
    same(spectrum(found.kernel), one.spectrum, "spectrum");
    assert.equal(announcement(one, found), one.said);
  }
});

test("the output to an impulse is the kernel, and the states add up to the output", () => {
  for (const one of known.filter(({ taps }) => !taps.length)) {
    const impulse = one.signal.map((_, k) => (k ? 0 : 1));
    const { kernel, output } = responded({ ...one, signal: impulse });
    same(output, kernel, "output");
    const plain = { ...one, weights: one.poles.map(() => [1, 0]), skip: 0 };
    const { states, output: sums } = responded(plain);
    sums.forEach((y, k) => near(2 * states.reduce((sum, row) => sum + row[k], 0), y, "sum"));
  }
});

test("a pole stays left of the imaginary axis", () => {
  assert.deepEqual(allowed([-0.5, 2]), { pole: [-0.5, 2], refused: false });
  assert.deepEqual(allowed([0.5, -2]), { pole: [0, -2], refused: true });
  assert.deepEqual(allowed([0, 5000]), { pole: [0, 1000], refused: false });
});

test("typed numbers, or why not", () => {
  assert.deepEqual(typed(" 1, −2.5;3e-1\n 0 ", 4), { numbers: [1, -2.5, 0.3, 0] });
  assert.match(typed("1 2 three 4", 4).error, /“three” is not a number/);
  assert.match(typed("1 2 3", 4).error, /Type 4 to 128 numbers; these are 3/);
  assert.match(typed("", 1).error, /these are 0/);
  assert.match(typed("0 ".repeat(129), 4).error, /these are 129/);
  assert.match(typed("101 0 0 0", 4).error, /beyond ±100/);
});

test("a stroke draws a straight line in both directions, within bounds", () => {
  const zeros = [0, 0, 0, 0, 0];
  assert.deepEqual(stroked(zeros, { at: 1, value: 0.2 }, { at: 3, value: 0.6 }), [0, 0.2, 0.4, 0.6, 0]);
  assert.deepEqual(stroked(zeros, { at: 3, value: 0.6 }, { at: 1, value: 0.2 }), [0, 0.2, 0.4, 0.6, 0]);
  assert.deepEqual(stroked(zeros, { at: 2, value: 300 }, { at: 2, value: 300 }), [0, 0, 100, 0, 0]);
  assert.deepEqual(zeros, [0, 0, 0, 0, 0]);
});

test("the plane has room around its poles, and a step has no needless zeros", () => {
  assert.deepEqual(extents([[-0.5, 2]]), [8, 2]);
  assert.deepEqual(extents([[-0.5, 2], [-3, -20]]), [26, 6]);
  assert.deepEqual([0.1, 1, 10, 0.0001].map(shortStep), ["0.1", "1", "10", "0.0001"]);
});

test("what a token takes of itself is cut where it would hide the rest", () => {
  assert.deepEqual(cut([-1.714, 0.2, -0.1]), [-0.2, 0.2, -0.1]);
  assert.deepEqual(cut([0.5, 0.2, -0.3]), [0.5, 0.2, -0.3]);
  assert.deepEqual(cut([3, 0, 0]), [3, 0, 0]);
  assert.deepEqual(cut([3]), [3]);
});
