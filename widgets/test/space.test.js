// The query-key space on the page against Python's: test/space.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { cellBox, gridOf, nearest, onScreen, panned, still, turn, zoomed } from "../attnlab_widgets/query_key_space/camera.js";
import { coloured, legendOf, valuesOf } from "#lib/colouring.js";
import { byDistance, common, over, run } from "../attnlab_widgets/query_key_space/cluster.js";
import { crowd, inside, placed, shuffled } from "#lib/labelling.js";
import { attentionOf, bytesOf, byPositionOf, keysOf, normsOf, placesOf, queriesOf, tokenSet } from "../attnlab_widgets/query_key_space/space.js";
import { bare, convention, found, frequencies, kindOf, kindsOf } from "#lib/tokens.js";
import { pageModel } from "#parts/page.js";

const known = JSON.parse(readFileSync(new URL("./space.json", import.meta.url), "utf8"));
const model = await pageModel(known.state);
const space = model.get("_space");
const data = bytesOf(model.get("_data"));
const set = tokenSet(data, space.tokens[0]);
const at = space.maps[0].heads.findIndex(({ is }) => is.join() === known.head.join());
const own = space.points[0].layers[known.head[0]].heads[known.head[1]];
const attention = attentionOf(data, own.attention, set, set);

test("tokens, coordinates and strongest keys are Python's", () => {
  assert.deepEqual(known.texts.map((_, row) => set.full(row)), known.texts);
  assert.deepEqual([...set.sequence], known.sequence);
  assert.deepEqual([...set.position], known.position);
  const places = placesOf(data, space.maps[0].heads[at].at, 2 * set.n, 2);
  known.places.forEach(([x, y], i) => {
    assert.ok(Math.abs(places[3 * i] - x) < 1e-4 && Math.abs(places[3 * i + 1] - y) < 1e-4 && places[3 * i + 2] === 0);
  });
  known.strongest.forEach((rows, query) => {
    const wanted = rows.flatMap((row, one) => (row < 0 ? [] : [[row, known.weights[query][one]]]));
    const keys = keysOf(attention, query);
    assert.deepEqual(keys.map(({ row }) => row), wanted.map(([row]) => row));
    keys.forEach(({ w }, one) => assert.ok(Math.abs(w - wanted[one][1]) <= 0.033));
  });
});

test("no pair crosses sequences, and a key knows its queries", () => {
  let pairs = 0;
  for (let query = 0; query < set.n; query += 1) {
    for (const { row, w } of keysOf(attention, query)) {
      pairs += 1;
      assert.equal(set.sequence[row], set.sequence[query]);
      assert.ok(queriesOf(attention, row, set, set).some((one) => one.row === query && one.w === w));
    }
  }
  assert.ok(pairs > 50);
});

test("norms are shares of their range, attention by position sums to 1", () => {
  const norms = normsOf(data, own.norms, set.n, set.n);
  for (const side of ["query", "key", "value"]) {
    assert.equal(norms[side].length, set.n);
    assert.equal(Math.max(...norms[side]), 1);
    assert.ok(norms.ranges[side][0] < norms.ranges[side][1]);
  }
  assert.notDeepEqual([...norms.value], [...norms.query]);
  assert.notDeepEqual([...norms.value], [...norms.key]);
  const { weights, rows, columns } = byPositionOf(data, own.by_position);
  for (let row = 0; row < rows; row += 1) {
    const sum = weights.subarray(row * columns, (row + 1) * columns).reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(sum - 1) < 0.02);
  }
});

test("kinds of tokens follow how the vocabulary marks words", () => {
  const texts = (list) => list.map((one) => [one]);
  assert.equal(convention(texts(["the", "##ing"])), "piece");
  assert.equal(convention(texts([" the", "ing", "Ġcat"])), "start");
  assert.equal(convention(texts(["the", "cat", "\n"])), "");
  const kinds = (list, marks) => list.map((one, i) => kindOf(one, i ? list[i - 1] : null, marks));
  assert.deepEqual(kinds(["play", "##ing", "12", ",", "[SEP]"], "piece"), [0, 1, 2, 3, 5]);
  assert.deepEqual(kinds(["in", "ing", " the", "ory", ".", "py", "\n", "3.5", "<s>"], "start"), [0, 1, 0, 1, 3, 0, 4, 2, 5]);
  assert.deepEqual(kinds(["in", "ing"], ""), [0, 0]);
  assert.equal(kindsOf(set).length, set.n);
});

test("a search means whole tokens, or all that begin so", () => {
  const texts = [[" The"], ["the"], ["then"], ["␣the", " the"], ["##the"], ["*"]];
  assert.deepEqual(found(texts, "the"), [true, true, false, true, true, false]);
  assert.deepEqual(found(texts, "THE*"), [true, true, true, true, true, false]);
  assert.deepEqual(found(texts, "*"), [false, false, false, false, false, true]);
  assert.equal(found(texts, "  "), null);
  assert.equal(bare("Ġ"), "Ġ");
  const { counts, order } = frequencies(set);
  assert.equal(counts.reduce((a, b) => a + b), set.n);
  assert.ok(counts[order[0]] >= counts[order[1]]);
});

test("every way to colour gives each point a colour and says so in the legend", () => {
  const norms = normsOf(data, own.norms, set.n, set.n);
  for (const mode of ["side", "position", "modulo", "token", "kind", "norm", "frequency", "value_norm"]) {
    const values = valuesOf(mode, { q: set, k: set, norms, modulo: 3 });
    const colours = coloured(values, false);
    assert.equal(colours.length, 8 * set.n);
    assert.deepEqual([colours[3], colours[4 * set.n + 3]], [0, 255]); // the shapes
    const { few, ramps } = legendOf(values, false);
    assert.ok(few ? few.length >= 2 && few.length <= 9 : ramps.length >= 1, mode);
  }
  const values = valuesOf("modulo", { q: set, k: set, modulo: 3 });
  assert.deepEqual(legendOf(values, true).few.map(({ name }) => name), ["0", "1", "2"]);
  const colours = coloured(values, true);
  assert.deepEqual([...colours.subarray(0, 3)], [...colours.subarray(12, 15)]); // positions 0 and 3
  assert.notDeepEqual([...colours.subarray(0, 3)], [...colours.subarray(4, 7)]);
  assert.ok(legendOf(valuesOf("modulo", { q: set, k: set, modulo: 40 }), false).ramps);
});

test("the camera keeps the pixel under the pointer and comes home", () => {
  const places = Float32Array.from([0, 0, 0, 0.5, -0.25, 0]);
  const before = onScreen(places, still(), 400, 300, 2);
  assert.deepEqual([...before.subarray(0, 2)], [200, 150]);
  const [x, y] = [before[2] - 200, before[3] - 150];
  const closer = zoomed(still(), 2.5, x, y);
  const after = onScreen(places, closer, 400, 300, 2);
  assert.ok(Math.hypot(after[2] - before[2], after[3] - before[3]) < 1e-3);
  assert.ok(Math.abs(after[0] - before[0]) > 1);
  const home = zoomed(closer, 0.01, 7, 9);
  assert.deepEqual([home.x, home.y, home.zoom], [0, 0, 1]);
  assert.equal(panned(still(), 1e6, 0, 400, 300).x, 200);
  assert.equal(nearest(before, before[2] + 3, before[3], 10), 1);
  assert.equal(nearest(before, 5, 5, 10), -1);
  assert.equal(nearest(before, before[2], before[3], 10, (i) => i !== 1), -1);
});

test("a turn in three dimensions keeps lengths and right angles", () => {
  const [a, b, c, d, e, f, g, h, i] = turn({ yaw: 0.7, pitch: -0.4 }, 3);
  const rows = [[a, b, c], [d, e, f], [g, h, i]];
  rows.forEach((one, p) => rows.forEach((two, q) => {
    const product = one.reduce((sum, x, axis) => sum + x * two[axis], 0);
    assert.ok(Math.abs(product - Number(p === q)) < 1e-12);
  }));
  assert.deepEqual(turn({ yaw: 1, pitch: 1 }, 2), [1, 0, 0, 0, 1, 0, 0, 0, 1]);
});

test("cells of the matrix lie side by side", () => {
  const grid = gridOf(12, 4, 430, 320, { left: 30, top: 20 });
  assert.deepEqual([grid.rows, grid.w, grid.h], [3, 100, 100]);
  assert.deepEqual(cellBox(grid, 1, 2, still(), 430, 320), { x: 230, y: 120, w: 100, h: 100 });
  assert.equal(cellBox(grid, 1, 2, { x: 5, y: 0, zoom: 2 }, 430, 320).x, 250);
});

test("labels do not lie over each other, nor over many points", () => {
  const wanted = Array.from({ length: 60 }, (_, i) => ({ text: `t${i}`, x: 20 + (i % 10) * 12, y: 30 + Math.floor(i / 10) * 9 }));
  const none = () => 0;
  const out = placed(wanted, () => 20, { wide: 300, high: 200, most: 40, crowded: none });
  assert.ok(out.length > 3 && out.length < 40);
  out.forEach((a, i) => out.slice(i + 1).forEach((b) => {
    assert.ok(a.at + a.w <= b.at || b.at + b.w <= a.at || Math.abs(a.y - b.y) >= 14);
  }));
  assert.equal(placed(wanted, () => 20, { wide: 300, high: 200, most: 40, crowded: () => 9 }).length, 0);
  assert.equal(placed([{ ...wanted[0], strong: true }], () => 20, { wide: 300, high: 200, most: 40, crowded: () => 9 }).length, 1);
  const count = crowd([10, 10, 11, 11, 100, 100, -5, 3, 3, 4000], 120, 110);
  assert.equal(count({ x: 8, y: 8, w: 6, h: 6 }), 2);
  assert.equal(count({ x: -20, y: -20, w: 400, h: 400 }), 3);
});

test("what is drawn around, and an order that looks like chance", () => {
  const loop = [0, 0, 10, 0, 10, 10, 5, 3, 0, 10];
  assert.ok(inside(loop, 2, 4) && inside(loop, 8, 4));
  assert.ok(!inside(loop, 5, 8) && !inside(loop, 12, 4));
  const order = shuffled(1000);
  assert.deepEqual([...order].sort((a, b) => a - b), [...Array(1000).keys()]);
  assert.ok(order[0] !== 0 || order[1] !== 1);
  assert.ok(shuffled(70_000) instanceof Uint32Array);
});

test("what a cluster shares is what it has more of than the map", () => {
  const clump = [...Array(set.n).keys()].filter((row) => set.position[row] % 7 < 2);
  const rows = common({ query: clump, key: [] }, { q: set, k: set }, 7);
  const position = rows.find(({ what }) => what === "position");
  assert.deepEqual([position.name, position.share > 0.999, Math.abs(position.map - 2 / 7) < 1e-9], ["0 to 1", true, true]);
  assert.deepEqual(rows.filter(({ what }) => what === "position modulo 7").map(({ name }) => name).sort(), ["0", "1"]);
  const whole = [...Array(set.n).keys()];
  assert.deepEqual(common({ query: whole, key: whole }, { q: set, k: set }, 7), []);
  const text = set.text[3];
  const same = whole.filter((row) => set.text[row] === text);
  assert.equal(common({ query: [], key: same }, { q: set, k: set }, 7)[0].name, set.short(3));
  assert.deepEqual(over(Float64Array.from([0.5, 0.5]), Float64Array.from([0.1, 0.9])).map(({ value }) => value), [0]);
  assert.equal(run(Float64Array.from([0, 0.1, 0.9]), Float64Array.from([0.5, 0.3, 0.2])).first, 2);
  assert.equal(run(Float64Array.from([0.5, 0.5]), Float64Array.from([0.5, 0.5])), null);
});

test("attention of a cluster by distance is that of its queries", () => {
  const queries = [...Array(set.n).keys()].filter((row) => set.position[row] > 0);
  const bars = byDistance(queries, attention, { q: set, k: set });
  const previous = bars.find(({ distance }) => distance === -1);
  assert.ok(Math.abs(previous.w - 0.5) < 0.1); // head 0 attends to the token before
  assert.ok(bars.every(({ w }) => w <= previous.w));
  assert.equal(bars.at(-1).distance, 0);
});
