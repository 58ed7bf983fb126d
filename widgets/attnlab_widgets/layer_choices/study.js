// What the panels share: the layers as Python sent them, what is shown of them, and its sentence.
import { asBuffer, reader } from "#lib/quantization.js";

const WHOLE = 65535; // a weight of 1, in two bytes
const NAMES = ["layer", "head", "branch", "query"];

/** The arrays of each layer, in the order in which Python wrote them. */
export function openLayers(buffer, { tokens, queries: n, layers }) {
  const m = tokens.length;
  const next = reader(buffer, 0);
  const weights = (many) => {
    const bytes = next("u1", 2 * many);
    return new Uint16Array(bytes.buffer, bytes.byteOffset, many);
  };
  return layers.map((told) => {
    const [h, u] = [told.heads, told.units];
    const one = { ...told, h, n, m, u };
    [one.unit, one.scores, one.byUnit] = [next("f4", m), next("f4", h * n * u), next("f4", h * n * u)];
    [one.marks, one.allowed, one.full] = [next("u1", h * n * u), next("u1", n * m), weights(h * n * m)];
    one.parts = Object.fromEntries(told.branches.map((name) => [name, {
      kept: next("f4", h * n), mean: next("f4", h), gates: next("f4", h * n), read: next("u1", h * n * m), weights: weights(h * n * m),
    }]));
    return one;
  });
}

export class Study {
  constructor(model) {
    this.model = model;
    const told = model.get("_told");
    this.tokens = told.tokens;
    [this.n, this.m] = [told.queries, told.tokens.length];
    this.layers = openLayers(asBuffer(model.get("_data")), told);
    this.pointed = null; // a pair [row, key]
    this.unitAt = null; // the unit that is pointed at
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Another layer: where it has fewer heads, its last one; where it has no such branch, its own. */
  choose(layer) {
    const one = this.layers[layer];
    const { head, branch } = this.state;
    this.set({ layer, head: Math.min(head, one.h - 1), branch: one.branches.includes(branch) ? branch : "selected" });
  }

  /** A token becomes the query, where it is one. */
  ask(token) {
    if (token >= this.m - this.n) this.set({ query: token });
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    const one = this.layers[this.state.layer];
    // Two traits may arrive one after the other.
    this.head = Math.min(this.state.head, one.h - 1);
    this.branch = one.branches.includes(this.state.branch) ? this.state.branch : "selected";
    [this.layer, this.part] = [one, one.parts[this.branch]];
    this.row = this.state.query - this.m + this.n;
    this.sentence = sentence(this);
  }

  /** A row of an array of heads × queries × width. */
  rowOf(values, width, row = this.row) {
    const from = (this.head * this.n + row) * width;
    return values.subarray(from, from + width);
  }

  weight(values, row, key) {
    return values[(this.head * this.n + row) * this.m + key] / WHOLE;
  }

  at(values, row = this.row) {
    return values[this.head * this.n + row];
  }

  /** What each unit is to the query: {unit, score, share, chosen, always, first, last}. */
  get units() {
    const { layer, row } = this;
    const [scores, shares, marks] = [layer.scores, layer.byUnit, layer.marks].map((values) => this.rowOf(values, layer.u, row));
    return Array.from(scores, (score, unit) => {
      const keys = this.keysOf(unit);
      return { unit, score, share: shares[unit], chosen: (marks[unit] & 1) === 1, always: (marks[unit] & 2) === 2, first: keys[0], last: keys[keys.length - 1], open: keys.some((key) => layer.allowed[row * this.m + key]) };
    });
  }

  keysOf(unit) {
    const keys = [];
    this.layer.unit.forEach((one, key) => one === unit && keys.push(key));
    return keys;
  }

  unitName({ unit, first, last }) {
    if (this.layer.of === "token") return `token ${first} “${this.tokens[first]}”`;
    return `block ${unit} (${first} to ${last})`;
  }

  /** What a pair of the map is, as a sentence. */
  pair([row, key]) {
    const { layer, part, m, n, tokens } = this;
    const query = row + m - n;
    const names = `query ${query} “${tokens[query]}”, key ${key} “${tokens[key]}”`;
    if (!layer.allowed[row * m + key]) return `${names}: may not attend`;
    const full = percent(this.weight(layer.full, row, key));
    const own = percent(this.weight(part.weights, row, key));
    const read = part.read[(this.head * n + row) * m + key] ? `read, with ${own} of this branch` : "not read";
    return `${names}: ${full} of full attention, ${read}`;
  }
}

export const count = (values) => values.reduce((sum, one) => sum + (one ? 1 : 0), 0);
export const counted = (number, what) => (number === 1 ? `1 ${what}` : `${number} ${what}s`);
export const percent = (share) => `${(100 * share).toFixed(1)} %`;

export function sentence(study) {
  const { layer, part, row, head, branch, tokens, m, state: { query } } = study;
  const where = `${layer.name}, head ${head}: query ${query} “${tokens[query]}”`;
  const earlier = count(layer.allowed.subarray(row * m, (row + 1) * m));
  if (!earlier) return `${where} is padding and reads nothing.`;
  const keys = `${count(study.rowOf(part.read, m))} of ${counted(earlier, "key")}`;
  const [share, mean] = [percent(study.at(part.kept)), `on the mean over all queries ${percent(part.mean[head])}`];
  if (branch === "compressed") return `${where} reads the means of stretches that cover ${keys}; on these lies ${share} of full attention, ${mean}.`;
  return `${where} reads ${keys}${why(study)} and keeps ${share} of full attention, ${mean}.`;
}

function why(study) {
  const { layer, branch } = study;
  if (branch !== "selected") return ", the last ones,";
  if (layer.of === "token") return ", those of the largest scores,";
  const marks = study.rowOf(layer.marks, layer.u);
  const [chosen, always] = [1, 2].map((bit) => count(marks.map((one) => one & bit)));
  return ` in ${counted(chosen, "block")}, of which ${always} ${always === 1 ? "is" : "are"} always read,`;
}
