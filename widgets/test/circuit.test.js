// What the page computes and says of cuts is what Python does, on the cases that it wrote.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { boardOf } from "../attnlab_widgets/circuit_board/layout.js";
import { reordered, replaced, run, wiresOf } from "../attnlab_widgets/circuit_board/paths.js";
import { Study } from "../attnlab_widgets/circuit_board/study.js";
import { caption } from "../attnlab_widgets/circuit_board/words.js";
import { modelOf } from "../src/parts/page_model.js";

const { boards, cuts, laid } = JSON.parse(readFileSync(new URL("./circuit.json", import.meta.url), "utf8"));

function studyOf(one, more = {}) {
  const [numbers, means] = [one.numbers, one.means].map((text) => new DataView(Uint8Array.from(Buffer.from(text, "base64")).buffer));
  const { text, cuts, instead, order, measure, through } = one;
  return new Study(modelOf({ at: -1, least: 0.05, text, cuts, instead, order, measure, through, _told: one._told, _numbers: numbers, _means: means, ...more }));
}

const near = (found, wanted, what) => assert.ok(Math.abs(found - wanted) < 1e-9 * Math.max(1, Math.abs(wanted)), `${what}: ${found}, not ${wanted}`);

test("cuts are computed as in Python", () => {
  assert.ok(boards.length > 4);
  for (const one of boards) {
    const study = studyOf(one);
    assert.deepEqual(study.wires, one.wires);
    assert.deepEqual(reordered(study.tokens, one.order), one.other);
    const { logits, weights } = study.pass;
    one.logits.forEach((value, at) => near(logits[logits.length - one.logits.length + at], value, "a logit"));
    for (const [name, squares] of Object.entries(one.weights)) near(weights[name].reduce((sum, x) => sum + x * x, 0), squares, name);
  }
});

test("effects of all wires, and what is said of them", () => {
  for (const one of boards) {
    const study = studyOf(one);
    while (study.more());
    assert.ok(study.complete);
    study.wires.forEach((wire, at) => near(study.effect(at), one.effects[wire.join(" > ")], wire));
    assert.equal(study.sentence, one.said[0]);
    assert.deepEqual(Object.values(study.pass.weights).map((x) => caption(x, study.tokens, study.network.noun)), one.captions);
    study.change([]);
    study.read();
    assert.equal(study.sentence, one.said[1]);
  }
});

test("what a cut cannot change is not computed again", () => {
  for (const one of boards) {
    const { network, tokens, whole, instead } = studyOf(one);
    for (const wire of wiresOf(network)) {
      const [quick, slow] = [run(network, tokens, [wire], instead, true, whole), run(network, tokens, [wire], instead, true)];
      quick.logits.forEach((value, at) => near(value, slow.logits[at], wire));
    }
  }
});

test("cuts are put back, undone, and do not heap up", () => {
  const study = studyOf(boards[0], { cuts: [] });
  const now = () => JSON.stringify(study.model.get("cuts"));
  study.flip(3);
  study.flip(5);
  study.flip(3);
  assert.equal(now(), JSON.stringify([study.wires[5]]));
  study.undo();
  assert.equal(now(), JSON.stringify([study.wires[3], study.wires[5]]));
  study.undo();
  study.undo();
  study.undo();
  assert.equal(now(), "[]");
});

test("cuts of elsewhere are not undone here", () => {
  const study = studyOf(boards[0], { cuts: [] });
  study.flip(3);
  study.model.set("cuts", [study.wires[5]]);
  study.undo();
  assert.deepEqual(study.model.get("cuts"), [study.wires[5]]);
});

test("letters after the one that is looked at change no effect", () => {
  const zeros = { instead: "zeros", cuts: [] };
  const [long, short] = [studyOf(boards[0], { ...zeros, at: 4 }), studyOf(boards[0], { ...zeros, text: boards[0].text.slice(0, 5) })];
  for (const study of [long, short]) while (study.more());
  assert.equal(long.at, 4);
  assert.ok(long.n > short.n);
  long.alone.forEach(({ chances }, at) => chances.forEach((chance, token) => near(chance, short.alone[at].chances[token], at)));
});

test("chips and wires stand where Python puts them", () => {
  for (const [rows, wires, wide, paths] of laid) {
    const found = boardOf(rows, wires, wide).paths;
    found.forEach((path, at) => path.forEach((point, nth) => point.forEach((x, axis) => assert.ok(Math.abs(x - paths[at][nth][axis]) < 2e-6))));
  }
});

test("two hundred random texts and cuts", () => {
  assert.equal(cuts.length, 200);
  const { network } = studyOf(boards[0]);
  for (const [tokens, wires, state, through, numbers] of cuts) {
    const { logits } = run(network, tokens, wires, replaced(network, tokens, state), through);
    const found = [logits.reduce((a, b) => a + b, 0), logits.reduce((a, b) => a + b * b, 0), logits[logits.length - 1]];
    numbers.forEach((value, at) => near(found[at], value, `${tokens} ${wires}`));
  }
});
