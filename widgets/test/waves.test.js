import assert from "node:assert/strict";
import test from "node:test";
import { at, largest, period, together, wave } from "../attnlab_widgets/complex_words/waves.js";

const TABLES = { amplitude: [[2, -3], [1, 0.5]], frequency: [[Math.PI / 2, 0], [-1, 2]], phase: [[Math.PI, 0], [0.25, 0]] };

test("a word is r·exp(i(ωp + θ))", () => {
  const [re, im] = at(wave(TABLES, 0, 0), 1); // 2·exp(i·3π/2) = -2i
  assert.ok(Math.abs(re) < 1e-12);
  assert.ok(Math.abs(im + 2) < 1e-12);
  assert.deepEqual(wave(TABLES, 1, 0), { r: 1, w: -1, theta: 0.25 });
});

test("two words add as arrows do", () => {
  const one = { r: 2, w: 0, theta: 0 };
  assert.ok(Math.abs(together(one, { r: 1, w: Math.PI, theta: 0 }, 1) - 1) < 1e-12);
  assert.ok(Math.abs(together(one, { r: 1, w: Math.PI, theta: 0 }, 2) - 3) < 1e-12);
});

test("what is said of a frequency", () => {
  assert.equal(period({ w: 0 }), "does not turn");
  assert.equal(period({ w: -Math.PI }), "one turn in 2.0 positions");
  assert.equal(period({ w: 1e-5 }), "one turn in more than 9,999 positions");
  assert.equal(largest(TABLES, [0]), 3);
  assert.equal(largest({ amplitude: [[0, 0]] }, [0]), 1e-6);
});
