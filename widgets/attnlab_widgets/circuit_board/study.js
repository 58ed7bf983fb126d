// What the panels share: the network, the state, the passes with and without cuts, and the effect of
// every wire, which are computed a few at a time.
import { softmax, opened } from "#lib/forward.js";
import { asBuffer } from "#lib/quantization.js";
import { read } from "#lib/reading.js";
import { replaced, run, senders, wiresOf } from "./paths.js";
import { asked, summary } from "./words.js";

const NAMES = ["text", "at", "cuts", "instead", "order", "measure", "least", "through"];
export const TRAITS = NAMES;
const FEW = 10; // milliseconds of computing between two drawings
export const INSTEAD = ["another text", "the mean", "zeros"];

const same = (a, b) => a[0] === b[0] && a[1] === b[1];

export class Study {
  constructor(model) {
    this.model = model;
    const told = model.get("_told");
    this.network = { ...told, numbers: opened(told, asBuffer(model.get("_numbers"))) };
    this.wires = wiresOf(this.network);
    this.rows = [senders(this.network, 0), ...this.network.heads.map((count, layer) => Array.from({ length: count }, (_, head) => `${layer}.${head}`)), ["logits"]];
    this.past = []; // the cuts before each change in this page, for undo
    this.pointed = null; // the number of the wire that is pointed at
    this.key = "";
    this.read();
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing; only what a change concerns is computed again. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    const { text, at, instead, order, through, cuts } = this.state;
    const { tokens, refusal } = read(this.network, text);
    if (refusal) throw new Error(refusal);
    this.tokens = tokens;
    this.at = at < 0 ? tokens.length - 1 : Math.min(at, tokens.length - 1);
    const key = JSON.stringify([tokens, this.at, instead, order, through]);
    if (key !== this.key) {
      this.key = key;
      this.whole = run(this.network, tokens);
      this.instead = replaced(this.network, tokens, this.state);
      const guess = this.best(this.whole);
      Object.assign(this, asked(this.network, tokens, this.at, guess));
      this.before = this.answerOf(this.whole, this.at);
      this.alone = this.wires.map(() => null); // what each wire does, once it is computed
      this.short = null;
      this.present = null;
    }
    if (this.present?.key !== JSON.stringify(cuts)) {
      const pass = cuts.length ? run(this.network, tokens, cuts, this.instead, through, this.whole) : this.whole;
      this.present = { key: JSON.stringify(cuts), pass };
    }
    this.pass = this.present.pass;
    this.after = this.answerOf(this.pass, this.at);
  }

  row(pass, at) {
    const width = this.network.names.length;
    return pass.logits.subarray(at * width, (at + 1) * width);
  }

  best(pass) {
    return this.row(pass, this.at).reduce((best, value, token, row) => (value > row[best] ? token : best), 0);
  }

  /** What is watched of a pass: chances, and of the watched letter its chance and its logit. */
  answerOf(pass, at) {
    const logits = this.row(pass, at);
    const chances = softmax(logits, logits.length);
    const first = chances.reduce((best, value, token) => (value > chances[best] ? token : best), 0);
    const mean = logits.reduce((a, b) => a + b, 0) / logits.length;
    return { chances, chance: chances[this.watched], logit: logits[this.watched] - mean, first, most: chances[first] };
  }

  /** Compute the effects of some more wires; whether there are still others. Letters after the one that is looked at change nothing. */
  more(time = FEW) {
    const end = performance.now() + time;
    const { through } = this.state;
    this.short ??= this.shortened();
    const { tokens, whole, instead } = this.short;
    for (let at = 0; at < this.wires.length; at += 1) {
      if (this.alone[at]) continue;
      if (performance.now() > end) return true;
      this.alone[at] = this.answerOf(run(this.network, tokens, [this.wires[at]], instead, through, whole), tokens.length - 1);
    }
    return false;
  }

  shortened() {
    const tokens = this.tokens.slice(0, this.at + 1);
    const size = tokens.length * this.network.numbers.embedding.shape[1];
    const instead = Object.fromEntries(Object.entries(this.instead).map(([sender, x]) => [sender, x.subarray(0, size)]));
    return { tokens, instead, whole: run(this.network, tokens) };
  }

  get n() {
    return this.tokens.length;
  }

  get complete() {
    return this.alone.every(Boolean);
  }

  /** By how much the answer falls if a wire alone is cut; null while it is not computed. */
  effect(at) {
    const name = this.state.measure === "logit" ? "logit" : "chance";
    return this.alone[at] && this.before[name] - this.alone[at][name];
  }

  get largest() {
    return this.wires.reduce((most, _, at) => Math.max(most, Math.abs(this.effect(at) ?? 0)), 0);
  }

  /** Below which effect a wire is grey. */
  get bound() {
    return this.state.least * this.largest;
  }

  isGrey(at) {
    const effect = Math.abs(this.effect(at) ?? 0);
    return effect < this.bound || effect < 1e-12;
  }

  /** The numbers of the wires from the largest effect on. */
  get ordered() {
    return this.wires.map((_, at) => at).sort((a, b) => Math.abs(this.effect(b) ?? 0) - Math.abs(this.effect(a) ?? 0) || a - b);
  }

  isCut(at) {
    return this.state.cuts.some((pair) => same(pair, this.wires[at]));
  }

  flip(at) {
    this.read(); // twice within a frame is twice
    const { cuts } = this.state;
    const wire = this.wires[at];
    this.change(this.isCut(at) ? cuts.filter((pair) => !same(pair, wire)) : [...cuts, wire]);
  }

  change(cuts) {
    this.past.push(this.state.cuts);
    this.set({ cuts });
  }

  undo() {
    if (this.past.length) this.set({ cuts: this.past.pop() });
  }

  /** The most probable letter after each. */
  guesses() {
    return this.tokens.map((_, at) => this.row(this.pass, at).reduce((best, value, token, row) => (value > row[best] ? token : best), 0));
  }

  get sentence() {
    const [first] = this.ordered;
    return summary(this.network, this.watched, this.why, this.state.cuts, this.before, this.after, this.wires[first], this.state.measure, this.complete ? this.alone[first] : null);
  }
}
