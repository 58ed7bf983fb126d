// What the panels share: the network, the state, and the pass of the present text, computed once.
import { asBuffer } from "#lib/quantization.js";
import { drawn, uniform } from "#lib/draws.js";
import { forward, opened } from "#lib/forward.js";
import { read } from "#lib/reading.js";
import { seen, where } from "./words.js";

const NAMES = ["text", "step", "at", "head", "silent", "temperature", "top_k", "seed"];
export const TRAITS = NAMES;

export class Study {
  constructor(model) {
    this.model = model;
    const told = model.get("_told");
    this.network = { ...told, numbers: opened(told, asBuffer(model.get("_numbers"))) };
    this.steps = told.steps;
    this.parts = [...new Set(this.steps.map(({ part }) => part))];
    this.runs = new Map(); // by text and silent heads, the last few
    this.cell = null; // the number that is pointed at: {at, column}, with `at` null for the row that is looked at
    this.passing = false; // whether a film goes through the steps
    this.read();
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    const { tokens, refusal } = read(this.network, this.state.text);
    if (refusal) throw new Error(refusal);
    this.tokens = tokens;
    this.run = this.pass(tokens, this.state.silent);
    this.whole = this.state.silent.length ? this.pass(tokens, []) : this.run;
  }

  pass(tokens, silent) {
    const key = JSON.stringify([tokens, silent]);
    if (!this.runs.has(key)) this.runs.set(key, forward(this.network, tokens, silent));
    const found = this.runs.get(key);
    this.runs.delete(key); // the last asked for is the last to go
    this.runs.set(key, found);
    if (this.runs.size > 6) this.runs.delete(this.runs.keys().next().value);
    return found;
  }

  get n() {
    return this.tokens.length;
  }

  get step() {
    return this.steps[this.state.step];
  }

  /** The letter that is looked at. */
  get at() {
    return this.state.at < 0 ? this.n - 1 : Math.min(this.state.at, this.n - 1);
  }

  /** The layer of the step; null before the first and after the last. */
  get layer() {
    const layer = parseInt(this.step.key, 10);
    return Number.isNaN(layer) ? null : layer;
  }

  get head() {
    return this.layer === null ? 0 : Math.min(this.state.head, this.network.heads[this.layer] - 1);
  }

  /** What the step gives, of the head that is looked at: {values (n · width), width}. */
  get map() {
    return this.mapOf(this.step, this.head);
  }

  mapOf({ key, kind }, head) {
    const values = this.run[key];
    const heads = ["heads", "scores", "weights"].includes(kind) ? this.network.heads[parseInt(key, 10)] : 1;
    const size = values.length / heads;
    return { values: values.subarray(head % heads * size, (head % heads + 1) * size), width: size / this.n };
  }

  row(at = this.at, map = this.map) {
    return map.values.subarray(at * map.width, (at + 1) * map.width);
  }

  chances(at, run = this.run) {
    const width = this.network.names.length;
    return run.chances.subarray(at * width, (at + 1) * width);
  }

  /** The most probable letter after each. */
  guesses(run = this.run) {
    return this.tokens.map((_, at) => this.chances(at, run).reduce((best, value, token, row) => (value > row[best] ? token : best), 0));
  }

  get sentence() {
    const { step, state } = this;
    return `${where(step, state.step, this.steps.length)} ${step.says} ${seen(this.network, this.tokens, step, this.at, this.row(), this.head, state.silent)}`;
  }

  isSilent(layer, head) {
    return this.state.silent.some((pair) => pair[0] === layer && pair[1] === head);
  }

  flip(layer, head) {
    this.read(); // twice within a frame is twice
    const others = this.state.silent.filter((pair) => !(pair[0] === layer && pair[1] === head));
    const silent = this.isSilent(layer, head) ? others : [...others, [layer, head]];
    this.set({ silent: silent.sort((a, b) => a[0] - b[0] || a[1] - b[1]) });
  }

  /** `count` more letters, as `Walk.write` writes them; why there are fewer, where there are. */
  write(count) {
    this.read();
    const { temperature, top_k: topK, seed, silent } = this.state;
    const { names, maxLen, refusals } = this.network;
    let { tokens } = this;
    let { text } = this.state;
    let refused = "";
    for (let written = 0; written < count && !refused; written += 1) {
      if (tokens.length >= maxLen) {
        refused = refusals.full;
        break;
      }
      const { logits } = this.pass(tokens, silent);
      const last = logits.subarray(logits.length - names.length);
      const token = drawn(last, temperature, topK, uniform(seed, tokens.length));
      const next = [...tokens, token];
      if (String(read(this.network, text + names[token]).tokens) !== String(next)) refused = refusals.joined;
      else [text, tokens] = [text + names[token], next];
    }
    if (text !== this.state.text) this.set({ text, at: -1 });
    return refused;
  }

  /** The text without its last letter. */
  shorten() {
    this.read();
    const names = this.tokens.slice(0, -1).map((token) => this.network.names[token]);
    if (names.length) this.set({ text: names.join(""), at: -1 });
  }
}
