// What the panels share: the state, what follows from it, and the key that is pointed at.
import { attend, extent, announcement } from "#lib/plane.js";

const LEAST = 3;

export class Study {
  constructor(model) {
    this.model = model;
    this.at = null; // the key that is pointed at
    this.halves = { keys: LEAST, values: LEAST }; // half the sides of the two planes
    this.presets = model.get("_presets");
    this.last = this.presets[0];
  }

  get(name) {
    return this.model.get(name);
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    const [keys, values] = [this.get("key_vectors"), this.get("value_vectors")];
    const [query, scale, masked, names] = ["query", "scale", "masked", "names"].map((name) => this.get(name));
    this.state = { keys, values, query, scale, masked, names };
    this.found = attend(this.state);
    this.sentence = announcement(this.state, this.found);
    if (this.at !== null && this.at >= keys.length) this.at = null;
    this.#keepIn("keys", [...keys, query]);
    this.#keepIn("values", values);
    this.last = this.preset ?? this.last;
  }

  /** A plane grows with its points, and shrinks only with a preset: nothing jumps under the hand. */
  #keepIn(name, points) {
    const far = Math.max(...points.flat().map(Math.abs));
    if (far > this.halves[name]) this.halves[name] = extent(points, LEAST);
  }

  /** The preset that is shown, unchanged. */
  get preset() {
    const same = (one) => ["key_vectors", "value_vectors", "query", "scale", "masked", "names"].every(
      (name) => JSON.stringify(one[name]) === JSON.stringify(this.get(name)),
    );
    return this.presets.find(same);
  }

  start(name) {
    const { name: _name, try: _try, ...state } = this.presets.find((one) => one.name === name);
    this.halves = { keys: LEAST, values: LEAST };
    this.set(state);
  }

  move(trait, j, point) {
    if (trait === "query") this.set({ query: point });
    else this.set({ [trait]: this.get(trait).map((old, i) => (i === j ? point : old)) });
  }

  mask(j) {
    const masked = this.get("masked");
    this.set({ masked: masked.includes(j) ? masked.filter((i) => i !== j) : [...masked, j].sort((a, b) => a - b) });
  }
}
