// What the panels share: the layers, and the moment that is shown.
import { unzlibSync } from "fflate";
import { attentionSaid, channelsOf, openFilm, segmentOf, stateSaid } from "#lib/film.js";
import { asBuffer } from "#lib/quantization.js";

const NAMES = ["query", "layer", "head", "channel", "vector", "order"];

export class Study {
  constructor(model) {
    this.model = model;
    const { tokens, layers } = model.get("_film");
    const buffer = asBuffer(unzlibSync(new Uint8Array(asBuffer(model.get("_data")))));
    this.tokens = tokens;
    this.n = tokens.length;
    this.layers = layers.map((told) => openFilm(buffer, told, this.n));
    this.at = null; // what is pointed at: a position, or [token, channel]
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    const { layer, query } = this.state;
    this.layer = this.layers[layer];
    this.attends = this.layer.kind === "attention";
    const chosen = { ...this.state, token: this.tokens[query] };
    this.sentence = this.attends ? attentionSaid(this.layer, chosen) : stateSaid(this.layer, this.state.vector, chosen);
    if (!this.attends) this.channels = channelsOf(this.layer, this.state.vector, this.state.order);
  }

  /** What another layer has less of begins anew. */
  chooseLayer(layer) {
    const { h = 1, dim = 1, r = 1 } = this.layers[layer];
    const { head, channel, vector } = this.state;
    this.set({ layer, head: head !== null && head >= h ? null : head, channel: Math.min(channel, dim - 1), vector: Math.min(vector, r - 1) });
  }

  /** The pictures of the film: segments, or tokens of a state. */
  get moment() {
    return this.attends ? segmentOf(this.layer, this.state.query) : this.state.query;
  }

  get moments() {
    return this.attends ? this.layer.starts.length : this.n;
  }

  /** Another segment, at the same place in it; of a state, another token. */
  show(moment) {
    if (!this.attends) return this.set({ query: moment });
    const { segment } = this.layer;
    return this.set({ query: Math.min(this.n - 1, moment * segment + (this.state.query % segment)) });
  }
}
