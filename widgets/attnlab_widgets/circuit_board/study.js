// What the panels share: the network, the state, the passes with and without cuts, and the effect of
// every wire, which are computed a few at a time.
import { softmax, opened } from "#lib/forward.js";
import { asBuffer } from "#lib/quantization.js";
import { read } from "#lib/reading.js";
import { reordered, replaced, run, senders, wiresOf } from "./paths.js";
import { asked, idle, summary, thickest } from "./words.js";

const NAMES = ["text", "at", "cuts", "instead", "order", "measure", "least", "through"];
export const TRAITS = NAMES;
const LEAST = 1e-12; // what is below is the rounding of float64
const FEW = 10; // milliseconds of computing between two drawings
export const INSTEAD = ["another text", "the mean", "zeros"];

const same = (a, b) => a[0] === b[0] && a[1] === b[1];

export class Study {
  constructor(model) {
    this.model = model;
    const told = model.get("_told");
    this.network = { ...told, numbers: opened(told, asBuffer(model.get("_numbers"))) };
    const tensors = senders(this.network).map((sender) => [sender, [this.network.numbers.embedding.shape[1]]]);
    this.network.means = opened({ tensors, half: true }, asBuffer(model.get("_means")));
    this.wires = wiresOf(this.network);
    this.rows = [senders(this.network, 0), ...this.network.heads.map((count, layer) => Array.from({ length: count }, (_, head) => `${layer}.${head}`)), ["logits"]];
    this.past = []; // the cuts before each change in this page, for undo
    this.own = null; // the cuts as this page knows them
    this.pointed = null; // the number of the wire that the mouse is on
    this.focused = null; // and of the one that has the focus
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
      this.other = instead === "another text" ? reordered(tokens, order) : null;
      this.same = this.other !== null && this.other.every((token, place) => token === tokens[place]);
      this.whole = run(this.network, tokens);
      this.instead = this.carried();
      const guess = this.best(this.whole);
      Object.assign(this, asked(this.network, tokens, this.at, guess));
      this.before = this.answerOf(this.whole, this.at);
      this.alone = this.wires.map(() => null); // what each wire does, once it is computed
      this.short = null;
      this.present = null;
    }
    if (this.own !== JSON.stringify(cuts)) this.past = []; // cut elsewhere: there is nothing of this page to undo
    this.own = JSON.stringify(cuts);
    if (this.present?.key !== JSON.stringify(cuts)) {
      const pass = cuts.length ? run(this.network, tokens, cuts, this.instead, through, this.whole) : this.whole;
      this.present = { key: JSON.stringify(cuts), pass };
    }
    this.pass = this.present.pass;
    this.after = this.answerOf(this.pass, this.at);
  }

  /** What cut wires carry; zeros and means are the same of all texts of a length. */
  carried() {
    const { instead } = this.state;
    if (instead === "another text") return replaced(this.network, this.tokens, this.state);
    const key = `${instead} ${this.n}`;
    if (this.filled?.key !== key) this.filled = { key, added: replaced(this.network, this.tokens, this.state) };
    return this.filled.added;
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
    return effect < this.bound || effect < LEAST;
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
    this.put(cuts);
  }

  put(cuts) {
    this.own = JSON.stringify(cuts);
    this.set({ cuts });
  }

  undo() {
    this.read();
    if (this.past.length) this.put(this.past.pop());
  }

  /** The most probable letter after each. */
  guesses() {
    return this.tokens.map((_, at) => this.row(this.pass, at).reduce((best, value, token, row) => (value > row[best] ? token : best), 0));
  }

  /** Whether no cut of one wire changes anything. */
  get idle() {
    return this.same || (this.complete && this.largest < LEAST);
  }

  get sentence() {
    const { network, watched, before, state: { cuts, instead, measure } } = this;
    const said = summary(network, watched, this.why, cuts, before, this.after, measure);
    if (this.same) return `${said} ${idle(instead, true)}`;
    if (cuts.length || !this.complete) return said;
    const [first] = this.ordered;
    return `${said} ${this.idle ? idle(instead, false) : thickest(network, watched, this.wires[first], before, this.alone[first], measure)}`;
  }
}
