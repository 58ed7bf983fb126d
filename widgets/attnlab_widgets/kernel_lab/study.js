// What the panels share: the heads, the setting, the maps of it, and the errors of those that were asked for.
import { asBuffer } from "#lib/quantization.js";
import { approximate, countOf, isRandom, seenBy } from "./approximation.js";
import { description, digitsOf, pairSaid, setting } from "./words.js";

const SETTING = ["head", "feature", "features", "orthogonal", "seed", "temperature"];
export const TRAITS = [...SETTING, "length", "tried", "_times", "_measuring", "_trouble", "_live"];
const PATIENCE = 6000; // milliseconds after which nobody seems to measure
const MOST_ERRORS = 2000; // that are kept

export class Study {
  constructor(model) {
    this.model = model;
    this.told = model.get("_told");
    this.kinds = Object.fromEntries(this.told.kinds);
    const numbers = new Float32Array(asBuffer(model.get("_numbers")).slice(0)); // little-endian, as typed arrays are
    let at = 0;
    const next = (count) => numbers.subarray(at, (at += count));
    this.heads = new Map(this.told.heads.map((one) => [one.name, { ...one, causal: this.told.causal, q: next(one.n * one.d), k: next(one.m * one.d) }]));
    this.errors = new Map(); // by setting
    this.steps = { features: new Set(this.told.numbers), temperature: new Set(this.told.temperatures), length: new Set(this.told.lengths) };
    this.cell = null; // the pair that is pointed at: {i, j}
    this.waiting = { key: null, since: 0 };
    this.read();
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    const get = (name) => this.model.get(name);
    this.state = Object.fromEntries(SETTING.map((name) => [name, get(name)]));
    [this.length, this.tried, this.live] = [get("length"), get("tried"), get("_live")];
    this.head = this.heads.get(this.state.head);
    for (const name of ["features", "temperature"]) this.steps[name].add(this.state[name]);
    this.steps.length.add(this.length);
    const key = this.keyOf(this.state);
    if (key !== this.key) {
      this.key = key;
      this.seen = approximate(this.head, this.state);
      this.remember(key, this.seen.error);
    }
    this.digits = digitsOf([this.state, ...this.tried].map(({ temperature }) => temperature));
    this.sentence = description(this.seen, this.state, this.head, this.kinds, this.digits);
    if (this.cell && (this.cell.i >= this.head.n || this.cell.j >= seenBy(this.cell.i, this.head))) this.cell = null;
  }

  /** What has an effect of a setting, as text: settings with the same have the same error. */
  keyOf(one) {
    const { d } = this.heads.get(one.head);
    return JSON.stringify([one.head, one.feature, countOf(one, d), ...(isRandom(one) ? [one.orthogonal, one.seed] : []), one.temperature]);
  }

  remember(key, error) {
    this.errors.set(key, error);
    if (this.errors.size > MOST_ERRORS) this.errors.delete(this.errors.keys().next().value);
  }

  /** The error of a setting; computed now if it is not known. */
  error(one) {
    const key = this.keyOf(one);
    if (!this.errors.has(key)) this.remember(key, approximate(this.heads.get(one.head), one).error);
    return this.errors.get(key);
  }

  isKnown = (one) => this.errors.has(this.keyOf(one));
  countOf = (one) => countOf(one, this.heads.get(one.head).d);

  /** A setting in words: those with another effect have other words. */
  said(one) {
    const words = setting(one, this.heads.get(one.head).d, this.kinds, this.digits);
    return this.heads.size > 1 ? `${one.head}: ${words}` : words;
  }

  /** The present setting joins those that were tried, as the newest. */
  keep() {
    this.read(); // within a frame, too
    const key = this.keyOf(this.state);
    const others = this.tried.filter((one) => this.keyOf(one) !== key);
    this.set({ tried: [...others, { ...this.state }].slice(-this.told.kept) });
  }

  get random() {
    return isRandom(this.state);
  }

  /** The settings of the curve: the present one with each number of features; one where it has no effect. */
  get curve() {
    if (!this.random && this.state.feature !== "dpfp") return [this.state];
    return [...this.steps.features].sort((a, b) => a - b).map((features) => ({ ...this.state, features }));
  }

  /** The pair that is read out: the one pointed at, else the one that differs most. */
  get shownCell() {
    if (this.cell) return this.cell;
    const { exact, map } = this.seen;
    let [best, most] = [0, -1];
    for (let at = 0; at < map.length; at += 1) {
      const apart = Math.abs(map[at] - exact[at]);
      if (apart > most) [best, most] = [at, apart];
    }
    return { i: Math.floor(best / this.head.m), j: best % this.head.m };
  }

  get pair() {
    const said = pairSaid(this.seen, this.head, this.shownCell);
    return this.cell || this.state.feature === "softmax" ? said : `Most apart: ${said}`;
  }

  /** What a time depends on, as `_key` of `__init__.py` writes it. */
  get timeKey() {
    const { d } = this.head;
    return `${this.state.feature} ${countOf(this.state, d)} ${d} ${this.length}`;
  }

  /** What is known of the speed, and whether anyone measures: {said, alone}. */
  speed(again) {
    const key = this.timeKey;
    const time = this.model.get("_times")[key];
    const alone = !this.live || this.waiting.since < 0;
    if (this.state.feature === "softmax") return { said: "This is the exact one: there is nothing to compare it with.", alone };
    if (time) {
      if (this.waiting.key !== null) this.waiting = { key: null, since: 0 };
      return { said: time.said, alone: !this.live };
    }
    if (!this.live) return { said: "Time is measured where Python runs: in a notebook.", alone };
    if (this.model.get("_trouble")) return { said: this.model.get("_trouble"), alone: false };
    if (this.model.get("_measuring")) return { said: "Measuring …", alone: false };
    const now = Date.now();
    if (this.waiting.key !== key && this.waiting.since >= 0) {
      this.waiting = { key, since: now };
      setTimeout(again, PATIENCE + 50);
    }
    if (this.waiting.since < 0 || now - this.waiting.since > PATIENCE) {
      this.waiting.since = -1; // nobody answered once: nobody is waited for
      return { said: "Time is measured where Python runs: run the cell first.", alone: true };
    }
    return { said: "Measuring …", alone: false };
  }
}
