// What the panels share: the state, and what follows from it.
import { heaviest, retrieval, announcement, updated } from "./landscape.js";
import { extent, two } from "#lib/plane.js";

const NAMES = ["patterns", "query", "beta", "steps", "names"];
const LEAST = 1.5; // half the side of the plane

export class Study {
  constructor(model) {
    this.model = model;
    this.presets = model.get("_presets");
    this.last = this.presets[0];
    this.half = LEAST;
    this.at = null; // the step that is pointed at
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    this.found = retrieval(this.state);
    this.sentence = announcement(this.state.names, this.found);
    if (this.at > this.state.steps) this.at = null;
    this.last = this.preset ?? this.last;
    // The plane grows with its points, and shrinks only with a preset: nothing jumps under the hand.
    this.half = Math.max(this.half, extent([...this.state.patterns, this.state.query], LEAST));
  }

  /** The preset that is shown, unchanged. */
  get preset() {
    const same = (one) => ["patterns", "query", "beta", "names"].every((name) => JSON.stringify(one[name]) === JSON.stringify(this.model.get(name)));
    return this.presets.find(same);
  }

  start(name) {
    const { name: _name, try: _try, ...state } = this.presets.find((one) => one.name === name);
    this.half = LEAST;
    this.set(state);
  }

  /** The pattern with the largest weight at a state, and that weight. */
  heaviestAt(state) {
    const { weights } = updated(state, this.state);
    const [j] = heaviest(weights);
    return `${this.state.names[j]} ${two(weights[j])}`;
  }

  movePattern(j, point) {
    this.set({ patterns: this.model.get("patterns").map((old, i) => (i === j ? point : old)) });
  }
}
