// The plane's arithmetic and its sentence against Python's: test/plane.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { attend, extent, foot, hull, power, announcement, scoreLines, two, winners } from "#lib/plane.js";

const known = JSON.parse(readFileSync(new URL("./plane.json", import.meta.url), "utf8"));
const close = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);

test("scores, weights, output and sentence are Python's", () => {
  for (const one of known) {
    const found = attend(one);
    one.scores.forEach((score, j) => close(found.scores[j], score));
    one.weights.forEach((weight, j) => close(found.weights[j], weight));
    one.output.forEach((x, axis) => close(found.output[axis], x));
    assert.equal(announcement(one, found), one.said);
  }
});

test("every key on a score line has its score", () => {
  const [query, scale] = [[1.5, -0.7], 0.5];
  const lines = scoreLines(query, scale, 3);
  assert.ok(lines.length >= 5 && lines.length <= 10, `${lines.length} lines`);
  for (const { score, ends } of lines) {
    for (const [x, y] of ends) {
      close(scale * (x * query[0] + y * query[1]), score);
      close(Math.max(Math.abs(x), Math.abs(y)), 3);
    }
  }
  const gaps = lines.slice(1).map(({ score }, at) => score - lines[at].score);
  gaps.forEach((gap) => close(gap, gaps[0]));
  assert.deepEqual(scoreLines([0, 0], 1, 3), []);
  assert.ok(scoreLines([2, 0], 1, 3).every(({ ends }) => ends.length === 2));
});

test("the foot of a key gives the same product as the key", () => {
  const [x, y] = foot([1, 2], [3, -1]);
  close(3 * x - y, 1);
  close(x * 1 + y * 3, 0);
  assert.equal(foot([1, 2], [0, 0]), null);
});

test("the hull leaves out what lies inside", () => {
  assert.deepEqual(new Set(hull([[0, 0], [2, 0], [0, 2], [2, 2], [1, 1], [1, 0]]).map(String)), new Set(["0,0", "2,0", "0,2", "2,2"]));
  assert.equal(hull([[1, 1]]).length, 1);
});

test("the map of winners says what a query there would say", () => {
  const state = known[0];
  const { winner, weight } = winners(state, 3, 8);
  const query = [((5 + 0.5) / 8) * 6 - 3, 3 - ((2 + 0.5) / 8) * 6];
  const { weights } = attend({ ...state, query });
  close(weight[2 * 8 + 5], Math.fround(Math.max(...weights)));
  assert.equal(weights[winner[2 * 8 + 5]], Math.max(...weights));
});

test("numbers are short", () => {
  assert.deepEqual([0, 1, 148.4, 22026.5, 2.2e-5].map(power), ["0.00", "1.00", "148", "2.2 · 10⁴", "2.2 · 10⁻⁵"]);
  assert.equal(power(Infinity), "over 10³⁰⁸");
  assert.equal(two(-1.5), "−1.50");
  assert.deepEqual([[[1, 2]], [[4, 0]], [[0, -57]]].map((points) => extent(points)), [3, 5, 60]);
});
