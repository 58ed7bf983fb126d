import assert from "node:assert/strict";
import test from "node:test";
import { arranged, listed, range } from "#lib/heads.js";
import { moved } from "#lib/keys.js";
import { holding, labelStep, shifted, whole, zoomed } from "#lib/window.js";
import { changes, exactly, signedWeight, weight } from "#lib/words.js";
import { level, lookup } from "#lib/colours.js";

test("heads: largest first, those without a value last, those below left out", () => {
  const layers = [{ h: 2 }, { h: 3 }];
  const statistics = [{ first: [0.1, 0.7] }, { first: [0.4, null, 0.2] }];
  const all = listed(layers, statistics, "first");
  assert.deepEqual(arranged(all, "first", null).map((x) => [x.layer, x.head]), [[0, 1], [1, 0], [1, 2], [0, 0], [1, 1]]);
  assert.deepEqual(arranged(all, "first", 0.2).map((x) => [x.layer, x.head]), [[0, 1], [1, 0], [1, 2]]);
  assert.deepEqual(range(all), [0.1, 0.7]);
  assert.equal(arranged(listed(layers, statistics, "layer"), "layer", 0.9).length, 5);
});

test("arrow keys stay inside", () => {
  assert.equal(moved(0, 7, "ArrowLeft", 3), 0);
  assert.equal(moved(2, 7, "ArrowDown", 3), 5);
  assert.equal(moved(5, 7, "ArrowDown", 3), 5);
  assert.equal(moved(3, 7, "ArrowUp", 3), 0);
  assert.equal(moved(3, 7, "ArrowRight"), null);
  assert.equal(moved(3, 7, "End"), 6);
  assert.equal(moved(3, 47, "PageDown"), 13);
  assert.equal(moved(3, 7, "a", 3), null);
});

test("the window of the matrix never leaves it", () => {
  const all = whole(13, 17);
  const near = zoomed(all, 0.5, 12, 1, 13, 17);
  assert.ok(near.i0 >= 0 && near.i1 <= 13 && near.j0 >= 0 && near.j1 <= 17);
  assert.equal(near.i1 - near.i0, 6.5);
  assert.deepEqual(zoomed(near, 100, 5, 5, 13, 17), all);
  const out = zoomed({ i0: 6.5, i1: 13, j0: 0, j1: 17 }, 1.5, 7, 5, 13, 17);
  assert.deepEqual([out.i0, out.i1], [3.25, 13]);
  const moved = shifted(near, 99, -99, 13, 17);
  assert.equal(moved.i1, 13);
  assert.equal(moved.j0, 0);
  const held = holding({ i0: 0, i1: 4, j0: 0, j1: 4 }, 9, 2, 13, 17);
  assert.deepEqual(held, { i0: 6, i1: 10, j0: 0, j1: 4 });
});

test("labels have room", () => {
  assert.equal(labelStep(20, 14), 1);
  assert.equal(labelStep(3, 14), 5);
  assert.equal(labelStep(0.1, 14), 200);
});

test("numbers say no more than is known", () => {
  assert.equal(weight(0.12345), "0.123");
  assert.equal(weight(0.12345, 0.02), "0.12");
  assert.equal(weight(0.000123), "0.000123");
  assert.equal(weight(0), "0");
  assert.equal(signedWeight(-0.25), "−0.250");
  assert.equal(exactly({ w: 0.25, error: 0.001 }), "0.250 ± 0.001");
  assert.match(exactly({ below: 0.01 }), /^at most 0\.0100/);
});

test("what is not raw is said", () => {
  assert.equal(changes({ hideFirst: false, weighted: false }), "");
  assert.match(changes({ hideFirst: true, weighted: true }), /value norms.*first token hidden.*renormalised/);
});

test("zero is the middle of the signed scale, the largest its end", () => {
  assert.equal(level(0, 1, true), 128);
  assert.equal(level(-1, 1, true), 0);
  assert.equal(level(0.25, 1, false), 128);
  assert.equal(level(0.3, 0, false), 0);
  const luminance = (word) => 0.2126 * (word & 255) + 0.7152 * ((word >> 8) & 255) + 0.0722 * ((word >> 16) & 255);
  const amounts = [...lookup(false, false)].map(luminance);
  assert.ok(amounts.every((value, at) => at === 0 || value > amounts[at - 1] - 1.5));
  assert.ok(amounts[255] - amounts[0] > 150);
});
