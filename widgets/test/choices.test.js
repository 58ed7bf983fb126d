// What layers chose, as Python sent it: test/choices.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Study } from "../attnlab_widgets/layer_choices/study.js";
import { modelOf } from "#parts/page_model.js";

const known = JSON.parse(readFileSync(new URL("./choices.json", import.meta.url), "utf8"));
const near = (a, b, by = 1e-5) => assert.ok(Math.abs(a - b) < by, `${a} is not ${b}`);
const bytes = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));

function studyOf(one) {
  const study = new Study(modelOf({ ...one, _data: new DataView(bytes(one._data).buffer) }));
  study.read();
  return study;
}

test("sentences are Python's", () => {
  assert.ok(known.length >= 10);
  for (const one of known) assert.equal(studyOf(one).sentence, one.sentence);
});

test("weights, gates, scores and choices are Python's", () => {
  for (const one of known) {
    const study = studyOf(one);
    const { layer, part, row, units } = study;
    assert.deepEqual([...study.rowOf(part.read, study.m)], one.read);
    near(study.at(part.kept), one.kept);
    near(study.at(part.gates), one.gate);
    one.full.forEach((weight, key) => near(study.weight(layer.full, row, key), weight, 1e-5));
    one.weights.forEach((weight, key) => near(study.weight(part.weights, row, key), weight, 1e-5));
    units.forEach((unit, at) => {
      near(unit.share, one.shares[at]);
      if (one.scores[at] === null) assert.equal(unit.score, -Infinity);
      else near(unit.score, one.scores[at], 1e-5 * Math.max(1, Math.abs(one.scores[at])));
      assert.deepEqual([unit.chosen, unit.always], [one.chosen[at] === 1, one.always[at] === 1]);
    });
  }
});

test("chosen units hold what is kept, and their keys are those that are read", () => {
  for (const one of known.filter(({ branch }) => branch === "selected")) {
    const study = studyOf(one);
    const chosen = study.units.filter((unit) => unit.chosen);
    near(chosen.reduce((sum, { share }) => sum + share, 0), study.at(study.part.kept));
    const keys = chosen.flatMap(({ unit }) => study.keysOf(unit)).filter((key) => study.layer.allowed[study.row * study.m + key]);
    assert.deepEqual(keys, one.read.flatMap((read, key) => (read ? [key] : [])));
  }
});

test("a pair is read out: not allowed, not read, or read with its weight", () => {
  const study = studyOf(known.find(({ layer, query }) => layer === 2 && query === 12));
  assert.match(study.pair([3, 9]), /^query 3 “t3”, key 9 “t9”: may not attend$/);
  const lost = study.rowOf(study.part.read, study.m).indexOf(0);
  assert.match(study.pair([study.row, lost]), /: \d+\.\d % of full attention, not read$/);
  const read = study.rowOf(study.part.read, study.m).indexOf(1);
  assert.match(study.pair([study.row, read]), /: \d+\.\d % of full attention, read, with \d+\.\d % of this branch$/);
});

test("another layer keeps head and branch where it has them; a token before the queries is none", () => {
  const study = studyOf(known.find(({ branch }) => branch === "window"));
  study.choose(2);
  study.read();
  assert.deepEqual([study.state.layer, study.state.branch, study.head], [2, "selected", 1]);
  const last = studyOf(known[known.length - 1]);
  last.ask(4);
  last.read();
  assert.equal(last.state.query, 5);
  last.ask(6);
  last.read();
  assert.deepEqual([last.state.query, last.row], [6, 1]);
});
