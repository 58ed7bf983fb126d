// The bills against Python's: test/cache.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Study } from "../attnlab_widgets/cache_view/study.js";
import { bytesOf, extent, total, within } from "../attnlab_widgets/cache_view/bills.js";
import { sentence, size, thousands } from "../attnlab_widgets/cache_view/words.js";

const known = JSON.parse(readFileSync(new URL("./cache.json", import.meta.url), "utf8"));

test("bytes, extents, scopes and sentence are Python's", () => {
  assert.ok(known.length >= 40);
  for (const one of known) {
    const { kinds, layers: own } = one.preset;
    assert.deepEqual(one.layers.map((key) => bytesOf(kinds[key], one.tokens, one.bits)), one.sizes);
    assert.equal(total(kinds, own, one.tokens), one.published);
    assert.deepEqual(one.layers.map((key) => extent(kinds[key], one.tokens, 250)), one.extents);
    const scoped = one.layers.map((_, at) => at).filter((at) => within(one.scope, one.layer, at));
    assert.deepEqual(scoped, one.scoped);
    assert.equal(sentence({ ...one, kinds }), one.said);
  }
});

test("two choices before a drawing are both kept", () => {
  const values = { ...known[0], name: known[0].preset.name, layers: known[0].preset.layers, layer: 0, _models: [known[0].preset] };
  const model = { get: (name) => values[name], set: (name, value) => (values[name] = value), save_changes() {} };
  const study = new Study(model);
  study.read();
  study.set({ scope: "all layers" });
  study.switch("mqa");
  assert.deepEqual(new Set(values.layers), new Set(["mqa"]));
  study.choose(study.layer + 1);
  study.choose(study.layer + 1);
  assert.equal(values.layer, 2);
});

test("sizes have three digits and thousands a comma", () => {
  assert.deepEqual([0, 999, 1000, 12345, 2.5e9, 4e15].map(size), ["0 B", "999 B", "1 kB", "12.3 kB", "2.5 GB", "4,000 TB"]);
  assert.deepEqual([1, 999, 1024, 1048576].map(thousands), ["1", "999", "1,024", "1,048,576"]);
});
