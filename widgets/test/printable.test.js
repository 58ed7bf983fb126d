import assert from "node:assert/strict";
import { test } from "node:test";

import { printable } from "#lib/printable.js";

test("what XML does not know is written as Python escapes it", () => {
  assert.equal(printable("a\x07b\x00\ud800c\uffff"), "a\\x07b\\x00\\ud800c\\uffff");
});

test("all else stays: new lines, tabs, whole surrogate pairs", () => {
  assert.equal(printable("a\tb\n😀 é ∑"), "a\tb\n😀 é ∑");
});
