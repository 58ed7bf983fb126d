// What the studio's panels share: the pattern, its mask and what follows from it; and what was done.
import { asBytes, exampleScore, maskedRows, MOST, overlaid, painted, paintedCode, pairsOf, receptiveField, SHARPNESS, softmaxRow } from "./mask.js";
import { lists } from "./parts.js";
import { algebra } from "./patterns.js";
import { asBuffer } from "#lib/quantization.js";

const SOON = 700; // milliseconds in which the moves of a slider, or the keys of a word, are undone together
const REMEMBERED = 200;

export class Study {
  constructor(model) {
    this.model = model;
    this.past = [];
    this.future = [];
    this.last = { kind: "", at: 0 };
    this.algebra = algebra(this.get("_primitives"));
    this.lists = lists(this.get("_primitives"));
    this.load();
  }

  get(name) {
    return this.model.get(name);
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the model anew. Where its expression does not fit its n, the last mask stays, and why is said. */
  load() {
    const [text, n] = [this.get("expression"), this.get("n")];
    if (text !== this.seen?.text || n !== this.seen?.n) this.draft = null;
    this.seen = { text, n };
    const drafted = Boolean(this.draft);
    if (!this.holding) this.cells = painted(this.get("painted"));
    try {
      this.take(text, n);
      if (!drafted) this.error = "";
    } catch (error) {
      this.error = error.message;
      if (!this.base) this.take("~full()", n);
    }
    this.derive();
  }

  take(text, n) {
    if (this.text === text && this.n === n) return;
    const pattern = this.algebra.read(text);
    const base = this.algebra.dense(pattern, n);
    Object.assign(this, { text, n, pattern, base });
  }

  derive() {
    const { n, base } = this;
    this.mask = overlaid(base, n, this.cells);
    this.pairs = pairsOf(this.mask);
    this.fullyMasked = maskedRows(this.mask, n);
    this.byHand = [...this.cells.keys()].filter((place) => {
      const [i, j] = [Math.floor(place / MOST), place % MOST];
      return i < n && j < n && base[i * n + j] !== this.mask[i * n + j];
    }).length;
    this.fields = null;
  }

  get row() {
    return Math.min(this.get("row"), this.n - 1);
  }

  /** What is written in the field: the expression, or what does not yet fit. */
  get written() {
    return this.draft?.text ?? this.get("expression");
  }

  get wanted() {
    return this.draft?.n ?? this.get("n");
  }

  get code() {
    return paintedCode(this.text, this.base, this.mask, this.n);
  }

  get description() {
    return this.algebra.description(this.pattern);
  }

  get remarks() {
    return this.algebra.remarks(this.pattern, this.n);
  }

  get receptiveField() {
    const residual = this.get("residual");
    this.fields ??= {};
    return (this.fields[residual] ??= receptiveField(this.mask, this.n, residual));
  }

  get layer() {
    return Math.min(this.get("layer"), this.receptiveField.frames.length);
  }

  get score() {
    const kind = this.get("scores");
    if (kind !== "given") return (i, j) => SHARPNESS[kind] * exampleScore(i, j);
    const side = this.get("_side");
    const given = new Float32Array(asBuffer(this.get("_scores")).slice(0, 4 * side * side));
    return (i, j) => given[i * side + j];
  }

  weights(i) {
    return softmaxRow(this.score, this.mask, this.n, i);
  }

  // ---- changes

  /** Another expression or length. One that cannot be is kept as a draft, with its error. */
  propose({ text = this.written, n = this.wanted }, kind) {
    try {
      const known = { text: this.text, n: this.n };
      if (text !== known.text || n !== known.n) this.algebra.dense(this.algebra.read(text), n);
    } catch (error) {
      this.draft = { text, n };
      this.error = error.message;
      return false;
    }
    this.draft = null;
    this.error = "";
    this.remember(kind);
    this.set({ expression: text, n, row: Math.min(this.get("row"), n - 1) });
    return true;
  }

  allowed(i, j) {
    return this.mask[i * this.n + j];
  }

  /** Allow or forbid cells by hand; a cell that equals the expression is not painted. */
  paint(places, allowed, kind = "stroke") {
    const cells = new Map(this.cells);
    for (const [i, j] of places) {
      if (this.base[i * this.n + j] === allowed) cells.delete(i * MOST + j);
      else cells.set(i * MOST + j, allowed);
    }
    if (kind !== "going on") this.remember("paint");
    this.cells = cells;
    this.model.set("painted", asBytes(cells));
  }

  /** During a stroke the page ignores older cells that the kernel sends back. */
  hold() {
    this.holding = true;
  }

  save() {
    this.holding = false;
    this.set({ painted: asBytes(this.cells) });
  }

  wipe() {
    this.remember("wipe");
    this.set({ painted: asBytes(new Map()) });
  }

  now() {
    return { expression: this.get("expression"), n: this.get("n"), painted: this.get("painted") };
  }

  remember(kind) {
    const soon = performance.now() - this.last.at < SOON;
    const same = (kind === "n" || kind === "text") && kind === this.last.kind && soon;
    this.last = { kind, at: performance.now() };
    if (same) return;
    this.past = [...this.past, this.now()].slice(-REMEMBERED);
    this.future = [];
  }

  undo() {
    this.step(this.past, this.future);
  }

  redo() {
    this.step(this.future, this.past);
  }

  step(from, to) {
    if (!from.length) return;
    to.push(this.now());
    const before = from.pop();
    this.last = { kind: "", at: 0 };
    this.draft = null;
    this.set({ ...before, row: Math.min(this.get("row"), before.n - 1) });
  }
}
