import assert from "node:assert/strict";
import { test } from "node:test";
import { fewest, led, mostOf, openOrigins, partsOf } from "../attnlab_widgets/attention_view/origins.js";

const bytes = (numbers) => Float32Array.from(numbers).buffer;
// Three parts of the keys 2 and 5, first as read at the key, then as read at the query.
const kept = openOrigins(bytes([1, 10, 2, 20, -4, 40, 7, 30, -8, 31, 0, 9]), { place: [0, 1, 0, 6], parts: ["a", "b", "c"], keys: [2, 5] }, 7);

test("parts belong to their key and their side", () => {
  const { rows, sum } = partsOf(kept, 5);
  assert.deepEqual(rows, [{ name: "a", key: 10, query: 30 }, { name: "b", key: 20, query: 31 }, { name: "c", key: 40, query: 9 }]);
  assert.deepEqual([sum.key, sum.query], [70, 70]);
  assert.equal(mostOf(rows, "key", 1).name, "c");
  assert.equal(mostOf(rows, "query", 1).name, "b");
});

const ledBy = (...rows) => {
  const named = rows.map(([key, query], at) => ({ name: "abc"[at], key, query }));
  const sum = (side) => named.reduce((all, row) => all + row[side], 0);
  return led(named, { key: sum("key"), query: sum("query") }).map((part) => (part.name ? `${part.name} (${part.value})` : part)).join("");
};

test("above the mean it is the largest part that raises, below it the largest that lowers", () => {
  assert.equal(ledBy([3, -1], [-2, 2]), "The largest part that raises it is a (3) at the key, and b (2) at the query.");
  assert.equal(ledBy([-3, 1], [2, -2], [-1, -1]), "The largest part that lowers it is a (-3) at the key, and b (-2) at the query.");
});

test("where no part goes that way, nothing is named", () => {
  assert.equal(ledBy([0, 0], [0.004, -0.002], [-0.003, 0.003]), "Nothing raises it by as much as 0.01.");
  assert.equal(ledBy([-0.004, -0.002], [-0.004, -0.006]), "The largest part that lowers it is b (-0.006) at the query; nothing at the key lowers it by as much as 0.01.");
  assert.equal(ledBy([0.02, 0.004], [0, 0.004]), "The largest part that raises it is a (0.02) at the key; nothing at the query raises it by as much as 0.01.");
});

test("a key that was not kept has no parts", () => assert.equal(partsOf(kept, 4), null));

test("without a list every key is kept", () => {
  const all = openOrigins(bytes([1, 2, 3, 4, 5, 6]), { place: [0, 0, 0, 0], parts: ["a"], keys: null }, 3);
  assert.deepEqual(all.keys, [0, 1, 2]);
  assert.deepEqual(partsOf(all, 2).rows, [{ name: "a", key: 3, query: 6 }]);
});

test("of many parts the largest of either side stay in their order, and nothing is lost", () => {
  const { rows } = partsOf(kept, 2); // a 1 7, b 2 -8, c -4 0
  assert.deepEqual(fewest(rows, 3), rows);
  assert.deepEqual(fewest(rows, 2).map(({ name, key, query }) => [name, key, query]), [["b", 2, -8], ["all 2 others", -3, 7]]);
});
