// What the panels share: the recording, what is chosen, and one head's map under it.
import { asBuffer, openLayer } from "#lib/quantization.js";
import { difference, mapOf, maskPicture } from "#lib/maps.js";
import { headName } from "#lib/words.js";
import { openOrigins } from "./origins.js";
import { openVectors } from "./steps.js";

const PATIENCE = 5000; // milliseconds until a kernel that does not answer is given up
const REMEMBERED = 48_000_000; // weights of decoded maps kept for reuse

export class Store {
  constructor(model) {
    this.model = model;
    this.hover = { query: null, key: null };
    this.load();
  }

  load() {
    this.loads = (this.loads ?? 0) + 1;
    this.recording = this.model.get("_recording");
    this.buffer = asBuffer(this.model.get("_data"));
    this.opened = new Map();
    this.maps = new Map();
    this.masks = new Map();
  }

  get(name) {
    return this.model.get(name);
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  get layers() {
    return this.recording.layers;
  }

  get layer() {
    return Math.min(this.get("layer"), this.layers.length - 1);
  }

  get head() {
    return Math.min(this.get("head"), this.shape.h - 1);
  }

  get shape() {
    return this.layers[this.layer];
  }

  /** What is pinned, or null; also where it was pinned in a longer layer than this. */
  pinned(side) {
    const at = this.get(side);
    return at === null || at >= this.shape[side === "query" ? "n" : "m"] ? null : at;
  }

  /** What a head is called: by the side of its layer in a model that has several. */
  called(layer, head) {
    return headName(this.layers[layer].title ?? `layer ${layer}`, head);
  }

  get step() {
    return Math.min(this.get("step"), this.recording.steps.length - 1);
  }

  get which() {
    return { first: 0, second: 1, difference: 1 }[this.get("shown")];
  }

  get settings() {
    return { hideFirst: this.get("hide_first"), weighted: this.get("value_weighted") && this.recording.norms };
  }

  get signed() {
    return this.recording.signed || this.get("shown") === "difference";
  }

  get statistics() {
    return this.recording.statistics[this.step][this.which];
  }

  /** The chosen head first, then those shown with it that have the same tokens. */
  get lineHeads() {
    const { n, m, q, k } = this.shape;
    const same = (other) =>
      other && other.n === n && other.m === m && other.q.set === q.set && other.k.set === k.set;
    const found = [[this.layer, this.head]];
    for (const [layer, head] of this.get("heads")) {
      const known = found.some(([l, h]) => l === layer && h === head);
      if (!known && same(this.layers[layer]) && head < this.layers[layer].h) found.push([layer, head]);
    }
    return found.slice(0, 6);
  }

  token(side, at) {
    const { set, start } = this.shape[side];
    const found = this.recording.tokens[set][start + at];
    return { short: found[0], full: found[1] ?? found[0] };
  }

  arrays(step, which, layer) {
    const name = `${step}/${which}/${layer}`;
    if (!this.opened.has(name)) {
      const header = this.recording.blocks[step][which][layer];
      this.opened.set(name, openLayer(this.buffer, header, this.layers[layer]));
    }
    return this.opened.get(name);
  }

  /** Whether a head's query i may attend to key j, as a function; null where no mask is known. */
  allowed(layer, head) {
    const masks = this.masksOf(layer);
    return masks && ((i, j) => masks.some(({ allowed }) => allowed(head, i, j)));
  }

  /** The masks of what is shown: of a difference both; null where one of them is not known. */
  masksOf(layer) {
    const all = this.get("shown") === "difference" ? [0, 1] : [this.which];
    const masks = all.map((which) => this.arrays(this.step, which, layer).mask);
    return masks.every(Boolean) ? masks : null;
  }

  /** What each row of the shown weights leaves of one; null where that is nothing, or no share. */
  left(layer, head) {
    const { hideFirst, weighted } = this.settings;
    if (this.get("shown") === "difference" || hideFirst || weighted) return null;
    const { left, n } = this.arrays(this.step, this.which, layer);
    return left && left.subarray(head * n, (head + 1) * n);
  }

  /** For each pixel whether all under it is masked; null without a mask. */
  maskPicture(layer, head, ...window) {
    const masks = this.masksOf(layer);
    if (!masks) return null;
    const own = masks.every(({ shared }) => shared) ? "" : head;
    const name = [this.step, this.get("shown"), layer, own, ...window].join("/");
    if (!this.masks.has(name)) {
      if (this.masks.size > 400) this.masks.clear();
      const pictures = masks.map((mask) => maskPicture(mask, head, ...window));
      this.masks.set(name, pictures.reduce((a, b) => a.map((one, at) => one & b[at])));
    }
    return this.masks.get(name);
  }

  /** A head's recorded weights, whatever is done to those that are shown. */
  recorded(layer, head) {
    return this.remembered([this.step, this.which, layer, head, "recorded"].join("/"), () =>
      mapOf(this.arrays(this.step, this.which, layer), head, {}),
    );
  }

  /** Queries, keys and values of a head, from the page or from the kernel; or {said}: why not. */
  async vectors(layer, head) {
    const place = [this.step, this.which, layer, head];
    const { n, m } = this.layers[layer];
    const saved = this.model.get("_vector_blocks");
    if (typeof saved === "string") return { said: saved };
    if (saved) {
      const found = place.reduce((part, at) => part[at] ?? part[0], saved);
      return typeof found === "string" ? { said: found } : openVectors(asBuffer(this.model.get("_vectors")), found, n, m);
    }
    const { content, buffers } = await this.asked(place);
    return content.said ? { said: content.said } : openVectors(asBuffer(buffers[0]), { ...content.header, at: 0 }, n, m);
  }

  /** Whether this is a saved page, which no Python answers. */
  get saved() {
    return Boolean(this.model.get("_vector_blocks"));
  }

  /** The parts of the scores of the query that the model was asked about; {said}: why there are none; {unasked}; null without a model. */
  get origins() {
    const header = this.get("_origins");
    if (!header?.place) return header?.unasked ? header : null;
    return header.said ? header : openOrigins(asBuffer(this.get("_origin_data")), header, this.layers[header.place[1]].m);
  }

  /** What the kernel answers, or after a while that none does. */
  asked(place) {
    const { model } = this;
    return new Promise((done) => {
      const finish = (content, buffers) => {
        model.off("msg:custom", heard);
        done({ content, buffers });
      };
      const heard = (content, buffers) => String(content?.vectors) === String(place) && finish(content, buffers);
      model.on("msg:custom", heard);
      model.send({ vectors: place });
      setTimeout(finish, PATIENCE, { said: "No kernel answers. Run the notebook's cell again to follow the weights step by step." });
    });
  }

  one(which, layer, head) {
    const { hideFirst, weighted } = this.settings;
    const name = [this.step, which, layer, head, hideFirst, weighted].join("/");
    return this.remembered(name, () =>
      mapOf(this.arrays(this.step, which, layer), head, { hideFirst, weighted }),
    );
  }

  /** The map that is shown for a head. */
  map(layer, head) {
    const shown = this.get("shown");
    if (shown !== "difference") return this.one(this.which, layer, head);
    const { hideFirst, weighted } = this.settings;
    const name = [this.step, "difference", layer, head, hideFirst, weighted].join("/");
    return this.remembered(name, () => difference(this.one(0, layer, head), this.one(1, layer, head)));
  }

  /** The top of the colour scale: the same for both recordings, so that they can be compared. */
  largest(layer, head) {
    const own = this.map(layer, head).largest;
    if (!this.recording.compared || this.get("shown") === "difference") return own;
    return Math.max(this.one(0, layer, head).largest, this.one(1, layer, head).largest);
  }

  remembered(name, make) {
    const known = this.maps.get(name);
    if (known) {
      this.maps.delete(name);
      this.maps.set(name, known);
      return known;
    }
    const made = make();
    this.maps.set(name, made);
    const size = ({ values, n }) => values?.length ?? n * 8;
    let held = [...this.maps.values()].reduce((sum, map) => sum + size(map), 0);
    for (const [old, map] of this.maps) {
      if (held <= REMEMBERED || old === name) break;
      held -= size(map);
      this.maps.delete(old);
    }
    return made;
  }
}

