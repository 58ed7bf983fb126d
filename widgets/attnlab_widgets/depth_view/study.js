// What the panels share: the tokens on their way, and what is shown of them.
import { isEarly, openDepth, rowsOf, announcement, scaleOf } from "./depth.js";
import { asBuffer } from "#lib/quantization.js";

const NAMES = ["token", "step", "colour", "order"];

export class Study {
  constructor(model) {
    this.model = model;
    this.depth = openDepth(asBuffer(model.get("_data")), model.get("_depth"));
    this.early = isEarly(this.depth);
    this.at = null; // what is pointed at: [token, step]
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    const { colour, order, token } = this.state;
    this.values = this.depth[colour];
    this.scale = scaleOf(this.values, colour);
    this.rows = rowsOf(this.depth, order);
    this.sentence = announcement(this.depth, token);
  }

  value(i, at) {
    return this.values[i * this.depth.s + at];
  }
}
