// What the page computes, says, reads and writes is what Python does, on the cases that it wrote.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { drawn, ordered, uniform } from "../src/lib/draws.js";
import { gelu, half, softmax } from "../src/lib/forward.js";
import { read } from "../src/lib/reading.js";
import { Study } from "../attnlab_widgets/walk/study.js";
import { fixed, percent } from "../attnlab_widgets/walk/words.js";
import { modelOf } from "../src/parts/page_model.js";

const cases = JSON.parse(readFileSync(new URL("./walk.json", import.meta.url), "utf8"));

function studyOf(one, more = {}) {
  const bytes = Uint8Array.from(Buffer.from(one.numbers, "base64"));
  const state = { step: 0, at: -1, head: 0, temperature: 1, top_k: 1, seed: 0 };
  return new Study(modelOf({ ...state, _told: one._told, _numbers: new DataView(bytes.buffer), text: one.text, silent: one.silent, ...more }));
}

test("every step of a pass is Python's", () => {
  assert.ok(cases.length > 3);
  for (const one of cases) {
    const { run, tokens, steps } = studyOf(one);
    assert.deepEqual(tokens, one.tokens);
    assert.deepEqual(Object.keys(run), steps.map(({ key }) => key));
    for (const [key, end] of Object.entries(one.ends)) {
      const finite = run[key].filter(Number.isFinite);
      assert.equal(end.length, Math.min(3, finite.length));
      end.forEach((value, at) => {
        const found = finite[finite.length - end.length + at];
        assert.ok(Math.abs(found - value) < 1e-9 * Math.max(1, Math.abs(value)), `${key}: ${found}, not ${value}`);
      });
    }
  }
});

test("no number of a step is left out", () => {
  for (const one of cases) {
    const { run } = studyOf(one);
    for (const [key, [sum, squares]] of Object.entries(one.sums)) {
      const finite = run[key].filter(Number.isFinite);
      const found = [finite.reduce((a, b) => a + b, 0), finite.reduce((a, b) => a + b * b, 0)];
      const near = 1e-9 * Math.max(1, Math.sqrt(finite.length * squares));
      assert.ok(Math.abs(found[0] - sum) < near, `${key}: sum ${found[0]}, not ${sum}`);
      assert.ok(Math.abs(found[1] - squares) < 1e-9 * Math.max(1, squares), `${key}: squares ${found[1]}, not ${squares}`);
    }
  }
});

test("numbers are rounded as in Python", () => {
  for (const [value, two, percents] of cases[0].rounded) assert.deepEqual([value, fixed(value), percent(value)], [value, two, percents]);
  assert.deepEqual([fixed(0.125), fixed(-0.001), percent(0.00125)], ["0.13", "0.00", "0.1 %"]);
});

test("the page says the same of every step", () => {
  for (const one of cases) {
    const study = studyOf(one);
    for (const [step, at, head, said] of one.said) {
      study.set({ step, at, head });
      study.read();
      assert.equal(study.sentence, said);
    }
  }
});

test("what is not read is refused in the same words", () => {
  for (const one of cases) {
    for (const [text, said] of one.refused) assert.deepEqual(read(one._told, text), { refusal: said });
  }
  assert.ok(cases.some((one) => one.refused.length > 5));
});

test("the same letters are written", () => {
  for (const one of cases) {
    const study = studyOf(one, one.sampling);
    const refused = study.write(6);
    assert.equal(study.model.get("text"), one.text + one.written);
    study.read();
    const count = study.n - one.tokens.length;
    const { full, joined } = one._told.refusals;
    assert.equal(refused, count === 6 ? "" : study.n === one._told.maxLen ? full : joined);
  }
});

test("a text is shortened by its last token, but keeps its first", () => {
  const study = studyOf(cases[0]);
  for (let left = study.n - 1; left >= 1; left -= 1) {
    study.shorten();
    study.read();
    assert.equal(study.n, left);
  }
  study.shorten();
  assert.equal(study.model.get("text"), cases[0].text[0]);
});

test("a head is silenced and heard again", () => {
  const study = studyOf(cases[0]);
  study.flip(2, 1);
  study.flip(0, 0);
  assert.deepEqual(study.model.get("silent"), [[0, 0], [1, 0], [2, 1]]);
  study.read();
  study.flip(1, 0);
  assert.deepEqual(study.model.get("silent"), [[0, 0], [2, 1]]);
});

test("a full text is said to be full", () => {
  const study = studyOf(cases[0], { text: "abcdeabcdea" });
  assert.equal(study.write(1), cases[0]._told.refusals.full);
  assert.equal(study.model.get("text").length, 11);
});

test("small numbers: half precision, GELU, softmax, draws", () => {
  assert.deepEqual([0x3c00, 0xc000, 0x3555, 0x0001, 0x7c00].map(half), [1, -2, 0.333251953125, 2 ** -24, Infinity]);
  assert.ok(Math.abs(gelu(1) - 0.8413447460685429) < 1e-15);
  assert.ok(Math.abs(gelu(-3) + 0.004049694094890287) < 1e-15);
  assert.equal(gelu(20), 20);
  assert.deepEqual([...softmax(Float64Array.of(5, -Infinity, 5, 1e9), 2)], [1, 0, 0, 1]);
  assert.deepEqual(ordered([1, 3, 2, 3]), [1, 3, 2, 0]);
  assert.equal(drawn([1, 3, 2, 3], 0, 4, 0.99), 1);
  assert.equal(drawn([1, 3, 2, 3], 1, 1, 0.99), 1);
  assert.equal(drawn([0, 0], 1, 2, 0.6), 1);
  assert.notEqual(uniform(0, 0), uniform(1, 0));
});
