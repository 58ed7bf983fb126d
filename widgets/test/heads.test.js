// What HeadMap says and where it draws, against Python's: test/heads.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { modelOf } from "#parts/page_model.js";
import { placed, Study, towards, weightOf } from "../attnlab_widgets/head_map/study.js";

const known = JSON.parse(readFileSync(new URL("./heads.json", import.meta.url), "utf8"));

function studyOf({ _told, data }, state = {}) {
  const bytes = Uint8Array.from(Buffer.from(data, "base64"));
  const study = new Study(modelOf({ layer: 0, head: 0, query: 0, near: 3, colour: "kind", ...state, _told, _data: new DataView(bytes.buffer) }));
  study.read();
  return study;
}

test("sentences, neighbours and places are Python's", () => {
  assert.equal(known.length, 6);
  for (const one of known) {
    for (const [at, query, said, order] of one.said) {
      const [layer, head] = one._told.heads[at];
      const study = studyOf(one, { layer, head, query });
      assert.equal(study.at, at);
      assert.equal(study.sentence, said);
      assert.deepEqual(study.order, order);
    }
    placed(one._told.points, 430, 400, 34).forEach(([x, y], at) => {
      assert.ok(Math.hypot(x - one.places[at][0], y - one.places[at][1]) < 1e-3);
    });
  }
});

test("an arrow key goes to the nearest head on its side", () => {
  const points = [[0, 0], [10, 1], [5, 20], [-3, 0], [30, 2]];
  assert.equal(towards(points, 0, [1, 0]), 1);
  assert.equal(towards(points, 1, [1, 0]), 4);
  assert.equal(towards(points, 0, [0, 1]), 2);
  assert.equal(towards(points, 0, [-1, 0]), 3);
  assert.equal(towards(points, 3, [-1, 0]), null);
});

test("a layer with fewer heads shows its first until Python has settled it", () => {
  const study = studyOf(known[1], { layer: 1, head: 9 });
  assert.deepEqual(study.found.heads[study.at], [1, 0]);
});

test("keys choose within the heads and the tokens", () => {
  const study = studyOf(known[1]);
  study.choose(99);
  assert.deepEqual([study.model.get("layer"), study.model.get("head")], [1, 2]);
  study.chooseQuery(-4);
  assert.equal(study.model.get("query"), 0);
});

test("a point is as large as its head is important", () => {
  assert.equal(studyOf(known[1]).radius(0), 7);
  const study = studyOf(known[2]);
  assert.equal(study.radius(5), 12);
  assert.equal(study.radius(0), 4);
});

test("a byte is a weight, and 255 a masked pair", () => {
  assert.deepEqual([0, 127, 254, 255].map(weightOf), [0, 0.25, 1, 0]);
});
