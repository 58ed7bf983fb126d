// The energy landscape against Python's: test/landscape.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { bands, energyOf, heaviest, retrieval, announcement, updated } from "../attnlab_widgets/energy_landscape/landscape.js";
import { axisOf } from "../attnlab_widgets/energy_landscape/steps.js";

const known = JSON.parse(readFileSync(new URL("./landscape.json", import.meta.url), "utf8"));
const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);

test("path, energies, weights and sentence are Python's", () => {
  assert.ok(known.length >= 6);
  for (const one of known) {
    const found = retrieval(one);
    assert.equal(found.path.length, one.steps + 1);
    found.path.forEach((point, step) => point.forEach((x, axis) => near(x, one.path[step][axis])));
    found.energies.forEach((energy, step) => near(energy, one.energies[step]));
    found.weights.forEach((weight, j) => near(weight, one.weights[j]));
    assert.equal(announcement(one.names, found), one.said);
  }
});

test("an update is a step of length one against the gradient of the energy", () => {
  const state = known[0];
  const [x, y] = [0.3, -0.7];
  const by = 1e-5;
  const gradient = [[by, 0], [0, by]].map(([dx, dy]) => (energyOf([x + dx, y + dy], state) - energyOf([x - dx, y - dy], state)) / (2 * by));
  const { next } = updated([x, y], state);
  [x - gradient[0], y - gradient[1]].forEach((value, axis) => assert.ok(Math.abs(value - next[axis]) < 1e-6));
});

test("nearly all of the weight, the heaviest first; of equal weights the first", () => {
  assert.deepEqual(heaviest([0.05, 0.9, 0.05]), [1]);
  assert.deepEqual(heaviest([0.3, 0.1, 0.6]), [2, 0]);
  assert.deepEqual(heaviest([0.25, 0.25, 0.25, 0.25]), [0, 1, 2, 3]);
  assert.deepEqual(heaviest([0.4, 0.4, 0.2]), [0, 1, 2]);
});

test("bands begin at the lowest energy of the square and end at its corners", () => {
  const size = 30;
  const found = bands(known[0], 2, size);
  const cells = [...found.of];
  const low = cells.indexOf(0);
  const place = [((low % size) + 0.5) / size * 4 - 2, 2 - (Math.floor(low / size) + 0.5) / size * 4];
  assert.ok(known[0].patterns.some((pattern) => Math.hypot(pattern[0] - place[0], pattern[1] - place[1]) < 0.25), `${place}`);
  assert.equal(Math.max(...cells), found.count - 1);
  assert.ok(found.low >= 0 && found.high > found.low);
});

test("the axis of energies is cut to those of the path", () => {
  assert.deepEqual(axisOf([0.44, 0.42, 0.4]), { low: 0.4, top: 0.44, digits: 3 });
  assert.deepEqual(axisOf([3, 1, 0.5]), { low: 0.5, top: 3, digits: 2 });
  assert.deepEqual(axisOf([1, 1]), { low: 0.99, top: 1, digits: 3 });
});
