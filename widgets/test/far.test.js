// What is shown against Python: test/far.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { classesOf, place, signed, tickStep } from "../attnlab_widgets/long_range_use/far.js";
import { rowsOf } from "../attnlab_widgets/long_range_use/chart.js";
import { Study } from "../attnlab_widgets/long_range_use/study.js";
import { modelOf } from "#parts/page_model.js";

const known = JSON.parse(readFileSync(new URL("./far.json", import.meta.url), "utf8"));
const KINDS = { _tokens: Uint16Array, _intact: Int16Array, _differences: Int16Array, _members: Uint8Array, _means: Float32Array, _errors: Float32Array };

function studyOf(one) {
  const sent = Object.entries(KINDS).map(([name, kind]) => [name, new DataView(kind.from(one[name].map((x) => x ?? NaN)).buffer)]);
  const study = new Study(modelOf({ ...one, ...Object.fromEntries(sent) }));
  study.read();
  return study;
}

test("the sentence is Python's", () => {
  assert.ok(known.length >= 3);
  for (const one of known) assert.equal(studyOf(one).sentence, one.said);
});

test("changes and classes of the measured tokens are Python's", () => {
  for (const one of known) {
    const study = studyOf(one);
    one.changes.forEach((change, at) => {
      assert.ok(Math.abs(study.changes[at] - change) <= 0.00051);
      assert.deepEqual(["all", ...study.token(at).classes], one.classes[at]);
    });
    assert.ok(study.changes.every((change) => Math.abs(change) <= study.largest));
  }
});

test("curves are Python's, with gaps where a class has no tokens", () => {
  for (const one of known) {
    const study = studyOf(one);
    const found = Object.fromEntries(study.curves.map(({ name, points }) => [name, points.map(({ mean }) => mean)]));
    assert.deepEqual(Object.keys(found), Object.keys(one.curves));
    for (const [name, means] of Object.entries(one.curves)) {
      means.forEach((mean, at) => assert.ok(mean === null ? Number.isNaN(found[name][at]) : Math.abs(found[name][at] - mean) < 1e-6));
    }
  }
});

test("the table has a row for each curve and a column for each distance", () => {
  const study = studyOf(known[0]);
  const rows = rowsOf(study);
  assert.deepEqual(rows.map((row) => row.length), study.curves.map(() => 1 + study.distances.length));
  assert.equal(rows[0][2], study.sentence.match(/all ([^,]+)/)[1]);
});

test("a token is read out with its losses", () => {
  const study = studyOf(known[2]);
  const { before, change } = study.token(3);
  assert.equal(study.describe(3), `“${study.word(study.start + 3)}” (${study.token(3).classes.join(", ")}): loss ${before.toFixed(2)} → ${(before + change).toFixed(2)} nats, ${signed(change)}`);
  assert.match(study.describe(3), /^“<\d+>” \((frequent|rare), (near|far|new)\)/);
});

test("places, bits, signs and steps", () => {
  assert.equal(place([2, 3, 5], [1, 2, 4]), 29);
  assert.deepEqual(classesOf(0b010101), ["all", "rare", "far"]);
  assert.equal(signed(-0.25), "−0.250");
  assert.equal(signed(NaN), "–");
  for (const [range, step] of [[1, 0.2], [0.9, 0.2], [0.04, 0.01], [12, 5], [20, 5]]) assert.ok(Math.abs(tickStep(range, 5) - step) < 1e-12, `${range}`);
});
