// What ErrorGraph says, against Python's: test/errors.json, written by the mirror test; keys and places.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { spread, stepped } from "../attnlab_widgets/error_graph/stage.js";
import { LOOKS, sentence } from "../attnlab_widgets/error_graph/words.js";

const known = JSON.parse(readFileSync(new URL("./errors.json", import.meta.url), "utf8"));

test("sentences are Python's", () => {
  assert.equal(known.length, 2);
  for (const { _told, said } of known) said.forEach((one, node) => assert.equal(sentence(_told, node), one));
});

test("kinds have the names that Python counts", () => {
  const [{ _told }] = known;
  for (const look of LOOKS.slice(0, 4)) {
    const count = _told.nodes.filter(({ kind }) => LOOKS[kind] === look).length;
    assert.ok(_told.said.includes(`${count} ${look}`), look);
  }
});

test("keys go through the steps and stop at both ends", () => {
  assert.equal(stepped("ArrowRight", 2, 5), 3);
  assert.equal(stepped("ArrowUp", 2, 5), 1);
  assert.equal(stepped("ArrowLeft", 0, 5), 0);
  assert.equal(stepped("PageDown", 4, 5), 4);
  assert.equal(stepped("Home", 3, 5), 0);
  assert.equal(stepped("End", 0, 5), 4);
  assert.equal(stepped("a", 0, 5), null);
});

test("places keep off the edges", () => {
  assert.deepEqual(spread([[0, 0], [1, 1], [0.5, 0.5]], 500, 300), [[34, 34], [466, 266], [250, 150]]);
});
