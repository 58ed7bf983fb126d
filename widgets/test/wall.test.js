import assert from "node:assert/strict";
import { test } from "node:test";
import {
  arranged, arrangedAround, bytes, flops, lengthSaid, levelsOf, mapOf, onScale, openTile, pairsOf, readAloud, setName, short, strongestKeys, three, word,
} from "#lib/wall.js";

/** As wall_bytes.encode writes it: two heads of one row of three, scales 0.5 and 0.25. */
function coded(codes, signed = false) {
  const buffer = new ArrayBuffer(4 + 8 + 8);
  new Float32Array(buffer, 4, 2).set([0.5, 0.25]);
  new Uint8Array(buffer, 12, 6).set(codes);
  return openTile(buffer, { at: 4, h: 2, n: 1, m: 3, signed, exact: true, how: "" });
}

test("code 0 is masked, code 1 a weight of zero", () => {
  const tile = coded([0, 1, 255, 0, 128, 255]);
  assert.deepEqual([...tile.masked], [1, 0, 0, 1, 0, 0]);
  assert.deepEqual([...tile.weights].map((w) => Number(w.toFixed(4))), [0, 0, 0.5, 0, 0.0625, 0.25]);
});

test("signed codes lie around 128", () => {
  const tile = coded([1, 128, 255, 0, 128, 255], true);
  assert.deepEqual([...tile.weights].map((w) => Number(w.toFixed(4))), [-0.5, 0, 0.5, 0, 0, 0.25]);
});

test("a mechanism without a map keeps its reason", () => {
  assert.equal(openTile(new ArrayBuffer(0), { why: "no grid" }).why, "no grid");
});

test("one head, or the mean of all, masked where all are", () => {
  const tile = coded([0, 1, 255, 1, 0, 255]);
  assert.deepEqual([...mapOf(tile, 1).masked], [0, 1, 0]);
  const mean = mapOf(tile, null);
  assert.deepEqual([...mean.masked], [0, 0, 0]);
  assert.equal(mean.values[2], 0.375);
  assert.equal(mean.largest, 0.375);
  assert.equal(pairsOf(mapOf(tile, 0)), 2);
  assert.equal(mapOf({ ...tile, h: 1 }, 3).values[2], 0.5, "a layer without heads has one map");
});

test("colours compare a weight with an even share of what its row may attend to", () => {
  const map = { n: 2, m: 4, signed: false, largest: 0.5 };
  const values = [0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0, 0];
  const masked = [0, 0, 0, 0, 0, 0, 1, 1];
  const even = Math.round(255 / 3);
  const levels = [...levelsOf({ ...map, values, masked })];
  assert.deepEqual(levels, [even, even, even, even, even, even, 0, 0]);
  const sharp = [...levelsOf({ ...map, values: [1, 0, 0, 0, 0, 0, 0, 0], masked: new Array(8).fill(0) })];
  assert.deepEqual(sharp, [Math.round((255 * 16) / 18), 0, 0, 0, 0, 0, 0, 0]);
  const signs = levelsOf({ n: 1, m: 3, signed: true, largest: 4, values: [-4, 0, 1], masked: [0, 0, 0] });
  assert.deepEqual([...signs], [0, 128, Math.round(127.5 + 127.5 / 2)]);
});

const TILES = [
  { name: "a", title: "Zebra", family: "dense", year: 2020, causal: "optional", few: true, time: [5, 50] },
  { name: "b", title: "Ant", family: "fixed", year: 2017, causal: "never", time: [7, 20] },
  { name: "c", title: "Mole", family: "fixed", year: 2019, causal: "always", time: [6, 60] },
];
const order = (options) => arranged([...TILES], { order: "family", family: "", seeing: "all", at: 0, ...options }).map(({ name }) => name).join("");

test("order and filter", () => {
  assert.equal(order({}), "abc");
  assert.equal(order({ order: "year" }), "bca");
  assert.equal(order({ order: "name" }), "bca");
  assert.equal(order({ order: "cost" }), "acb");
  assert.equal(order({ order: "cost", at: 1 }), "bac");
  assert.equal(order({ family: "fixed" }), "bc");
  assert.equal(order({ seeing: "causal" }), "ac");
  assert.equal(order({ seeing: "few" }), "a");
  assert.equal(order({ seeing: "both sides" }), "ab");
});

test("numbers in three digits", () => {
  assert.equal(short(512), "512");
  assert.equal(short(98304), "98.3 k");
  assert.equal(short(999.6e9), "1.00 T");
  assert.equal(short(2.199e12), "2.20 T");
  assert.equal(flops(512), "512 FLOPs");
  assert.equal(flops(98304), "98.3 kFLOPs");
  assert.equal(bytes(100), "400 B");
  assert.equal(bytes(1e6), "4.00 MB");
  assert.equal(three(0.2512), "0.25");
  assert.equal(three(-0.00412), "−0.0041");
});

test("words", () => {
  assert.equal(word("␣key"), "key");
  assert.equal(word("␣"), "␣");
  assert.equal(setName("trained", false, 31), "trained both 31");
  assert.equal(lengthSaid(8, 31), "the first 8 of 31 tokens");
  assert.equal(lengthSaid(31, 31), "31 tokens");
  assert.equal(lengthSaid(65536, 31), "65,536 tokens");
});

test("a pair is read aloud, a masked one as masked, a summary by its number", () => {
  const map = { n: 2, m: 3, values: [0.5, 0.25, 0.25, 0, 1, 0], masked: [0, 0, 0, 1, 0, 0] };
  const said = (i, j) => readAloud("BigBird", "head 1", ["the", "cat"], map, i, j);
  assert.equal(said(0, 1), "BigBird, head 1: “the” takes 0.25 from “cat”");
  assert.equal(said(1, 0), "BigBird, head 1: “cat” may not attend to “the”: the pair is masked");
  assert.equal(said(0, 2), "BigBird, head 1: “the” takes 0.25 from summary 1");
  assert.deepEqual(strongestKeys(map), [[0, 0, 0.5], [1, 1, 1]]);
});

test("places on a logarithmic scale", () => {
  assert.equal(onScale(10, 1, 100), 0.5);
});

test("pages of another role, in the chosen order", () => {
  const pages = [{ name: "b", title: "B", role: "join", year: 2020 }, { name: "a", title: "A", role: "join", year: 2022 }, { name: "c", title: "C", role: "feed", year: 2017 }];
  const names = (role, order) => arrangedAround(pages, role, order).map(({ name }) => name).join("");
  assert.deepEqual([names("join", "name"), names("join", "year"), names("join", "cost"), names("feed", "name"), names("depth", "name")], ["ab", "ba", "ba", "c", ""]);
});
