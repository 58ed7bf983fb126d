// What the page says of queries is what Python says, on the cases that it wrote.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { columnsFor, moved, opened } from "../attnlab_widgets/queries_view/study.js";
import { announcement, half, readers, weight } from "../attnlab_widgets/queries_view/words.js";

const cases = JSON.parse(readFileSync(new URL("./queries.json", import.meta.url), "utf8"));

test("the page says the same of every moment, query and patch", () => {
  assert.ok(cases.length > 3);
  for (const { _told, data, said, weights } of cases) {
    const found = opened(new DataView(Uint8Array.from(Buffer.from(data, "base64")).buffer), _told);
    assert.deepEqual(weights.map((_, code) => weight(code)), weights);
    for (const [at, words, order] of said) {
      assert.equal(announcement(found, at), words);
      if (at.patch >= 0) assert.deepEqual(readers(found, at), order);
    }
  }
});

test("weights have two digits after the point, small ones their first two", () => {
  assert.deepEqual([0, 255, 254, 127, 81, 80, 44, 16, 1].map(weight), ["0", "0", "1.00", "0.25", "0.10", "0.099", "0.030", "0.0040", "0.000016"]);
});

test("half of the weight is counted from the largest patch on", () => {
  assert.equal(half([254, 0, 0]), 1);
  assert.equal(half([100, 100, 100, 100]), 2);
  assert.equal(half([3, 255, 4]), 1);
  assert.equal(half([0, 0]), 1);
});

test("keys go along rows of maps, and stay within them", () => {
  assert.equal(moved(0, "ArrowRight", 5, 2), 1);
  assert.equal(moved(1, "ArrowDown", 5, 2), 3);
  assert.equal(moved(4, "ArrowDown", 5, 2), 4);
  assert.equal(moved(1, "ArrowUp", 5, 2), 1);
  assert.equal(moved(0, "ArrowLeft", 5, 2), 0);
  assert.equal(moved(2, "End", 5, 2), 4);
  assert.equal(moved(2, "Home", 5, 2), 0);
  assert.equal(moved(2, "Enter", 5, 2), null);
  assert.deepEqual([4, 6, 7, 32].map(columnsFor), [2, 2, 4, 8]);
});
