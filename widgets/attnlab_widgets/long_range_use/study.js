// What the panels share: what was measured, and what follows from the traits.
import { CLASSES, bits, classesOf, floats, nats, place, signed, whole } from "./far.js";

export const NAMED = ["perturbation", "distance", "model", "token_class", "lines", "text", "token"];
const CHANGED = {
  cut: "is left out",
  shuffle: "is shuffled",
  replace: "is replaced by another text",
  random: "is replaced by random tokens",
};
const MEANING = {
  all: "every measured token",
  frequent: "the tenth of all different tokens that occurs most often",
  rare: "the other tokens",
  near: "stands in the near part",
  far: "stands in the far part only",
  new: "stands nowhere before",
};

export class Study {
  constructor(model) {
    this.source = model;
    for (const name of ["models", "perturbations", "distances"]) this[name] = model.get(name);
    [this.texts, this.n, this.last] = model.get("_size");
    this.words = model.get("_texts");
    this.tokens = whole(model.get("_tokens"));
    this.intact = nats(model.get("_intact"));
    this.differences = nats(model.get("_differences"));
    this.members = bits(model.get("_members"));
    this.count = model.get("_count");
    this.means = floats(model.get("_means"));
    this.errors = floats(model.get("_errors"));
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.source.set(name, value);
    this.source.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = Object.fromEntries(NAMED.map((name) => [name, this.source.get(name)]));
    const { perturbation, distance, model, text } = this.state;
    this.at = { way: this.perturbations.indexOf(perturbation), distance: this.distances.indexOf(distance), model: this.models.indexOf(model) };
    this.start = this.n - this.last;
    this.far = this.start - distance;
    const sizes = [this.models.length, this.distances.length, this.perturbations.length, this.texts, this.last];
    const from = place(sizes, [this.at.model, this.at.distance, this.at.way, text, 0]);
    this.changes = this.differences.slice(from, from + this.last);
    // One scale for all distances and changes of a text, so that colours can be compared.
    const all = sizes[1] * sizes[2];
    let largest = 0;
    for (let cell = 0; cell < all; cell += 1) {
      const first = place([sizes[0], all, sizes[3], sizes[4]], [this.at.model, cell, text, 0]);
      for (let at = first; at < first + this.last; at += 1) largest = Math.max(largest, Math.abs(this.differences[at]));
    }
    this.largest = largest || 1;
  }

  word(i) {
    return this.words[this.tokens[this.state.text * this.n + i]];
  }

  /** Of a measured token: its text, losses and classes. */
  token(at) {
    const { text } = this.state;
    const before = this.intact[place([this.models.length, this.texts, this.last], [this.at.model, text, at])];
    const mask = this.members[place([this.distances.length, this.texts, this.last], [this.at.distance, text, at])];
    return { word: this.word(this.start + at), before, change: this.changes[at], classes: classesOf(mask).slice(1) };
  }

  /** The curves: name, what it means, and a point {distance, mean, error, count} for each distance. */
  get curves() {
    const { lines, model, token_class } = this.state;
    const names = lines === "classes" ? CLASSES : this.models;
    return names.map((name) => {
      const [owner, kind] = lines === "classes" ? [model, name] : [name, token_class];
      const sizes = [this.models.length, CLASSES.length, this.distances.length, this.perturbations.length];
      const points = this.distances.map((distance, at) => {
        const cell = place(sizes, [this.models.indexOf(owner), CLASSES.indexOf(kind), at, this.at.way]);
        return { distance, mean: this.means[cell], error: this.errors[cell], count: this.count[CLASSES.indexOf(kind)][at] };
      });
      return { name, meaning: lines === "classes" ? MEANING[name] : name, points };
    });
  }

  get sentence() {
    const { distance, perturbation, lines, model, token_class } = this.state;
    const where = lines === "classes" ? `of ${model}, by class of token` : `on tokens of the class “${token_class}”, by model`;
    const parts = this.curves.map(({ name, points }) => `${name} ${this.said(points[this.at.distance])}`);
    return `If the text farther than ${distance} tokens away ${CHANGED[perturbation]}, the loss ${where}, changes by (nats): ${parts.join(", ")}.`;
  }

  said({ mean, error }) {
    if (Number.isNaN(mean)) return "none";
    return `${signed(mean).replace("−", "-")}${Number.isNaN(error) ? "" : ` ± ${error.toFixed(3)}`}`;
  }

  /** A measured token in words. */
  describe(at) {
    const { word, before, change, classes } = this.token(at);
    return `“${word}” (${classes.join(", ")}): loss ${before.toFixed(2)} → ${(before + change).toFixed(2)} nats, ${signed(change)}`;
  }
}
