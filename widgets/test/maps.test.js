import assert from "node:assert/strict";
import test from "node:test";
import { difference, mapOf, maskPicture, pool, strongest } from "#lib/maps.js";

const close = (got, wanted, within = 0.006) =>
  got.forEach((value, at) => assert.ok(Math.abs(value - wanted[at]) < within, `${got} is not ${wanted}`));

const code = (w, scale) => Math.round(255 * Math.sqrt(w / scale));

function layerOf(rows, norms = null) {
  const first = rows.map(([w]) => w);
  const scales = rows.map(([, ...rest]) => Math.max(...rest) || 1);
  const codes = rows.flatMap(([, ...rest], i) => [0, ...rest.map((w) => code(w, scales[i]))]);
  const [n, m] = [rows.length, rows[0].length];
  return { h: 1, n, m, whole: true, signed: false, norms, first, scales, codes };
}

const rows = [
  [0.5, 0.3, 0.2],
  [0.8, 0.1, 0.1],
];

test("the plain map is the weights", () => {
  const map = mapOf(layerOf(rows), 0, {});
  close([...map.values], rows.flat());
  assert.ok(Math.abs(map.value(1, 0).w - 0.8) < 1e-6);
  assert.ok(map.value(0, 1).error > 0);
  assert.deepEqual(map.row(0).map(({ j }) => j), [0, 1, 2]);
  close(map.column(1).map(({ w }) => w), [0.3, 0.1]);
});

test("without the first token rows sum to one again", () => {
  const map = mapOf(layerOf(rows), 0, { hideFirst: true });
  close([...map.values], [0, 0.6, 0.4, 0, 0.5, 0.5]);
});

test("value norms weight the keys and rows sum to one again", () => {
  const map = mapOf(layerOf(rows, [1, 2, 7]), 0, { weighted: true });
  close([...map.values], [0.2, 0.24, 0.56, 0.8 / 1.7, 0.2 / 1.7, 0.7 / 1.7]);
});

test("a sink leaves the precision of the rest, and hiding it magnifies the error with the weight", () => {
  const sink = [0.98, 0.011, 0.009];
  const layer = layerOf([sink]);
  const map = mapOf(layer, 0, {});
  assert.ok(Math.abs(map.value(0, 2).w - 0.009) < 0.00004);
  assert.equal(map.value(0, 0).error, 0);
  const hidden = mapOf(layer, 0, { hideFirst: true }).value(0, 2);
  assert.ok(Math.abs(hidden.w - 0.45) <= hidden.error);
  assert.ok(hidden.error > 40 * map.value(0, 2).error);
});

test("a row that looks at the first token alone is empty without it, not NaN", () => {
  const map = mapOf(layerOf([[1, 0, 0]]), 0, { hideFirst: true });
  close([...map.values], [0, 0, 0], 1e-9);
});

test("a difference is second minus first, with both errors", () => {
  const first = mapOf(layerOf(rows), 0, {});
  const second = mapOf(layerOf([rows[1], rows[0]]), 0, {});
  const map = difference(first, second);
  close([...map.values], [0.3, -0.2, -0.1, -0.3, 0.2, 0.1]);
  assert.ok(map.signed);
  assert.equal(map.value(0, 0).error, first.value(0, 0).error + second.value(0, 0).error);
});

test("pixels show the weight of largest size under them", () => {
  const values = Float32Array.from([1, -5, 2, 3, 4, 0, 0, 6, 7, 1, -9, 2]);
  assert.deepEqual([...pool(values, 4, 0, 3, 0, 4, 2, 1)], [7, -9]);
  assert.deepEqual([...pool(values, 4, 0, 2, 0, 2, 2, 2)], [1, -5, 4, 0]);
});

test("a pixel is masked where no pair under it is allowed, and there is a cell under each", () => {
  const rows = [[1, 0, 0, 0], [0, 0, 0, 1]];
  const any = (head, from, to, left, right) => rows.slice(from, to).some((row) => row.slice(left, right).includes(1));
  assert.deepEqual([...maskPicture({ any }, 0, 0, 2, 0, 4, 2, 2)], [0, 1, 1, 0]);
  assert.deepEqual([...maskPicture({ any }, 0, 0, 2, 0, 4, 2, 1)], [0, 0]);
  assert.deepEqual([...maskPicture({ any }, 0, 0, 0.2, 0, 0.2, 1, 3)], [0, 0, 0]);
  assert.deepEqual([...pool(Float32Array.from([5]), 1, 0, 0, 0, 0, 1, 1)], [5]);
});

test("lines: threshold first, then the strongest", () => {
  const cells = [0.5, 0.02, -0.4, 0.3].map((w, j) => ({ j, w }));
  const limits = { threshold: 0.1, topK: 2, largest: 0.5 };
  assert.deepEqual(strongest(cells, limits).map(({ j }) => j), [0, 2]);
  assert.deepEqual(strongest(cells, { ...limits, topK: 0 }).map(({ j }) => j), [0, 2, 3]);
});

function keptLayer() {
  // One head, 4 queries × 4 keys; of each row the first and the 2 largest others; tiles of side 2.
  return {
    h: 1, n: 4, m: 4, whole: false, signed: false, norms: null, kept: 2, side: 2, rows: 2, columns: 2,
    scales: Float32Array.from([0.2, 0.2, 0.6, 0.6]),
    sums: Float32Array.from([1, 1, 1, 1]),
    weightedSums: Float32Array.from([1, 1, 1, 1]),
    first: Float32Array.from([0.6, 0.6, 0.1, 0.1]),
    tileScales: Float32Array.from([0.2, 0.6]),
    places: Uint32Array.from([1, 2, 1, 2, 3, 2, 3, 2]),
    codes: Uint8Array.from([255, 180, 255, 180, 255, 104, 255, 104]),
    tiles: Uint8Array.from([255, 180, 104, 255]),
  };
}

test("of a long input: kept weights, a bound for the others, tiles behind", () => {
  const map = mapOf(keptLayer(), 0, {});
  assert.ok(Math.abs(map.value(0, 0).w - 0.6) < 1e-6);
  assert.ok(Math.abs(map.value(0, 3).below - 0.2 * (180 / 255) ** 2) < 1e-6);
  close([...map.picture(0, 4, 0, 4, 2, 2)], [0.6, 0.1, 0.1, 0.6], 0.002);
  close(map.column(3).map(({ i }) => i), [2, 3]);
  assert.ok(Math.abs(map.largest - 0.6) < 1e-6);
});

test("of a long input: hiding the first token renormalises by the whole row", () => {
  const map = mapOf(keptLayer(), 0, { hideFirst: true });
  assert.equal(map.value(0, 0).w, 0);
  assert.ok(Math.abs(map.value(0, 1).w - 0.5) < 0.005);
  assert.ok(Math.abs(map.value(2, 3).w - 0.6 / 0.9) < 0.001);
});
