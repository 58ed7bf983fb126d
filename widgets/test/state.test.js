// The recurrences against Python's: test/state.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { best, eigenvalues, film, newestOf, ofSymmetric, rightOf, times } from "../attnlab_widgets/state_view/rules.js";
import { number, sentence, short } from "../attnlab_widgets/state_view/words.js";

const known = JSON.parse(readFileSync(new URL("./state.json", import.meta.url), "utf8"));
function near(found, wanted, by = 1e-7) {
  if (Array.isArray(wanted)) {
    assert.equal(found.length, wanted.length);
    wanted.forEach((one, i) => near(found[i], one, by));
  } else assert.ok(Math.abs(found - wanted) < by * Math.max(1, Math.abs(wanted)), `${found} is not ${wanted}`);
}

test("transitions, eigenvalues, states, readings and sentence are Python's", () => {
  assert.ok(known.length >= 40);
  for (const one of known) {
    const rule = one.rules.find(({ name }) => name === one.family);
    const found = film(rule, one);
    near(found.transitions, one.transitions, 1e-9);
    near(found.states, one.states, 1e-9);
    near(found.spectra, one.spectra);
    const readings = times(found.keys, found.states[one.token + 1]);
    near(readings, one.readings, 1e-9);
    assert.deepEqual(newestOf(one), one.newest);
    const said = sentence({ ...one, title: rule.title, token: one.token + 1, count: one.facts.length, fact: one.facts[one.token], spectrum: found.spectra[one.token], readings });
    assert.equal(said, one.said);
    const right = one.rules.map((each) => {
      const other = film(each, one);
      return rightOf(times(other.keys, other.states[one.token + 1]), one.newest);
    });
    assert.deepEqual(right, one.right);
  }
});

test("eigenvalues have the trace and the determinant of their matrix", () => {
  const [a, b, c] = [2, -0.5, 3];
  const [low, high] = ofSymmetric([[a, b], [b, c]]);
  near([low + high, low * high], [a + c, a * c - b * b], 1e-12);
  near(eigenvalues({ erases: "after" }, [0.6, 0.8], [1, 1], 1.5), [-0.5, 1], 1e-12);
});

test("what is read, and how it is said", () => {
  assert.deepEqual(best([0.2, 0.9, 0.9 - 1e-12]), [1, 2]);
  assert.deepEqual(best([0.001, -3]), []);
  assert.deepEqual([0.005, -0.004, -1.5, 1234.5, -1e12].map(number), ["0.01", "0.00", "−1.50", "1.2 · 10^3", "−1.0 · 10^12"]);
  assert.equal(short("Alexandra", 5), "Alex…");
});
