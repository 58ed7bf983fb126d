// Who takes which token, against Python's: test/experts.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { balanceOf, choicesOf, lostAt, meanOf, placed, shareOf } from "../attnlab_widgets/experts_view/experts.js";
import { modelOf } from "#parts/page_model.js";
import { Study } from "../attnlab_widgets/experts_view/study.js";

const known = JSON.parse(readFileSync(new URL("./experts.json", import.meta.url), "utf8"));
const USUAL = { token: 0, layer: 0, capacity: 3, placed: 11 };

function studyOf({ _experts, data }, state = {}) {
  const bytes = Uint8Array.from(Buffer.from(data, "base64"));
  const study = new Study(modelOf({ ...USUAL, ...state, _experts, _data: new DataView(bytes.buffer) }));
  study.read();
  return study;
}

test("sentences, and who is dropped, are Python's at every capacity and moment", () => {
  assert.ok(known.several.said.length >= 100);
  const all = [known.several, known.choosing].flatMap((one) => one.said.map((said) => [one, ...said]));
  for (const [one, state, said, taken] of all) {
    const study = studyOf(one, state);
    assert.equal(study.sentence, said);
    taken.forEach((wanted, i) => {
      const found = choicesOf(study.layer, i, state).filter(({ lost, waiting }) => !lost && !waiting).map(({ expert }) => expert);
      assert.deepEqual(found, wanted.filter((expert) => expert >= 0), `token ${i}`);
    });
  }
});

test("shares, mean probabilities and balance are Python's", () => {
  const { layer } = studyOf(known.alone);
  const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-6, `${a} is not ${b}`);
  known.alone.shares.forEach((share, expert) => near(shareOf(layer, expert), share));
  known.alone.means.forEach((mean, expert) => near(meanOf(layer, expert), mean));
  near(balanceOf(layer), known.alone.balance);
  assert.equal(balanceOf(studyOf(known.several).layer), null);
});

test("how many are dropped follows from how many want an expert", () => {
  const layer = placed({ n: 4, k: 1, experts: 2, chosen: Int16Array.from([1, 1, 0, 1]), gates: new Float32Array(4) });
  assert.deepEqual([1, 2, 3, 4].map((capacity) => lostAt(layer, capacity)), [2, 1, 0, 0]);
  assert.deepEqual([...layer.places], [0, 1, 0, 2]);
});

test("the last choice that is placed is read out, and another layer stays wholly placed", () => {
  const study = studyOf(known.several);
  study.place(8);
  assert.deepEqual(["placed", "token"].map((name) => study.model.get(name)), [8, 1]);
  study.place(0);
  assert.equal(study.model.get("placed"), 0);
  const other = studyOf(known.several, { placed: 11 });
  other.chooseLayer(1);
  assert.deepEqual(["layer", "placed"].map((name) => other.model.get(name)), [1, 14]);
});
