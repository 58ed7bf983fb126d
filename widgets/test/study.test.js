import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { asBytes, MOST } from "../attnlab_widgets/pattern_studio/mask.js";
import { Study } from "../attnlab_widgets/pattern_studio/study.js";

const { primitives } = JSON.parse(readFileSync(new URL("patterns.json", import.meta.url)));

/** A model as a kernel's is: what is set is told at once, what is saved is kept in `sent`. */
function studied(expression, n) {
  const none = new DataView(new ArrayBuffer(0));
  const values = { expression, n, painted: none, row: 0, layer: 1, residual: true, scores: "sharp", _side: 0, _scores: none, _primitives: primitives };
  const model = {
    sent: null,
    get: (name) => values[name],
    set(name, value) {
      values[name] = value;
      study?.load();
    },
    save_changes: () => (model.sent = { ...values }),
  };
  let study = null;
  study = new Study(model);
  return { study, model };
}

const cells = (study) => [...study.cells.keys()].map((place) => [Math.floor(place / MOST), place % MOST]);

test("a stroke that is under way outlives what a kernel says of the time before", () => {
  const { study, model } = studied("local(1)", 7);
  study.hold();
  study.paint([[0, 4]], 1);
  study.paint([[0, 5]], 1, "going on");
  model.set("painted", asBytes(new Map([[4, 1]])));
  assert.equal(study.allowed(0, 5), 1);
  study.paint([[0, 6]], 1, "going on");
  study.save();
  assert.deepEqual(cells(study), [[0, 4], [0, 5], [0, 6]]);
  assert.equal(model.sent.painted.byteLength, 9);
  model.set("painted", asBytes(new Map()));
  assert.deepEqual(cells(study), [], "afterwards the kernel counts again");
});

test("a cell that says what the expression says is not painted", () => {
  const { study } = studied("local(1)", 7);
  study.paint([[3, 3], [3, 6]], 0);
  assert.deepEqual(cells(study), [[3, 3]]);
  study.paint([[3, 3]], 1);
  assert.deepEqual(cells(study), []);
});

test("a stroke is one deed, and so are the moves of one slider; both are undone and done again", () => {
  const { study } = studied("local(1)", 7);
  study.paint([[0, 4]], 1);
  study.paint([[0, 5]], 1, "going on");
  for (const n of [8, 9, 10]) assert.ok(study.propose({ n }, "n"));
  assert.equal(study.past.length, 2);
  study.undo();
  assert.equal(study.n, 7);
  assert.equal(cells(study).length, 2);
  study.undo();
  assert.equal(cells(study).length, 0);
  study.redo();
  study.redo();
  assert.equal(study.n, 10);
  assert.equal(cells(study).length, 2);
  study.undo();
  study.propose({ text: "local(3)" }, "text");
  assert.equal(study.future.length, 0);
});

test("what does not fit is a draft; the last mask stays until both fit", () => {
  const { study, model } = studied("local(1)", 7);
  assert.equal(study.propose({ text: "axial((2, 4), 0)" }, "text"), false);
  assert.match(study.error, /2 × 4 has 8 positions, but the sequence has 7/);
  assert.deepEqual([study.written, study.text, model.sent], ["axial((2, 4), 0)", "local(1)", null]);
  model.set("row", 2);
  assert.match(study.error, /8 positions/, "other changes leave it standing");
  assert.ok(study.propose({ n: 8 }, "n"));
  assert.deepEqual([model.sent.expression, model.sent.n, study.error], ["axial((2, 4), 0)", 8, ""]);
  assert.equal(study.propose({ text: "lokal(2)" }, "text"), false);
  model.set("expression", "local(2)");
  assert.deepEqual([study.written, study.error], ["local(2)", ""], "Python's word ends the draft");
});

test("a chosen row stays inside when the sequence shrinks", () => {
  const { study, model } = studied("local(1)", 7);
  study.set({ row: 6 });
  study.propose({ n: 3 }, "n");
  assert.equal(model.sent.row, 2);
});
