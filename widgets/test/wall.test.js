import assert from "node:assert/strict";
import { test } from "node:test";
import {
  arranged, arrangedAround, bytes, flops, lengthSaid, mapOf, onlyKeys, onScale, openTile, pairsOf, readAloud, scaleSaid, setName, short, strongestKeys, three, word,
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
  assert.equal(pairsOf(mapOf(tile, 0)), 2);
  assert.equal(mapOf({ ...tile, h: 1 }, 3).values[2], 0.5, "a layer without heads has one map");
});

const tileOf = (values, { n = 1, signed = false, masked = values.map(() => 0) } = {}) =>
  mapOf({ h: 1, n, m: values.length / n, signed, weights: Float32Array.from(values), masked: Uint8Array.from(masked) }, null);

test("the colour is the square root of the weight, from 0 to 1, in all maps", () => {
  const plain = tileOf([0, 0.25, 0.49]);
  assert.deepEqual([...plain.levels], [0, Math.round(255 * 0.5), Math.round(255 * 0.7)]);
  assert.equal(scaleSaid(plain), "");
});

test("a map with both signs, or beyond 1, goes to its largest and says so", () => {
  const signs = tileOf([-4, 0, 1], { signed: true });
  assert.deepEqual([...signs.levels], [0, 128, Math.round(127.5 + 127.5 / 2)]);
  assert.equal(scaleSaid(signs), "±4.00");
  const large = tileOf([4, 0, 1]);
  assert.deepEqual([...large.levels], [255, 0, Math.round(255 / 2)]);
  assert.equal(scaleSaid(large), "to 4.00");
});

test("the only key of a query has all of its weight: it is told apart, and left out of the scale", () => {
  const causal = { n: 2, masked: [0, 1, 0, 0] };
  assert.deepEqual(tileOf([1, 0, 0.5, 0.5], causal).alone, [0]);
  assert.deepEqual(tileOf([0.8, 0, 0.5, 0.5], causal).alone, [], "less than all says something");
  const signs = tileOf([1, 0, -0.25, 0.25], { ...causal, signed: true });
  assert.equal(signs.top, 0.25);
  assert.deepEqual(onlyKeys({ n: 1, m: 2, values: [1, 0], masked: [0, 0] }), [], "a key of weight 0 is a key");
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

test("full attention stands first, whatever the order", () => {
  const names = (by) => arranged([...TILES, { ...TILES[0], name: "full", title: "Full", year: 2024, time: [99, 99] }], { order: by, family: "", seeing: "all", at: 0 }).map(({ name }) => name);
  for (const by of ["year", "name", "cost", "family"]) assert.equal(names(by)[0], "full");
  assert.deepEqual(names("year"), ["full", "b", "c", "a"]);
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
