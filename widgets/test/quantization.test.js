import assert from "node:assert/strict";
import test from "node:test";
import { asBuffer, errorBound, openLayer, openMask, table } from "#lib/quantization.js";
import { fromText } from "#lib/base85.js";

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

// numpy.packbits(…) of the mask, as attnlab_widgets.quantization.masked writes them.
const every = ({ allowed }, n, m, head = 0) => Array.from({ length: n }, (_, i) => Array.from({ length: m }, (_, j) => Number(allowed(head, i, j))).join("")).join(" ");

test("a mask is a rule, hidden keys, or bits for each head", () => {
  assert.equal(every(openMask({ causal: 0, heads: 0, at: null }, null, 3, 3), 3, 3), "100 110 111");
  assert.equal(every(openMask({ causal: 1, heads: 0, at: null }, null, 2, 3), 2, 3), "110 111");
  const keys = Uint8Array.of(0b11010000);
  assert.equal(every(openMask({ causal: null, heads: 0, at: 0 }, keys, 2, 5), 2, 5), "11010 11010");
  const bits = Uint8Array.of(0b10101111, 0b00010000);
  const two = openMask({ causal: null, heads: 2, at: 0 }, bits, 2, 3);
  assert.equal(every(two, 2, 3, 0), "101 011");
  assert.equal(every(two, 2, 3, 1), "110 001");
  assert.deepEqual([two.any(0, 0, 1, 1, 2), two.any(0, 0, 2, 1, 2), two.shared], [false, true, false]);
  const causal = openMask({ causal: 0, heads: 0, at: null }, null, 9, 9);
  assert.deepEqual([causal.any(0, 0, 3, 3, 6), causal.any(0, 0, 4, 3, 6), causal.shared], [false, true, true]);
});

// The bytes that Python writes for one head of 1 × 300 with 2 kept columns, 299 and 5, and one tile.
test("of a long row the kept columns and codes are read", () => {
  const buffer = new ArrayBuffer(4 * 4 + 4 + 4 + 4 + 4);
  new Float32Array(buffer, 0, 4).set([0.5, 1, 0.25, 0.25]);
  new Uint8Array(buffer, 16, 2).set([299 & 255, 5]);
  new Uint8Array(buffer, 20, 2).set([1, 0]);
  new Uint8Array(buffer, 24, 2).set([1, 55]);
  const header = { at: 0, norms: false, whole: false, signed: false, kept: 2, side: 300, planes: 2 };
  const layer = openLayer(buffer, header, { h: 1, n: 1, m: 300 });
  assert.deepEqual([...layer.places], [299, 5]);
  assert.deepEqual([...layer.codes], [255, 200]);
});

test("what rows leave of one stands behind the layer, and is null without", () => {
  const floats = new Float32Array([0, 0.9, 0.8, 0, 0, 0.1, 0.2]);
  const header = { at: 4, norms: false, whole: true, signed: false };
  const shape = { h: 1, n: 2, m: 1 };
  assert.deepEqual([...openLayer(floats.buffer, { ...header, left: 20 }, shape).left], [...floats.slice(5)]);
  assert.equal(openLayer(floats.buffer, header, shape).left, null);
});
