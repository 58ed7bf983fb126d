// Trees on the page against Python's: test/trees.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { MOST, oneWord, read, write } from "../attnlab_widgets/tree_explorer/brackets.js";
import { Study } from "../attnlab_widgets/tree_explorer/study.js";
import { accumulated, changed, fromWords, listed, mask, names, numbered, shape, shares, unwrapped, valued, without, withWord, wrapped } from "../attnlab_widgets/tree_explorer/trees.js";

const known = JSON.parse(readFileSync(new URL("./trees.json", import.meta.url), "utf8"));
const near = (a, b) => assert.ok(a === b || Math.abs(a - b) < 1e-9, `${a} is not ${b}`);
const allNear = (rows, wanted) => rows.forEach((row, i) => row.forEach((value, j) => near(value, wanted[i][j])));
const tree = (text, lists) => numbered(valued(read(text), lists));

test("tables are those that Python's recursion gives", () => {
  for (const one of known.tables) {
    const made = tree(one.tree, one);
    const found = accumulated(made);
    assert.equal(found.s.length, one.s.length);
    allNear(found.s, one.s);
    allNear(found.hat, one.hat);
    found.gathered.forEach((value, i) => near(value, one.gathered[i]));
    found.terms.forEach((terms, i) => near(terms.reduce((sum, term) => sum + (term ?? 0), 0), one.gathered[i]));
    assert.deepEqual(mask(made), one.mask);
    assert.deepEqual(names(made), one.names);
    assert.equal(write(made.root), one.tree);
  }
});

test("a text that is no tree has Python's sentence, and its column", () => {
  assert.equal(MOST, known.most);
  for (const { text, message } of known.errors) {
    assert.throws(() => read(text), (error) => {
      assert.equal(error.message, message);
      assert.equal(error.column, /^column (\d+)/.test(message) ? Number(/\d+/.exec(message)[0]) : null);
      return true;
    });
  }
});

test("the example worked by hand", () => {
  const made = tree("(S a (X b c))", { leaf_values: [1, 2, 3], node_values: [10, 20], weights: [1, 0.5, 2] });
  const { hat, gathered } = accumulated(made);
  allNear(hat, [[5.5, 32 / 3, 11], [null, 11, 11.5]]);
  near(gathered[0], (5.5 + 16 / 3 + 22) / 3);
  near(gathered[1], 14.25);
  const { lines, counts } = accumulated(made);
  near(fromWords(made, { lines, counts }, 0), (1 / 2 + (0.5 * 2) / 3 + (2 * 3) / 3) / 3);
  near(fromWords(made, { lines, counts }, 1), ((0.5 * 2) / 2 + (2 * 3) / 2) / 2);
});

test("numbers begin anew where a list does not fit", () => {
  const made = tree("(S (X a) b)", { leaf_values: [5, 6], node_values: [1, 2, 3], weights: undefined });
  assert.deepEqual(listed(made), { leaf_values: [5, 6], node_values: [10, 20], weights: [1, 1] });
});

test("shares add up to 1, and are none where terms cancel", () => {
  assert.deepEqual(shares([1, null, 3]), [0.25, null, 0.75]);
  assert.deepEqual(shares([-1, -3]), [0.25, 0.75]);
  assert.equal(shares([1, -3]), null);
  assert.equal(shares([0, 0]), null);
});

test("edits give another tree, keep the numbers, and leave the old one as it was", () => {
  const before = tree("(S (X a b) c)", { leaf_values: [5, 6, 7], node_values: [1, 2], weights: [2, 3, 4] });
  const { root, leaves: [a, b, c], nodes: [s, x] } = before;
  const word = { label: "d", value: 9, weight: 1, children: [] };
  assert.equal(write(withWord(root, x, word)), "(S (X a b d) c)");
  assert.equal(write(withWord(root, a, word)), "(S (X a d b) c)");
  assert.deepEqual(listed(numbered(withWord(root, a, word))), { leaf_values: [5, 9, 6, 7], node_values: [1, 2], weights: [2, 1, 3, 4] });
  const phrase = { label: "Y", value: 8 };
  assert.equal(write(wrapped(root, [x, c], phrase)), "(S (Y (X a b) c))");
  assert.equal(write(wrapped(root, [b], phrase)), "(S (X a (Y b)) c)");
  assert.equal(write(wrapped(root, [s], phrase)), "(Y (S (X a b) c))");
  assert.deepEqual(listed(numbered(wrapped(root, [a, b], phrase))).node_values, [1, 2, 8]);
  assert.equal(write(unwrapped(root, x)), "(S a b c)");
  assert.equal(unwrapped(root, s), null, "the root has two children");
  assert.equal(unwrapped(root, a), null, "a word has nothing to unwrap");
  const alone = numbered(read("(S a)"));
  assert.equal(unwrapped(alone.root, alone.root), null, "a word alone is no tree that can be drawn");
  assert.equal(write(without(root, x)), "(S c)");
  const one = numbered(without(root, a));
  assert.equal(write(without(one.root, one.leaves[0])), "(S c)", "the phrase that became empty goes, too");
  assert.equal(without(root, s), null);
  assert.equal(write(changed(root, b, { label: "B", value: 0 })), "(S (X a B) c)");
  assert.equal(write(root), "(S (X a b) c)");
  assert.deepEqual(listed(before), { leaf_values: [5, 6, 7], node_values: [1, 2], weights: [2, 3, 4] });
});

test("the shape of a tree is that of Python, and not its labels", () => {
  assert.equal(shape(tree("(S (X a b) c)")), "3: 1 1 0 -1 0");
  assert.equal(shape(tree("(T (Y d e) f)")), shape(tree("(S (X a b) c)")));
  assert.notEqual(shape(tree("(S a (X b c))")), shape(tree("(S (X a b) c)")));
});

test("what is typed as a label stays one word", () => {
  assert.equal(oneWord(" a b(c-RRB- "), "a␣b(c)");
  assert.equal(write({ label: oneWord(" a b(c) "), children: [] }), "a␣b-LRB-c-RRB-");
  assert.equal(oneWord("  "), "");
});

test("the chosen cell stays inside a tree that lost its last words", () => {
  const wide = tree("(S (NP the dog) (VP barks loudly))", { leaf_values: [1, 2, 3, 4], node_values: [10, 20, 30], weights: [1, 1, 1, 1] });
  const values = { tree: write(wide.root), ...listed(wide), selected: 6, cell: [2, 3], _maps: [], _data: new DataView(new ArrayBuffer(0)) };
  const study = new Study({ get: (name) => values[name], set: (name, value) => (values[name] = value), save_changes() {} });
  const root = without(study.tree.root, study.tree.keys[6]);
  study.edit(root, root);
  assert.equal(values.tree, "(S (NP the dog))");
  assert.deepEqual([values.selected, values.cell], [2, [0, 0]]);
});
