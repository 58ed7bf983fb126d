// What the panels share: the maps with their tokens, what is chosen, searched and pointed at.
import { attentionOf, bytesOf, byPositionOf, keysOf, normsOf, placesOf, queriesOf, tokenSet } from "./space.js";
import { coloured, legendOf, valuesOf } from "#lib/colouring.js";
import { found } from "#lib/tokens.js";
import { shuffled } from "#lib/labelling.js";


export class Study {
  constructor(model) {
    this.model = model;
    this.load();
  }

  load() {
    this.space = this.model.get("_space");
    this.data = bytesOf(this.model.get("_data"));
    this.known = new Map();
    this.members = null; // what was drawn around: {query: rows, key: rows}
    this.at = null; // what is pointed at: {side, row} in the chosen head
    this.typedAt = null; // the chosen token of the typed sentence: {query: i} or {key: i}
    this.marksAt = 0;
  }

  get(name) {
    return this.model.get(name);
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Made once for each key. */
  once(key, make) {
    if (!this.known.has(key)) this.known.set(key, make());
    return this.known.get(key);
  }

  // ---- maps and heads

  get shown() {
    return Math.min(this.get("shown"), this.space.maps.length - 1);
  }

  get map() {
    return this.space.maps[this.shown];
  }

  get heads() {
    return this.map.heads;
  }

  /** The place of the chosen head among those that are mapped. */
  get chosen() {
    const [layer, head] = [this.get("layer"), this.get("head")];
    return Math.max(0, this.heads.findIndex(({ is }) => is[0] === layer && is[1] === head));
  }

  choose(at, more = {}) {
    const [layer, head] = this.heads[at].is;
    this.members = null;
    this.set({ layer, head, ...more });
  }

  get head() {
    return this.heads[this.chosen];
  }

  layerOf(at, map = this.map) {
    return this.space.points[map.points].layers[map.heads[at].is[0]];
  }

  statistic(name, at) {
    return this.layerOf(at).statistics[name]?.[this.heads[at].is[1]] ?? null;
  }

  /** The kinds that there are, the most frequent first, "mixed" last. */
  get kinds() {
    const all = Object.values(this.space.kinds).filter(Boolean);
    const often = (kind) => (kind === "mixed" ? 0 : all.filter((one) => one === kind).length);
    return [...new Set(all)].sort((a, b) => often(b) - often(a));
  }

  kind(at) {
    return this.space.kinds[this.heads[at].is.join(",")] ?? "";
  }

  // ---- tokens, coordinates, attention

  setAt(at) {
    return this.once(`set ${at}`, () => tokenSet(this.data, this.space.tokens[at]));
  }

  sets(at = this.chosen) {
    const { q, k } = this.layerOf(at);
    return { q: this.setAt(q), k: this.setAt(k) };
  }

  places(at, shown = this.shown) {
    return this.once(`places ${shown} ${at}`, () => {
      const map = this.space.maps[shown];
      const { q, k } = this.sets(at);
      return placesOf(this.data, map.heads[at].at, q.n + k.n, map.dimensions);
    });
  }

  blocks(at) {
    return this.layerOf(at).heads[this.heads[at].is[1]];
  }

  attention(at = this.chosen) {
    const { q, k } = this.sets(at);
    return this.once(`attention ${this.map.points} ${at}`, () => attentionOf(this.data, this.blocks(at).attention, q, k));
  }

  norms(at = this.chosen) {
    const { q, k } = this.sets(at);
    return this.once(`norms ${this.map.points} ${at}`, () => normsOf(this.data, this.blocks(at).norms, q.n, k.n));
  }

  byPosition(at = this.chosen) {
    return this.once(`by position ${this.map.points} ${at}`, () => byPositionOf(this.data, this.blocks(at).by_position));
  }

  /** The keys that a query attends to most, or the queries that attend to a key: [{row, w}]. */
  partners(side, row) {
    const { q, k } = this.sets();
    return side === "query" ? keysOf(this.attention(), row) : queriesOf(this.attention(), row, q, k);
  }

  order(count) {
    return this.once(`order ${count}`, () => shuffled(count));
  }

  // ---- colours and marks

  colouring(at) {
    const mode = this.get("colour");
    const { q, k } = this.layerOf(at);
    const own = mode.endsWith("norm") ? ` ${this.map.points} ${at}` : "";
    return this.once(`values ${mode} ${this.get("modulo")} ${q} ${k}${own}`, () =>
      valuesOf(mode, { ...this.sets(at), norms: own ? this.norms(at) : null, modulo: this.get("modulo") }));
  }

  colours(at, dark) {
    const values = this.colouring(at);
    values.made ??= {};
    return (values.made[dark] ??= coloured(values, dark));
  }

  /** The colours of queries and then as many keys. */
  sides(count, dark) {
    return this.once(`sides ${count} ${dark}`, () => {
      const half = (value) => new Uint8Array(count / 2).fill(value);
      return coloured({ at: { query: half(0), key: half(1) } }, dark);
    });
  }

  legend(dark) {
    const values = this.colouring(this.chosen);
    values.legends ??= {};
    return (values.legends[dark] ??= legendOf(values, dark));
  }

  /** What the points of a head are marked with: 0 dim, 1 as they are, 2 large. */
  marks(at) {
    const { q, k } = this.sets(at);
    const key = `marks ${this.layerOf(at).q} ${this.layerOf(at).k}`;
    const made = this.once(key, () => ({ array: new Uint8Array(q.n + k.n).fill(1), version: -1, some: false }));
    if (made.version !== this.marksAt) {
      made.some = this.mark(made.array, q, k);
      made.version = this.marksAt;
    }
    return made;
  }

  /** Called where what is marked may have changed. */
  remark() {
    this.marksAt += 1;
  }

  mark(array, q, k) {
    const selected = this.selected;
    if (selected) {
      const sequence = this.sequence;
      fill(array, q, k, (set, row) => (set.sequence[row] === sequence ? 2 : 0));
      return true;
    }
    if (this.members) {
      array.fill(0);
      for (const row of this.members.query) array[row] = 2;
      for (const row of this.members.key) array[q.n + row] = 2;
      return true;
    }
    if (this.typed() && !this.get("search").trim()) {
      array.fill(0);
      return true;
    }
    const hits = { q: found(q.texts, this.get("search")), k: found(k.texts, this.get("search")) };
    if (hits.q) fill(array, q, k, (set, row, side) => (hits[side][set.text[row]] ? 2 : 0));
    else array.fill(1);
    return hits.q !== null;
  }

  /** How many queries and keys of a head the search means. */
  counted(at = this.chosen) {
    const { q, k } = this.sets(at);
    const count = (set) => {
      const hits = found(set.texts, this.get("search"));
      return hits ? set.text.reduce((sum, text) => sum + Number(hits[text]), 0) : 0;
    };
    return { query: count(q), key: count(k) };
  }

  // ---- what is chosen among the points

  get selected() {
    const [side, row] = this.get("selected");
    if (side === undefined) return null;
    const { q, k } = this.sets();
    return row < (side === "query" ? q : k).n ? { side, row } : null;
  }

  /** The sequence of the chosen point. */
  get sequence() {
    const { side, row } = this.selected;
    return this.setOf(side).sequence[row];
  }

  setOf(side) {
    const { q, k } = this.sets();
    return side === "query" ? q : k;
  }

  /**
   * The typed sentence in a head: its tokens, coordinates (queries, keys) and strongest keys. It
   * stands back while something else is chosen.
   */
  typed(at = this.chosen) {
    if (this.selected || this.members) return null;
    const { tokens, heads } = this.get("_placed");
    const own = heads?.[this.heads[at].is.join(",")];
    if (!own || this.shown !== (this.space.film ? this.space.maps.length - 1 : 0)) return null;
    if (!own.places) {
      const flat = [...own.queries, ...own.keys].flatMap(([x, y, z = 0]) => [x, y, z]);
      const count = 2 * tokens.length;
      own.places = Float32Array.from(flat);
      own.marks = { array: new Uint8Array(count).fill(2), version: 0, some: false };
    }
    return { tokens, ...own };
  }

  /** What the chosen token of the typed sentence attends to, or is attended to by: [i, weight]. */
  typedPartners(typed) {
    const { query, key } = this.typedAt ?? {};
    if (query !== undefined) return typed.strongest[query];
    if (key === undefined) return [];
    return typed.strongest.flatMap((row, i) => row.filter(([j]) => j === key).map(([, w]) => [i, w]));
  }

  select(side, row) {
    this.members = null;
    this.set({ selected: row === undefined ? [] : [side, row] });
  }
}

function fill(array, q, k, mark) {
  for (let row = 0; row < q.n; row += 1) array[row] = mark(q, row, "q");
  for (let row = 0; row < k.n; row += 1) array[q.n + row] = mark(k, row, "k");
}

