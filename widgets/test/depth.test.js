// How tokens come to their final state, against Python's: test/depth.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { power, running, rowsOf, announcement, scaleOf, settledAt } from "../attnlab_widgets/depth_view/depth.js";
import { modelOf } from "#parts/page_model.js";
import { Study } from "../attnlab_widgets/depth_view/study.js";

const known = JSON.parse(readFileSync(new URL("./depth.json", import.meta.url), "utf8"));

function studyOf({ _depth, data }, state = {}) {
  const bytes = Uint8Array.from(Buffer.from(data, "base64"));
  const study = new Study(modelOf({ token: 0, step: 0, colour: "distance", order: "left", ...state, _depth, _data: new DataView(bytes.buffer) }));
  study.read();
  return study;
}

test("sentences, rows and colours are Python's", () => {
  assert.equal(known.length, 5);
  for (const one of known) {
    const { depth, rows, values, scale } = studyOf(one);
    one.said.forEach((said, token) => assert.equal(announcement(depth, token), said));
    assert.deepEqual(one.settled, one.settled.map((_, i) => settledAt(depth, i)));
    assert.deepEqual(running(depth), one.running);
    assert.deepEqual(rows, one.rows);
    one.shares.forEach((share, at) => {
      const found = Number.isNaN(values[at]) ? 2 : scale.share(values[at]);
      assert.ok(Math.abs(found - share) < 1e-5, `${found} is not ${share}`);
    });
  }
});

test("rows stand as in the text unless asked otherwise", () => {
  assert.deepEqual(rowsOf({ left: [3, 1, 2], n: 3 }, "text"), [0, 1, 2]);
  assert.deepEqual(rowsOf({ left: [3, 1, 1], n: 3 }, "left"), [1, 2, 0]);
});

test("colours are logarithmic where values differ much, and a probability is its own", () => {
  assert.ok(Math.abs(scaleOf([1e-3, 1e-1], "change").share(1e-2) - 0.5) < 1e-9);
  assert.equal(scaleOf([0.25, 1], "change").share(0.25), 0.5);
  assert.equal(scaleOf([0.2], "probability").share(0.4), 0.4);
});

test("numbers of any size in few letters", () => {
  assert.deepEqual([0, 0.04, 12.5, 3.1e-5, 1234].map(power), ["0.00", "0.04", "12.50", "3.1e−5", "1.2e3"]);
});
