// What the panels share: the state, and what follows from it.
import { bytesOf, LENGTHS, total, within } from "./bills.js";
import { sentence } from "./words.js";

const NAMES = ["name", "layers", "tokens", "bits", "layer", "scope"];

export class Study {
  constructor(model) {
    this.model = model;
    this.models = model.get("_models");
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
    this.read();
  }

  /** Read the traits, for a drawing and after a change: the next may come before it is drawn. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    const { name, tokens, bits } = this.state;
    this.preset = this.models.find((one) => one.name === name);
    this.kinds = this.preset.kinds;
    this.names = Object.keys(this.kinds);
    // Between two messages the layers may be those of the model before.
    const known = this.state.layers.length === this.preset.layers.length && this.state.layers.every((key) => key in this.kinds);
    this.layers = known ? this.state.layers : this.preset.layers;
    this.layer = Math.min(this.state.layer, this.layers.length - 1);
    this.sizes = this.layers.map((key) => bytesOf(this.kinds[key], tokens, bits));
    this.whole = this.sizes.reduce((a, b) => a + b, 0);
    this.published = total(this.kinds, this.preset.layers, tokens);
    this.growth = LENGTHS.map((n) => [n, total(this.kinds, this.layers, n, bits), total(this.kinds, this.preset.layers, n)]);
    this.sentence = sentence({ ...this.state, layers: this.layers, kinds: this.kinds, published: this.published });
  }

  get changed() {
    return this.state.bits !== 16 || this.layers.some((key, at) => key !== this.preset.layers[at]);
  }

  start(name) {
    const preset = this.models.find((one) => one.name === name);
    this.set({ layer: Math.max(0, preset.layers.indexOf("all")), name, layers: preset.layers, bits: 16 });
  }

  /** Make the layers of the scope this kind. */
  switch(kind) {
    const { scope } = this.state;
    this.set({ layers: this.layers.map((old, at) => (within(scope, this.layer, at) ? kind : old)) });
  }

  choose(layer) {
    this.set({ layer: Math.max(0, Math.min(this.layers.length - 1, layer)) });
  }
}
