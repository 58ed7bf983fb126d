// CompressionLab against Python: test/compression.json, written by the mirror test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { count, rounded } from "../attnlab_widgets/compression_lab/compress.js";
import { Study } from "../attnlab_widgets/compression_lab/study.js";

const known = JSON.parse(readFileSync(new URL("./compression.json", import.meta.url), "utf8"));

function studied({ lab, numbers, scores }, state) {
  const bytes = Uint8Array.from(Buffer.from(numbers, "base64"));
  const values = { _lab: lab, _numbers: new DataView(bytes.buffer), _scores: scores, ...state };
  return new Study({ get: (name) => values[name], set: (name, value) => (values[name] = value), save_changes() {} });
}

const near = (found, wanted, most, what) => {
  assert.equal(found.length, wanted.length, what);
  found.forEach((value, at) => assert.ok(Math.abs(value - wanted[at]) <= most, `${what} ${at}: ${value} is not ${wanted[at]}`));
};

test("weights, bytes, maps, what is right and the sentence are Python's", () => {
  assert.equal(known.length, 3);
  for (const one of known) {
    for (const { state, score, size, weights, maps, said } of one.states) {
      const study = studied(one, state);
      const what = `${state.cut} ${state.kept} ${state.bits} ${state.per}`;
      near([...study.network.made(state.matrix, study.masks, state)], weights, 1e-6, `weights ${what}`);
      assert.equal(study.size, size, what);
      near(study.score(), score, 1e-9, `score ${what}`);
      maps.forEach((map, layer) => near([...study.after[layer]], map, 2e-5, `map ${layer} ${what}`));
      assert.equal(study.sentence, said);
    }
  }
});

test("nothing is cut and rounded where all is kept with 32 bits", () => {
  const study = studied(known[0], { ...known[0].states[0].state, kept: 1, bits: 32 });
  assert.equal(study.masks.size, 0);
  assert.equal(study.before, study.after);
  assert.equal(study.size, study.whole);
});

test("⌈kept · N⌉ of N are left", () => {
  assert.deepEqual([count(10, 0.3), count(7, 0.5), count(100, 0.07), count(5, 0)], [3, 4, 7, 0]);
});

test("zero stays zero, and 2 bits are four levels", () => {
  const found = rounded(Float32Array.from([-1, -0.4, 0, 0.1, 0.9, 2]), [2, 3], 2, "tensor");
  assert.equal(found[2], 0);
  assert.equal(new Set(found).size, 4);
});

test("of two equally near levels the even one is taken, as by torch", () => {
  const ties = rounded(Float32Array.from([-4, 3, 0.5, 1.5, 2.5, -0.5]), [1, 6], 3, "tensor");
  assert.deepEqual([...ties].map((x) => x + 0), [-4, 3, 0, 2, 2, 0]);
});
