// What a memory keeps, against Python's: test/film.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { AHEAD, FAR, LOST, NEAR, SEGMENT, channelsOf, columnOf, countOf, runsOf, short, stateAt, weightOf, zoneOf } from "#lib/film.js";
import { modelOf } from "#parts/page_model.js";
import { Study } from "../attnlab_widgets/memory_film/study.js";

const known = JSON.parse(readFileSync(new URL("./film.json", import.meta.url), "utf8"));
const USUAL = { query: 0, layer: 0, head: null, channel: 0, vector: 0, order: "number" };

function studyOf(state) {
  const bytes = new Uint8Array(Buffer.from(known.data, "base64"));
  const study = new Study(modelOf({ ...USUAL, ...state, _film: known._film, _data: new DataView(bytes.buffer) }));
  study.read();
  return study;
}

test("sentences and weights are Python's, at every moment", () => {
  assert.ok(known.said.length >= 25);
  for (const [layer, query, head, said, weights] of known.said) {
    const study = studyOf({ layer, query, head });
    assert.equal(study.sentence, said);
    weights.forEach((wanted, j) => {
      const { w, error } = weightOf(study.layer, head, query, j);
      assert.ok(Math.abs(w - wanted) <= error + 1e-6, `${layer} ${query} ${j}: ${w} is not ${wanted}`);
    });
  }
});

test("states are Python's", () => {
  known._film.layers.forEach((told, at) => {
    if (told.kind !== "state") return;
    const { layer, n } = studyOf({ layer: at });
    let place = 0;
    for (let vector = 0; vector < told.r; vector += 1) {
      for (let i = 0; i < n; i += 1) {
        for (let channel = 0; channel < told.dim; channel += 1) assert.equal(stateAt(layer, vector, i, channel), known.states[at][place++]);
      }
    }
    assert.equal(place, known.states[at].length);
  });
});

test("where positions are while a token is read", () => {
  const { layer } = studyOf({ query: 10 });
  assert.deepEqual([0, 1, 6, 9, 10].map((j) => zoneOf(layer, 10, j)), [LOST, FAR, NEAR, SEGMENT, SEGMENT]);
  assert.equal(zoneOf(layer, 9, 10), AHEAD);
  assert.deepEqual([countOf(layer, 10, LOST), countOf(layer, 10, FAR), countOf(layer, 9, SEGMENT)], [1, 4, 0]);
  assert.deepEqual(runsOf(layer, 10), [
    { zone: LOST, first: 0, end: 1 }, { zone: FAR, first: 1, end: 5 }, { zone: NEAR, first: 5, end: 9 }, { zone: SEGMENT, first: 9, end: 11 },
  ]);
});

test("a compressed vector stands at the first of its tokens", () => {
  const zones = Uint8Array.from([3, 3, 3, 3, 3, 4]);
  const layer = { n: 6, segment: 6, covers: 2, zones };
  const later = { n: 9, segment: 3, covers: 2, zones: Uint8Array.from([...Array(18).fill(1), 3, 3, 4, 3, 3, 4, 1, 1, 1]) };
  assert.deepEqual([0, 1, 2, 3, 4, 5].map((j) => columnOf(layer, 5, j)), [0, 0, 2, 2, 4, 5]);
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6].map((j) => columnOf(later, 7, j)), [0, 0, 2, 3, 3, 5, 6], "windows begin anew with each segment");
});

test("another segment is shown at the same place in it, and the last one may be shorter", () => {
  const study = studyOf({ query: 5 });
  assert.deepEqual([study.moment, study.moments], [1, 4]);
  study.show(2);
  assert.equal(study.model.get("query"), 8);
  study.show(3);
  assert.equal(study.model.get("query"), 10);
});

test("another layer keeps what it has of the choices", () => {
  const study = studyOf({ layer: 3, vector: 2, channel: 3 });
  study.chooseLayer(2);
  assert.deepEqual(["layer", "vector", "channel"].map((name) => study.model.get(name)), [2, 0, 3]);
  const other = studyOf({ head: 1 });
  other.chooseLayer(1);
  assert.equal(other.model.get("head"), null);
});

test("channels that hold longest come first", () => {
  const { layer } = studyOf({ layer: 2 });
  assert.deepEqual(channelsOf(layer, 0, "number"), [0, 1, 2, 3, 4]);
  assert.deepEqual(channelsOf(layer, 0, "holds"), [2, 1, 3, 4, 0]);
  const changing = { half_lives: false, dim: 3, holds: Float32Array.from([3, 1, 2]) };
  assert.deepEqual(channelsOf(changing, 0, "holds"), [1, 2, 0]);
});

test("numbers of three digits or so", () => {
  assert.deepEqual([0.014, 9.5, 9.996, 12.34, 99.96, 1034.4].map(short), ["0.01", "9.50", "10.0", "12.3", "100", "1034"]);
});
