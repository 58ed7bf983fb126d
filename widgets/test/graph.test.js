// The graph against Python's words and numbers: test/graph.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { arrow, attendedBy, graphSaid, halfWay, hopMarks, hopsAlong, hopsOf, hopWeight, inside, movedBy, namesPlaced, neighbourTowards, openGraph, weightsOf } from "../attnlab_widgets/graph_view/graph.js";
import { Study } from "../attnlab_widgets/graph_view/study.js";

const known = JSON.parse(readFileSync(new URL("./graph.json", import.meta.url), "utf8"));
const bytes = (words) => new DataView(Uint16Array.from(words).buffer);
const opened = ({ graph, pairs, weights }) => openGraph(graph, bytes(pairs), bytes(weights));

test("weights, hops and sentences are Python's", () => {
  assert.ok(known.length >= 13);
  for (const one of known) {
    const graph = opened(one);
    const weights = weightsOf(graph, one.state.layer, one.state.head);
    assert.equal(weights.length, one.values.length);
    weights.forEach((w, at) => assert.ok(Math.abs(w - one.values[at]) < 1e-12));
    if (one.state.node !== null) assert.deepEqual(hopsOf(graph, one.state.node), one.hops);
    assert.equal(graphSaid(graph, weights, one.state), one.said);
  }
});

test("the hops of a path, their weights and marks are Python's", () => {
  assert.ok(known.filter(({ along }) => along.length > 1).length >= 5);
  for (const one of known) {
    const graph = opened(one);
    const hops = hopsAlong(graph);
    assert.equal(hops.length, one.along.length);
    hops.forEach((hop, at) => assert.ok(Math.abs((hopWeight(graph, hop, one.state.head).w ?? 1) - one.along[at]) < 1e-12));
    assert.deepEqual(hopMarks(hops, one.state.step).map(({ at, text, now }) => [at, text, now]), one.marks);
  }
});

test("a step sets the layer of its hop, and drops a head that this layer lacks", () => {
  const one = known.find(({ graph }) => graph.path.length === 3 && graph.layers[1].h === 1);
  const state = { ...one.state, positions: [], _graph: one.graph, _pairs: bytes(one.pairs), _weights: bytes(one.weights) };
  const study = new Study({ get: (name) => state[name], set: (name, value) => (state[name] = value), save_changes() {} });
  study.read();
  study.chooseStep(1);
  assert.deepEqual([state.step, state.layer, state.head], [1, 0, 2]);
  study.read();
  study.chooseStep(2);
  assert.deepEqual([state.step, state.layer, state.head], [2, 1, null]);
  study.read();
  study.chooseStep(0);
  assert.deepEqual([state.step, state.layer], [0, 1]);
});

test("names are wanted in the order of the still picture", () => {
  for (const one of known) {
    const state = { ...one.state, positions: [], _graph: one.graph, _pairs: bytes(one.pairs), _weights: bytes(one.weights) };
    const study = new Study({ get: (name) => state[name] });
    study.read();
    assert.deepEqual(study.wanted, one.wanted);
  }
});

test("bytes that begin in the middle of a buffer are read", () => {
  const one = known[0];
  const shifted = new Uint8Array(2 * one.pairs.length + 3);
  shifted.set(new Uint8Array(Uint16Array.from(one.pairs).buffer), 3);
  const graph = openGraph(one.graph, new DataView(shifted.buffer, 3), bytes(one.weights));
  assert.deepEqual(graph.sources, opened(one).sources);
});

test("whom a node attends to, the strongest first; of equal ones the first", () => {
  const told = { labels: ["0", "1", "2"], layers: [{ title: "layer 0", h: 1 }] };
  const graph = openGraph(told, bytes([0, 0, 0, 1, 0, 2, 2, 1]), bytes([100, 300, 300, 0]));
  assert.deepEqual(attendedBy(graph, weightsOf(graph, 0, null), 0).map(({ node }) => node), [1, 2, 0]);
  assert.deepEqual(attendedBy(graph, weightsOf(graph, 0, 0), 2), []);
  assert.deepEqual(hopsOf(graph, 2), [-1, 1, 0]);
});

test("names do not lie on each other, nor on nodes unless they must be said", () => {
  const wanted = Array.from({ length: 60 }, (_, node) => ({ node, x: 20 + 37 * (node % 8), y: 20 + 23 * Math.floor(node / 8), w: 30 + (node % 7) * 20, strong: node < 5 }));
  const points = wanted.map(({ x, y }) => [x, y]);
  const crowded = ({ x, y, w, h }) => points.filter(([px, py]) => px > x && px < x + w && py > y && py < y + h).length;
  const found = namesPlaced(wanted, { wide: 340, high: 220, radius: 7, crowded });
  assert.equal(found[0].node, 0);
  assert.ok(found.length > 5);
  const boxes = found.map(({ node, left, y }) => ({ node, x: left, y: y - 6.5, w: wanted[node].w, h: 13 }));
  boxes.forEach((a, at) => {
    assert.ok(a.x >= 0 && a.x + a.w <= 340 && a.y >= 0 && a.y + a.h <= 220);
    assert.ok(wanted[a.node].strong || !crowded(a));
    for (const b of boxes.slice(at + 1)) assert.ok(a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y);
  });
});

test("an arrow ends at its node, and those of two directions bend apart", () => {
  const one = arrow([0, 0], [100, 0], 7, 2, true);
  assert.ok(Math.abs(Math.hypot(100 - one.head[0][0], one.head[0][1]) - 8) < 1e-9);
  const other = arrow([100, 0], [0, 0], 7, 2, true);
  assert.ok(one.middle[1] * other.middle[1] < 0);
  assert.deepEqual(arrow([0, 0], [100, 0], 7, 2, false).middle, [50, 0]);
  assert.deepEqual(halfWay({ from: [0, 0], middle: [10, 8], to: [20, 0] }), [10, 4]);
});

test("arrow keys lead to the node in their direction", () => {
  const places = [[50, 50], [90, 55], [60, 10], [10, 52], [50, 95], [300, 50]];
  assert.deepEqual(["ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"].map((key) => neighbourTowards(places, 0, key)), [1, 2, 3, 4]);
  assert.equal(neighbourTowards(places, 5, "ArrowRight"), 5);
  assert.deepEqual(movedBy([0.5, 0.99], "ArrowDown", 0.03), [0.5, 1]);
  assert.deepEqual(movedBy([0.5, 0.99], "ArrowLeft", 0.03), [0.47, 0.99]);
  assert.equal(inside(-3), 0);
});
