import assert from "node:assert/strict";
import test from "node:test";
import { spread } from "#lib/spread.js";

test("labels with room stay at their places", () => {
  assert.deepEqual(spread([20, 50, 90], 14, 100), [20, 50, 90]);
});

test("labels that would overlap make room, in the order of their places", () => {
  const found = spread([52, 50, 51], 10, 100);
  assert.deepEqual(found, [61, 41, 51]);
});

test("places beyond the ends are written at the ends", () => {
  assert.deepEqual(spread([-300, 5, 400], 10, 100), [5, 15, 95]);
  const many = spread([-9, -8, -7, 500, 500], 20, 100);
  assert.deepEqual(many, [10, 30, 50, 70, 90]);
});
