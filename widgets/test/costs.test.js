import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { costOf, crossover, evaluate, key, lengthsTo, nearest, seconds, slope } from "../attnlab_widgets/cost_lab/costs.js";

const { mechanisms, cases } = JSON.parse(readFileSync(new URL("costs.json", import.meta.url)));
const LENGTHS = Array.from({ length: 15 }, (_, at) => 2 ** (at + 6));
const find = (name) => mechanisms.find((one) => one.name === name);
const near = (a, b) => assert.ok(Math.abs(a - b) <= 1e-9 * Math.abs(b), `${a} is not ${b}`);

test("a formula is evaluated with its letters", () => {
  near(evaluate(["+", 2, ["*", 3, "n", ["^", "d", 2]], ["log", "n"]], { n: 7, d: 5 }), 2 + 3 * 7 * 25 + Math.log(7));
});

for (const { setting, key: expected, lengths, costs, exponent, crossover: where } of cases) {
  test(`${setting.mechanism} costs what Python says`, () => {
    const own = find(setting.mechanism);
    assert.deepEqual(lengthsTo(setting.n, LENGTHS, 5), lengths);
    lengths.forEach((n, at) => near(costOf(own, n, setting), costs[at]));
    near(slope(lengths, costs), exponent);
    const found = crossover((n) => costOf(own, n, setting), (n) => costOf(find("full"), n, { ...setting, options: {} }));
    if (where) near(found, where);
    else assert.equal(found, where);
    assert.equal(key(setting), expected);
  });
}

test("the nearest claim is that of the slope over the same lengths", () => {
  const lengths = [512, 1024, 2048, 4096];
  assert.equal(nearest(1.02, lengths), "n");
  assert.equal(nearest(1.12, lengths), "n log n");
  assert.equal(nearest(1.45, lengths), "n√n");
  assert.equal(nearest(1.9, lengths), "n²");
});

test("seconds have a unit that suits them", () => {
  assert.deepEqual([2.5e-5, 0.01234, 3].map(seconds), ["25 µs", "12.3 ms", "3 s"]);
});
