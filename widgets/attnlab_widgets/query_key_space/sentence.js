// The sequence of the chosen token: its queries and keys as two columns with lines between them. The
// columns are those of the attention view; this is the store that they read.
import { el } from "#parts/dom.js";
import { linesPanel } from "#parts/lines.js";
import { keysOf } from "./space.js";
import { headName } from "#lib/words.js";
import { aroundIt, partnersSaid } from "./words.js";

const SIZES = { left: 118, right: 150, high: 286 };

export function sentencePanel(study, view) {
  const store = new SequenceStore(study);
  const lines = linesPanel(store, { ...view, hover: (place) => Object.assign(store.hover, place) && view.hover(() => lines.hover()) }, SIZES);
  const kept = el("p", { class: "qk-said av-quiet", text: `Lines: each query's strongest keys, at most ${study.space.kept}; width is weight.` });
  const strongest = el("p", { class: "qk-said", "aria-live": "polite", "data-testid": "strongest" });
  const said = el("p", { class: "qk-said", "data-testid": "near" });
  const node = el("div", { class: "qk-sentence", "data-testid": "sentence" }, lines.node, kept, strongest, said);
  return {
    node,
    draw() {
      store.follow();
      lines.draw();
      strongest.textContent = store.typed ? "" : partnersSaid(study);
      said.textContent = store.typed ? "" : aroundIt(study);
    },
  };
}

class SequenceStore {
  constructor(study) {
    this.study = study;
    this.hover = { query: null, key: null };
    this.signed = false;
    this.error = 0.02; // of a weight that is kept in 31 steps
    this.loads = "";
  }

  /** What is shown now: the sequence of the chosen token, or the sentence that was typed. */
  follow() {
    const { study } = this;
    this.typed = study.typed();
    if (this.typed) {
      const { tokens, strongest } = this.typed;
      this.tokens = { q: tokens, k: tokens };
      this.rows = strongest;
      this.loads = `typed ${study.get("_placed").text}`;
      return;
    }
    const { q, k } = study.sets();
    const sequence = study.sequence;
    this.sides = { query: q.rows[sequence] ?? [], key: k.rows[sequence] ?? [] };
    this.tokens = Object.fromEntries([["q", q, "query"], ["k", k, "key"]].map(([name, set, side]) =>
      [name, this.sides[side].map((row) => [set.short(row), set.full(row)])]));
    const attention = study.attention();
    this.rows = this.sides.query.map((row) => keysOf(attention, row).map((one) => [k.rank[one.row], one.w]));
    this.loads = `${study.shown} ${study.chosen} ${sequence}`;
  }

  /** What a head is called. */
  called(layer, head) {
    return headName(`layer ${layer}`, head);
  }

  get shape() {
    return { n: this.tokens.q.length, m: this.tokens.k.length, q: { set: 0, start: 0 }, k: { set: 1, start: 0 } };
  }

  token(name, i) {
    const [short, full = short] = this.tokens[name][i];
    return { short, full };
  }

  pinned(side) {
    if (this.typed) return this.study.typedAt?.[side] ?? null;
    const { selected } = this.study;
    return selected?.side === side ? this.sides[side].indexOf(selected.row) : null;
  }

  get lineHeads() {
    return [this.study.head.is];
  }

  map() {
    const row = (i) => this.rows[i].map(([j, w]) => ({ i, j, w }));
    return {
      largest: 1, whole: true, row,
      column: (j) => this.rows.flatMap((_, i) => row(i).filter((one) => one.j === j)),
    };
  }

  get(name) {
    return { threshold: 0, top_k: this.study.space.kept }[name];
  }

  set({ query, key }) {
    const [side, i] = query !== null && query !== undefined ? ["query", query] : ["key", key];
    if (this.typed) this.study.typedAt = i === null || i === undefined ? null : { [side]: i };
    else if (i === null || i === undefined) this.study.select();
    else this.study.select(side, this.sides[side][i]);
    if (this.typed) this.study.changed();
  }
}
