import assert from "node:assert/strict";
import test from "node:test";
import { asBuffer, errorBound, openLayer, table } from "../src/lib/quantization.js";
import { fromText } from "../src/lib/base85.js";

// The very bytes that attnlab_widgets.quantization.block writes for norms (1, 2) and maps (1, 3, 2).
test("a layer is read where Python wrote it", () => {
  const buffer = new ArrayBuffer(4 + 8 + 12 + 12 + 8);
  new Float32Array(buffer, 4, 8).set([2, 3, 7, 8, 9, 0.5, 1, 0.25]);
  new Uint8Array(buffer, 36, 6).set([255, 0, 128, 64, 255, 1]);
  const layer = openLayer(buffer, { at: 4, norms: true, whole: true, signed: false }, { h: 1, n: 3, m: 2 });
  assert.deepEqual([...layer.norms], [2, 3]);
  assert.deepEqual([...layer.first], [7, 8, 9]);
  assert.deepEqual([...layer.scales], [0.5, 1, 0.25]);
  assert.deepEqual([...layer.codes], [255, 0, 128, 64, 255, 1]);
});

test("codes are squares, signed ones about 128", () => {
  assert.equal(table(false)[255], 1);
  assert.ok(Math.abs(table(false)[51] - 0.04) < 1e-7);
  assert.equal(table(true)[128], 0);
  assert.equal(table(true)[255], 1);
  assert.equal(table(true)[1], -1);
});

test("the error is below 0.4 % of the row's largest", () => {
  assert.ok(errorBound(0.5, 0.5, false) < 0.004 * 0.5);
  assert.ok(errorBound(0.001, 0.5, false) < errorBound(0.5, 0.5, false));
  assert.ok(errorBound(0.5, 0.5, true) > errorBound(0.5, 0.5, false));
});

test("bytes that do not start at a multiple of four are copied", () => {
  const bytes = new Uint8Array([9, 1, 2, 3, 4]);
  const buffer = asBuffer(new DataView(bytes.buffer, 1, 4));
  assert.deepEqual([...new Uint8Array(buffer)], [1, 2, 3, 4]);
  const whole = new Uint8Array([1, 2, 3, 4]);
  assert.equal(asBuffer(whole), whole.buffer);
});

test("base 85 of Python is read, whatever its length", () => {
  // base64.b85encode(b"…").decode().replace("<", ".")
  const cases = [
    ["VRUqEY++&", "attnlab"],
    ["VRUqEY++&`a%Ev;a{", "attnlab reads"],
    ["VE", "a"],
    ["", ""],
  ];
  for (const [text, said] of cases) assert.equal(new TextDecoder().decode(fromText(text)), said);
  assert.deepEqual([...fromText("|NsC000")], [255, 255, 255, 255, 0]);
});
