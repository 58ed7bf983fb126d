import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { asBytes, blocksOf, exampleScore, keysOf, maskedRows, maskedRowsText, MOST, overlaid, painted, paintedCode, pairsOf, percent, receptiveField, receptiveFieldText, runs, softmaxRow } from "../attnlab_widgets/pattern_studio/mask.js";
import { lists, squarest, typed } from "../attnlab_widgets/pattern_studio/parts.js";
import { algebra } from "../attnlab_widgets/pattern_studio/patterns.js";

// Written by Python (tests/widgets/test_pattern_studio.py): what the algebra there says.
const { cases, new: fresher, primitives, scores } = JSON.parse(readFileSync(new URL("patterns.json", import.meta.url)));
const { code, dense, description, read, remarks } = algebra(primitives);
const { choices, fresh, partsOf, partsText } = lists(primitives);

const hex = (mask) => {
  const bytes = new Uint8Array(Math.ceil(mask.length / 8));
  mask.forEach((one, at) => (bytes[at >> 3] |= one << (7 - (at & 7))));
  return Buffer.from(bytes).toString("hex");
};

test("every expression means here what it means in Python", () => {
  assert.ok(cases.length > 80);
  for (const known of cases) {
    const { expression, n } = known;
    const pattern = read(expression);
    const base = dense(pattern, n);
    const mask = overlaid(base, n, painted(new DataView(Uint8Array.from(Buffer.from(known.painted, "hex")).buffer)));
    assert.equal(hex(mask), known.mask, expression);
    assert.equal(code(pattern), known.code, expression);
    assert.equal(description(pattern), known.description, expression);
    assert.equal(paintedCode(expression, base, mask, n), known.paintedCode, expression);
    assert.equal(maskedRowsText(maskedRows(mask, n)), known.masked, expression);
    assert.deepEqual(remarks(pattern, n), known.remarks, expression);
    assert.deepEqual(dense(read(known.paintedCode), n), mask, known.paintedCode);
    assert.deepEqual(dense(read(known.code), n), base, known.code);
  }
});

test("a primitive that is only in Python's data is read, drawn, described and offered", () => {
  assert.throws(() => read("ring(6)"), /there is no pattern “ring”/);
  const wider = algebra([...primitives, fresher.primitive]);
  assert.equal(fresher.cases.length, 3);
  for (const known of fresher.cases) {
    const pattern = wider.read(known.expression);
    assert.equal(hex(wider.dense(pattern, known.n)), known.mask, known.expression);
    assert.equal(wider.code(pattern), known.code);
    assert.equal(wider.description(pattern), known.description);
    assert.deepEqual(wider.remarks(pattern, known.n), known.remarks);
  }
  assert.throws(() => wider.read("ring(6, 7)"), /a radius of 7 is more than the circle of 6/);
  assert.throws(() => wider.dense(wider.read("ring(6)"), 7), /7 positions are no whole circles of 6/);
  const menu = lists([...primitives, fresher.primitive]);
  assert.equal(menu.partsText({ parts: [menu.fresh("ring", 12)], causal: true }), "ring(5, 1).causal()");
});

test("an expression with too many parts inside one another is refused in a sentence", () => {
  for (const text of [Array(400).fill("hub()").join(" | "), `${"~".repeat(5000)}full()`, `${"(".repeat(20000)}full()`]) {
    assert.throws(() => read(text), /parts of the expression stand inside one another/);
  }
});

test("the receptive field grows here as it does in Python, with residuals and without", () => {
  for (const { expression, n, mask, receptiveField: known } of cases.filter((one) => one.receptiveField)) {
    const bits = Uint8Array.from({ length: n * n }, (_, at) => (parseInt(mask.slice(2 * (at >> 3), 2 * (at >> 3) + 2), 16) >> (7 - (at & 7))) & 1);
    [true, false].forEach((residual, at) => {
      const found = receptiveField(bits, n, residual, 64);
      const pairs = found.frames.map(pairsOf);
      assert.deepEqual([found.layers, found.complete, found.completePast, pairs], known[at], `${expression} ${residual}`);
    });
  }
});

test("a list of parts and its text say the same", () => {
  let lists = 0;
  for (const { expression, n } of cases) {
    const list = partsOf(expression);
    if (!list) continue;
    lists += 1;
    const text = partsText(list);
    assert.deepEqual(dense(read(text), n), dense(read(expression), n), `${expression} → ${text}`);
    assert.deepEqual(partsOf(text), list, text);
  }
  assert.ok(lists > 50, `${lists} lists`);
  assert.equal(partsOf("(local(1) | random(2)).blocks(4)"), null);
  assert.equal(partsOf("local(2"), null);
  const list = partsOf("(local(2) | ~strided(4).blocks(2)) & causal()");
  assert.deepEqual(list.parts.map((part) => [part.join, part.not, part.name, part.blocks]), [["|", false, "local", 1], ["|", true, "strided", 2]]);
  assert.equal(list.causal, true);
  list.parts.push(fresh("local_2d", 24, "&"));
  assert.equal(partsText(list), "((local(2) | ~strided(4).blocks(2)) & local_2d((4, 6), 1)).causal()");
});

test("every choice is a pattern as it is added", () => {
  for (const name of choices.keys()) {
    const text = partsText({ parts: [fresh(name, 12)], causal: false });
    assert.ok(pairsOf(dense(read(text), 12)) > 0, text);
    assert.equal(partsOf(text).parts[0].name, name);
  }
  assert.deepEqual(squarest(128), [8, 16]);
  assert.deepEqual(squarest(13), [1, 13]);
});

test("what cannot be read is answered in plain words", () => {
  const said = (text, n = 32) => {
    try {
      dense(read(text), n);
    } catch (error) {
      return error.message;
    }
    return "nothing";
  };
  assert.match(said(""), /there is no pattern yet/);
  assert.match(said("lokal(2)"), /there is no pattern “lokal”; did you mean “local”\?/);
  assert.match(said("rectangle(2)"), /there are axial, block_diagonal/);
  assert.match(said("local(2"), /brackets of local are not closed: expected “\)”, got the end/);
  assert.match(said("(local(2)"), /a bracket is not closed/);
  assert.match(said("local(2) |"), /ends where a pattern is expected/);
  assert.match(said("local(2) local(3)"), /the pattern ends before “local”/);
  assert.match(said("local"), /“local” needs its brackets: local\(…\)/);
  assert.match(said("glob"), /there is no pattern “glob”; did you mean “global_”\?/);
  assert.match(said("local(2) | stri"), /there is no pattern “stri”; did you mean “strided”\?/);
  assert.match(said("local()"), /local needs its radius: local\(radius\)/);
  assert.match(said("local(2, 3)"), /local takes 1 argument, got 2/);
  assert.match(said("local(width=2)"), /local has no argument “width”/);
  assert.match(said("local(2, radius=2)"), /radius is given twice/);
  assert.match(said("local(-1)"), /local: radius should be at least 0, got -1/);
  assert.match(said("strided(0)"), /stride should be at least 1, got 0/);
  assert.match(said("local('a')"), /a whole number, got 'a'/);
  assert.match(said("local(2).dense(3)"), /no method “dense”/);
  assert.match(said("local(2) + local(3)"), /cannot contain "\+" \(character 10\)/);
  assert.match(said("fixed(4, 5)"), /5 summary columns do not fit into blocks of 4/);
  assert.match(said("axial((3, 5), 0)"), /a grid of 3 × 5 has 15 positions, but the sequence has 32/);
  assert.match(said("axial((3, 5), 2)", 15), /a grid of shape \(3, 5\) has no axis 2/);
  assert.match(said("local_2d((2, 4, 4), 1)"), /2 dimensions/);
  assert.match(said("global_([32])"), /position 32 is outside of a sequence of 32: 0 … 31/);
  assert.match(said("document(ids)"), /“ids” needs its brackets|holds numbers/);
  assert.match(said("listed([[0]])"), /hand the pattern itself to PatternStudio/);
  assert.match(said("per_head(full(), causal())"), /one mask: write the pattern of one head/);
  assert.match(said("local(2).blocks(0)"), /the size of a block should be at least 1, got 0/);
  assert.match(said("2"), /expected where “2”/);
  assert.match(said("local(002)"), /cannot begin with 0/);
});

test("numbers that are typed into fields", () => {
  assert.equal(typed("whole", " -3 ", "radius"), -3);
  assert.deepEqual(typed("list", "0, 5 -1", "positions"), [0, 5, -1]);
  assert.deepEqual(typed("shape", "4 × 8", "shape"), [4, 8]);
  assert.throws(() => typed("whole", "2.5", "radius"), /radius should be a whole number, got “2.5”/);
  assert.throws(() => typed("list", "0, a", "positions"), /got “a”/);
});

test("softmax rows: under the mask, and zero where nothing is attended to", () => {
  const mask = dense(read("causal() & ~places([2], of='row')"), 5);
  const row = softmaxRow((i, j) => j, mask, 5, 3);
  const sum = Math.exp(0) + Math.exp(1) + Math.exp(2) + Math.exp(3);
  row.forEach((weight, j) => assert.ok(Math.abs(weight - (j <= 3 ? Math.exp(j) / sum : 0)) < 1e-12));
  assert.deepEqual([...softmaxRow((i, j) => j, mask, 5, 2)], [0, 0, 0, 0, 0]);
  assert.deepEqual([...softmaxRow(() => 1000, mask, 5, 1)], [0.5, 0.5, 0, 0, 0]);
  scores.forEach((score, at) => assert.ok(Math.abs(exampleScore(Math.floor(at / 5), at % 5) - score) < 1e-11));
});

test("blocks are full, mixed or empty; the last may be shorter", () => {
  const { across, kinds, counts } = blocksOf(dense(read("causal()"), 7), 7, 3);
  assert.equal(across, 3);
  assert.deepEqual(kinds, ["mixed", "empty", "empty", "full", "mixed", "empty", "full", "full", "full"]);
  assert.deepEqual(counts, { full: 4, mixed: 2, empty: 3 });
});

test("painted cells survive the way to Python and back", () => {
  const cells = new Map([[3 * MOST + 5, 1], [0, 0], [127 * MOST + 127, 1]]);
  const bytes = asBytes(cells);
  assert.equal(bytes.byteLength, 9);
  assert.deepEqual([...painted(bytes)].sort((a, b) => a[0] - b[0]), [...cells].sort((a, b) => a[0] - b[0]));
  assert.equal(painted(new DataView(new ArrayBuffer(0))).size, 0);
  assert.deepEqual(keysOf(overlaid(new Uint8Array(49), 7, cells), 7, 3), [5]);
});

test("words", () => {
  assert.equal(runs([0, 3, 4, 5, 9]), "0, 3–5, 9");
  assert.equal(maskedRowsText([3]), "row 3 attends to nothing: its output is zero");
  assert.equal(percent(0.1796875), "18 %");
  assert.equal(percent(0.0625), "6.3 %");
  assert.equal(percent(0.99999), "99.9 %");
  assert.equal(percent(0.00001), "0.1 %");
  assert.equal(percent(1), "100 %");
  assert.equal(percent(0.02), "2 %");
  const mask = (text, n) => dense(read(text), n);
  assert.equal(receptiveFieldText(receptiveField(mask("local(2)", 7), 7, true), 7), "everything is connected after 3 layers");
  assert.equal(receptiveFieldText(receptiveField(mask("local(2).causal()", 7), 7, true), 7), "every position knows its whole past after 3 layers");
  assert.match(receptiveFieldText(receptiveField(mask("strided(3)", 7), 7, true), 7), /^more than 1 layer adds nothing: 35 % of/);
  assert.match(receptiveFieldText(receptiveField(mask("local(1) & ~local(0)", 2), 2, false, 16), 2), /changes after 16 layers, without ever settling/);
});
