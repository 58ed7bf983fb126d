// Where the keys of ProbeView lead, and where it draws.
import assert from "node:assert/strict";
import { test } from "node:test";
import { across, mean, moved, upwards } from "../attnlab_widgets/probe_view/rows.js";

test("arrow keys go by rows as they stand, and by layers", () => {
  const rows = [2, 0, 1];
  assert.deepEqual(moved({ task: 2, layer: 1 }, "ArrowDown", rows, 5), { task: 0, layer: 1 });
  assert.deepEqual(moved({ task: 2, layer: 1 }, "ArrowUp", rows, 5), { task: 2, layer: 1 });
  assert.deepEqual(moved({ task: 0, layer: 1 }, "PageDown", rows, 5), { task: 1, layer: 1 });
  assert.deepEqual(moved({ task: 0, layer: 3 }, "ArrowRight", rows, 5), { task: 0, layer: 4 });
  assert.deepEqual(moved({ task: 0, layer: 4 }, "ArrowRight", rows, 5), { task: 0, layer: 4 });
  assert.deepEqual(moved({ task: 0, layer: 4 }, "Home", rows, 5), { task: 0, layer: 0 });
  assert.equal(moved({ task: 0, layer: 4 }, "Enter", rows, 5), null);
});

test("the first layer stands at the left, the largest value at the top", () => {
  assert.deepEqual([0, 2, 4].map((layer) => across(layer, 5, 80)), [0, 40, 80]);
  assert.equal(across(0, 1, 80), 40);
  assert.equal(upwards(1, 0.4, 50), 0);
  assert.equal(upwards(0.4, 0.4, 50), 50);
  assert.equal(mean([[0, 1], [0.5, 0]], 1), 0.5);
});
