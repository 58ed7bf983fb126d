// The four choices against Python's: test/chosen.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { borders, heaviest, inGroups, turned } from "#lib/choices.js";
import { Study, WAYS } from "../attnlab_widgets/who_is_chosen/study.js";
import { modelOf } from "#parts/page_model.js";

const known = JSON.parse(readFileSync(new URL("./chosen.json", import.meta.url), "utf8"));
const BYTES = ["_queries", "_keys", "_axes", "_rotations"];
const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);

function studyOf(one) {
  const bytes = Object.fromEntries(BYTES.map((name) => [name, new DataView(Float32Array.from(one[name]).buffer)]));
  const study = new Study(modelOf({ ...one, ...bytes }));
  study.read();
  return study;
}

test("weights, choices, pairs, groups and recall are Python's", () => {
  assert.ok(known.length >= 5);
  for (const one of known) {
    const study = studyOf(one);
    one.weights.forEach((weight, at) => near(study.weights[at], weight));
    for (const { key } of WAYS) {
      const [found, wanted] = [study.found[key], one.found[key]];
      assert.deepEqual([...found.chosen], wanted.chosen, key);
      assert.equal(found.pairs, wanted.pairs, key);
      near(found.recall, wanted.recall);
      assert.deepEqual([...(found.queryGroups ?? [])], wanted.queryGroups ?? [], key);
      assert.deepEqual([...(found.keyGroups ?? [])], wanted.keyGroups ?? [], key);
    }
  }
});

test("the curve of hashing passes through the present state", () => {
  const study = studyOf(known[1]);
  const { pairs, recall } = study.found.hashing;
  assert.ok(study.curve("hashing").some((point) => point.pairs === pairs && point.recall === recall));
  assert.equal(study.curve("hashing").length, 8);
  const all = study.curve("hashing").map((point) => point.pairs);
  assert.deepEqual(all, [...all].sort((a, b) => a - b));
});

test("a dragged query is where it was put", () => {
  const study = studyOf(known[1]);
  study.moveTo([0.25, -1.5]);
  study.read();
  const [x, y] = study.place(study.queries[known[1].query]);
  assert.ok(Math.abs(x - 0.25) < 2e-3 && Math.abs(y + 1.5) < 2e-3, `${x}, ${y}`);
  assert.ok(study.place(study.queries[0]).every((value, axis) => value === study.place(study.given.queries[0])[axis]));
});

test("turning by a right angle swaps neighbouring directions; a last one alone stays", () => {
  const found = turned([[1, 2], [3, 4], [5, 6]], Math.PI / 2);
  found[0].forEach((value, at) => near(value, [-3, -4][at]));
  found[1].forEach((value, at) => near(value, [1, 2][at]));
  assert.deepEqual(found[2], [5, 6]);
});

test("of equal weights the first are the heaviest", () => {
  assert.deepEqual([...heaviest(new Float64Array(9), 3, 2)], [1, 1, 0, 1, 1, 0, 1, 1, 0]);
});

test("groups in order, those of none last, with their borders", () => {
  const groups = [2, 0, -1, 2, 0];
  const order = inGroups(groups);
  assert.deepEqual(order, [1, 4, 0, 3, 2]);
  assert.deepEqual(borders(groups, order), [2, 4]);
});

test("the sentence names the query, its bucket and what hashing found", () => {
  const study = studyOf(known[1]);
  const { query } = study.state;
  assert.match(study.sentence, new RegExp(`^Query ${query} “${known[1].tokens[query]}” is in bucket ${study.hashed[query]} of 6`));
  assert.match(study.sentence, new RegExp(`Hashing finds ${study.keysOf("hashing").length} keys? for it`));
});
