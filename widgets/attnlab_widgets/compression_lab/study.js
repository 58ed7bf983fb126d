// What the panels share: the state, and what follows from it.
import { asBuffer } from "#lib/quantization.js";
import { Network, scoreAt } from "./compress.js";
import { right, seeds, sentence } from "./words.js";

export const NAMES = ["student", "kept", "bits", "cut", "per", "matrix", "layer", "head", "example"];
const MODEL = "the model";
const MASKED = 255;
const KEPT_MAPS = 60;

export class Study {
  constructor(model) {
    this.model = model;
    this.lab = model.get("_lab");
    const buffer = asBuffer(model.get("_numbers"));
    this.networks = this.lab.networks.map((told) => new Network(told, buffer));
    this.cell = [0, 0]; // query and key that are read out
    this.mapped = new Map();
    this.read();
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  get names() {
    return this.lab.networks.map(({ name }) => name);
  }

  /** Read the traits, once for each drawing; what a network does not have becomes its nearest. */
  read() {
    const state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    this.network = this.networks[Math.max(0, this.names.indexOf(state.student))];
    const { told } = this.network;
    if (!told.matrices.includes(state.matrix)) state.matrix = told.matrices[0];
    if (!told.cuts.includes(state.cut)) state.cut = told.cuts[0];
    this.state = state;
    this.example = this.lab.examples[Math.min(state.example, this.lab.examples.length - 1)];
    this.n = this.example.size;
    this.cell = this.cell.map((at) => Math.min(at, this.n - 1));
    this.masks = this.network.masks(state);
    this.size = this.network.size(this.masks, state);
    this.whole = 4 * this.networks[0].told.numbers;
    this.readMaps();
    state.layer = Math.min(state.layer, Math.max(0, this.heads.length - 1));
    state.head = Math.min(state.head, (this.heads[state.layer] ?? 1) - 1);
    const said = right(this.score(), this.wholeScore, this.lab);
    this.sentence = sentence(told.name, state, this.size, this.whole, said);
    this.seeds = seeds(told.seeds);
  }

  // ---- what is right

  at = (kept, bits) => this.lab.shares.indexOf(kept) * this.lab.bits.length + this.lab.bits.indexOf(bits);

  get grid() {
    return this.model.get("_scores")[`${this.state.student}|${this.state.cut}|${this.state.per}`];
  }

  score(kept = this.state.kept, bits = this.state.bits) {
    return this.grid ? scoreAt(this.grid, this.at(kept, bits), this.lab.rows) : null;
  }

  get wholeScore() {
    const [, grid] = Object.entries(this.model.get("_scores")).find(([name]) => name.startsWith(`${MODEL}|`)) ?? [];
    return grid ? scoreAt(grid, this.at(1, 32), this.lab.rows)[0] : 0;
  }

  // ---- maps

  /** Maps before and after: lists of layers, each h · n · n weights; `old` says that they are of an
   * earlier state, as Python computes those of this model. */
  readMaps() {
    const { told } = this.network;
    if (!told.run) return this.readMapsOfPython();
    const { cut, kept, bits, per } = this.state;
    const { features, examples } = this.lab;
    const at = examples.indexOf(this.example);
    const made = (masks, how, key) => {
      if (!this.mapped.has(key)) {
        if (this.mapped.size >= KEPT_MAPS) this.mapped.delete(this.mapped.keys().next().value);
        this.mapped.set(key, this.network.maps(masks, how, this.example, features));
      }
      return this.mapped.get(key);
    };
    this.before = made(new Map(), { bits: 32, per }, [told.name, at].join("|"));
    this.after = kept === 1 && bits === 32 ? this.before : made(this.masks, this.state, [told.name, at, cut, kept, bits, per].join("|"));
    [this.heads, this.causal, this.old] = [told.heads, told.causal, false];
    return undefined;
  }

  readMapsOfPython() {
    const { student, cut, kept, bits, per, example } = this.state;
    const number = (x) => (Number.isInteger(x) ? [String(x), `${x}.0`] : [String(x)]);
    const asked = number(kept).map((share) => [student, cut, share, bits, per, example].join("|"));
    this.old = !asked.includes(this.model.get("_mapped"));
    const levels = new Uint8Array(asBuffer(this.model.get("_maps")));
    const { n, network: { told: { heads, causal } } } = this;
    const weights = Float32Array.from(levels, (level) => (level === MASKED ? 0 : (level / 254) ** 2));
    const size = heads.reduce((sum, each) => sum + each, 0) * n * n;
    const split = (from) => heads.map((each) => weights.subarray(from, (from += each * n * n)));
    [this.heads, this.causal] = [heads, causal];
    [this.before, this.after] = size ? [split(0), split(size)] : [[], []];
    return undefined;
  }

  map(which) {
    const { layer, head } = this.state;
    const each = this.n * this.n;
    return (which === "before" ? this.before : this.after)[layer]?.subarray(head * each, (head + 1) * each);
  }
}
