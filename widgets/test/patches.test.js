import assert from "node:assert/strict";
import { test } from "node:test";
import { boxOf, gridOf, neighbour, together, tokenAt, weightsBetween } from "#lib/patches.js";
import { shortName } from "#lib/words.js";

const grid = { rows: 2, columns: 3, first: 1 };

test("a place in the picture is a token", () => {
  assert.equal(tokenAt(grid, 0, 0), 1);
  assert.equal(tokenAt(grid, 0.99, 0.1), 3);
  assert.equal(tokenAt(grid, 0.4, 0.6), 5);
  assert.equal(tokenAt(grid, 1, 0.5), null);
  assert.equal(tokenAt(grid, 0.5, -0.01), null);
});

test("a token is a box of the picture", () => {
  assert.deepEqual(boxOf(grid, 1, 30, 20), [0, 0, 10, 10]);
  assert.deepEqual(boxOf(grid, 6, 30, 20), [20, 10, 10, 10]);
  assert.equal(boxOf(grid, 0, 30, 20), null);
  assert.equal(boxOf(grid, 7, 30, 20), null);
});

test("arrow keys walk over patches and stop at the edge", () => {
  assert.equal(neighbour(grid, 1, "ArrowRight"), 2);
  assert.equal(neighbour(grid, 1, "ArrowLeft"), 1);
  assert.equal(neighbour(grid, 2, "ArrowDown"), 5);
  assert.equal(neighbour(grid, 5, "ArrowDown"), 5);
  assert.equal(neighbour(grid, 5, "a"), null);
});

test("vectors of one patch are keys together, and queries on the mean", () => {
  const frozen = { rows: 1, columns: 2, first: 1, tokens: [[1, 2], [3]] };
  const values = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.5, 0.25, 0], [0.125, 0.25, 0.5, 0.125]];
  const map = {
    row: (i) => values[i].map((w, j) => ({ j, w })).filter(({ w }) => w),
    column: (j) => values.map((row, i) => ({ i, w: row[j] })).filter(({ w }) => w),
  };
  assert.deepEqual([0, 1, 2, 3].map((at) => together(frozen, at)), [[0], [1, 2], [1, 2], [3]]);
  assert.deepEqual(together(null, 2), [2]);
  assert.deepEqual(weightsBetween(map, "query", [3], frozen), [[[0], 0.125], [[1, 2], 0.75], [[3], 0.125]]);
  assert.deepEqual(weightsBetween(map, "query", [1, 2], frozen), [[[0], 0.375], [[1, 2], 0.625]]);
  assert.deepEqual(weightsBetween(map, "key", [1, 2], frozen), [[[1, 2], 0.625], [[3], 0.75]]);
  assert.deepEqual(weightsBetween(map, "key", [0], null), [[[0], 1], [[1], 0.5], [[2], 0.25], [[3], 0.125]]);
});

test("a layer that reads no image has no grid", () => {
  const shape = { q: { set: 1 }, k: { set: 0 } };
  assert.equal(gridOf({ grids: [grid, null] }, shape, "q"), null);
  assert.equal(gridOf({ grids: [grid, null] }, shape, "k"), grid);
  assert.equal(gridOf({}, shape, "k"), null);
});

test("names of layers are short", () => {
  assert.equal(shortName(null, 3), "L3");
  assert.equal(shortName("encoder 2", 0), "enc 2");
  assert.equal(shortName("cross 1", 0), "cross 1");
  assert.equal(shortName("language_model 4", 0), "langua 4");
});
