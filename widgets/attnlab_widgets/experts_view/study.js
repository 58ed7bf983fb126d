// What the panels share: the layers, and what is shown of them.
import { FEW } from "#lib/colouring.js";
import { choicesOf, openLayers, announcement } from "./experts.js";
import { asBuffer } from "#lib/quantization.js";

const NAMES = ["token", "layer", "capacity", "placed"];

export class Study {
  constructor(model) {
    this.model = model;
    const { tokens, layers, history, image } = model.get("_experts");
    Object.assign(this, { tokens, history, image, n: tokens.length, at: null });
    this.layers = openLayers(asBuffer(model.get("_data")), layers, tokens.length);
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    this.layer = this.layers[this.state.layer];
    this.most = Math.max(1, ...this.layer.wanted);
    this.sentence = announcement(this.layer, this.tokens, this.state);
  }

  /** The token that is pointed at, else the chosen one. */
  get shown() {
    return this.at ?? this.state.token;
  }

  choices(i) {
    return choicesOf(this.layer, i, this.state);
  }

  /** So many choices are placed; the last of them is read out. */
  place(count) {
    const last = this.layer.queue[Math.max(0, count - 1)];
    this.set({ placed: count, token: last ? last[0] : this.state.token });
  }

  /** What was wholly placed stays so: layers may have different numbers of choices. */
  chooseLayer(layer) {
    const [before, now] = [this.layer, this.layers[layer]].map(({ queue }) => queue.length);
    const { placed } = this.state;
    this.set({ layer, placed: placed === 0 || placed === before ? now : Math.min(placed, now) });
  }
}

/** The colour of an expert: there are ten, and the numbers tell more apart. */
export function colourOf(expert, dark) {
  const few = FEW[dark ? "dark" : "light"];
  return few[expert % few.length];
}
