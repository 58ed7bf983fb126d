// The wall's state: tiles as they came, by their set (weights, direction, length).
import { unzlibSync } from "fflate";
import { asBuffer } from "#lib/quantization.js";
import { arranged, arrangedAround, mapOf, openTile, setName, word } from "#lib/wall.js";

const inflated = (data) => unzlibSync(new Uint8Array(asBuffer(data)));
const text = (data) => new TextDecoder().decode(inflated(data));

export class Wall {
  constructor(model) {
    this.model = model;
    this.came = new Map(); // set → name → tile, those sent one by one included
    this.hover = null; // {i, j, name}
    this.load();
  }

  get = (name) => this.model.get(name);

  set(changed) {
    for (const [name, value] of Object.entries(changed)) this.model.set(name, value);
    this.model.save_changes();
  }

  load() {
    this.wall = JSON.parse(text(this.get("_about")));
    this.names = this.wall.tokens.map(word);
    this.maps = new Map();
    if (!this.get("_data")?.byteLength) return;
    const buffer = asBuffer(inflated(this.get("_data")));
    for (const [key, tiles] of Object.entries(JSON.parse(text(this.get("_headers"))))) {
      const opened = Object.entries(tiles).map(([name, header]) => [name, openTile(buffer, header)]);
      this.came.set(key, new Map(opened));
    }
  }

  /** A tile that was sent by itself. */
  receive({ set, name, ...header }, buffers) {
    if (!this.came.has(set)) this.came.set(set, new Map());
    const buffer = buffers.length ? asBuffer(buffers[0]) : new ArrayBuffer(0);
    this.came.get(set).set(name, openTile(buffer, { ...header, at: 0 }));
    this.maps = new Map();
  }

  get mechanisms() {
    return this.get("shelf") === "mechanisms";
  }

  /** The pages of the other shelf that is chosen, in order; none while they are not there. */
  get around() {
    if (!this.get("_around")?.byteLength) return [];
    if (this.pagesOf !== this.get("_around")) {
      this.pagesOf = this.get("_around");
      this.pages = JSON.parse(text(this.pagesOf));
    }
    return arrangedAround(this.pages, this.get("shelf"), this.get("order"));
  }

  get n() {
    return this.wall.tokens.length;
  }

  get shownLength() {
    return Math.min(this.get("length"), this.n);
  }

  get at() {
    return this.wall.lengths.indexOf(this.get("length"));
  }

  setOf(weights, causal, n) {
    return this.came.get(setName(weights, causal, n));
  }

  /** Whether all maps of a choice are here, so that it works without a kernel. */
  has(weights, causal, n) {
    return (this.setOf(weights, causal, n)?.size ?? 0) >= this.wall.tiles.length;
  }

  tile(name) {
    return this.setOf(this.get("weights"), this.get("causal"), this.shownLength)?.get(name) ?? null;
  }

  /** The chosen head of a mechanism; null while it is not there. */
  map(name) {
    const tile = this.tile(name);
    if (!tile || tile.why) return null;
    const key = [name, this.get("weights"), this.get("causal"), this.shownLength, this.get("head")].join();
    if (!this.maps.has(key)) this.maps.set(key, mapOf(tile, this.get("head")));
    return this.maps.get(key);
  }

  get shown() {
    const { order, family, seeing } = Object.fromEntries(["order", "family", "seeing"].map((name) => [name, this.get(name)]));
    return arranged([...this.wall.tiles], { order, family, seeing, at: this.at });
  }

  headSaid(name) {
    const tile = this.tile(name);
    if (tile && tile.h === 1) return "the layer as a whole";
    return this.get("head") === null ? "mean of heads" : `head ${this.get("head")}`;
  }
}
