// What the panels share: the vectors, the four choices that follow from the traits, and the query that is shown.
import {
  allowedPairs, byClustering, byHashing, bySorting, byWeight, fullWeights, hashes, heaviest, mean, recalls, rowsOf, turned, unit,
} from "#lib/choices.js";

export const WAYS = [
  { key: "weight", title: "Exact top-k", colour: "--av-series-4" },
  { key: "hashing", title: "Hashing (Reformer)", colour: "--av-series-0" },
  { key: "clustering", title: "Clustering (Routing)", colour: "--av-series-3" },
  { key: "sorting", title: "Sorting (Sinkhorn)", colour: "--av-series-2" },
];
const SORT = { temperature: 0.75, steps: 8 };

const floats = (view) => Array.from({ length: view.byteLength / 4 }, (_, i) => view.getFloat32(4 * i, true));

export class Study {
  constructor(model) {
    this.model = model;
    this.tokens = model.get("tokens");
    this.n = this.tokens.length;
    const queries = floats(model.get("_queries"));
    this.d = queries.length / this.n;
    this.given = { queries: rowsOf(queries, this.d), keys: rowsOf(floats(model.get("_keys")), this.d) };
    this.shared = !this.given.keys.length;
    this.axes = rowsOf(floats(model.get("_axes")), 2);
    const half = model.get("_most_buckets") / 2;
    const flat = rowsOf(floats(model.get("_rotations")), half).map((values) => Array.from(values));
    this.matrices = Array.from({ length: flat.length / this.d }, (_, round) => flat.slice(round * this.d, (round + 1) * this.d));
    this.pointed = null; // a pair [i, j] of text positions
    this.curves = new Map();
  }

  get(name) {
    return this.model.get(name);
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  rotations(rounds, buckets, turn = this.get("turn")) {
    const angle = (turn * Math.PI) / 180;
    return this.matrices.slice(0, rounds).map((R) => turned(R.map((values) => values.slice(0, buckets / 2)), angle));
  }

  /** Read the traits, once for each drawing. */
  read() {
    const { n } = this;
    const names = ["causal", "top", "buckets", "rounds", "turn", "clusters", "block", "query", "moved", "order"];
    const state = Object.fromEntries(names.map((name) => [name, this.get(name)]));
    this.state = state;
    const key = JSON.stringify([state.moved, state.causal]);
    if (key !== this.vectorsOf) {
      this.queries = this.given.queries.map((x, i) => this.#moved(x, state.moved[i]));
      this.keys = this.shared ? this.queries.map(unit) : this.given.keys;
      this.allowed = allowedPairs(n, { causal: state.causal, shared: this.shared });
      this.weights = fullWeights(this.queries, this.keys, this.allowed);
      this.curves.clear();
      this.vectorsOf = key;
    }
    this.most = heaviest(this.weights, n, state.top);
    this.found = Object.fromEntries(WAYS.map(({ key: way }) => [way, this.#measured(this.#choose(way, state))]));
    this.hashed = hashes(this.queries, this.rotations(1, state.buckets))[0];
  }

  #moved(x, by) {
    if (!by) return x;
    return x.map((value, i) => value + this.axes[i][0] * by[0] + this.axes[i][1] * by[1]);
  }

  #choose(way, { top, buckets, rounds, turn, clusters, block, causal }) {
    const { queries, keys, allowed, weights, n } = this;
    const others = this.shared ? queries : keys; // of which directions matter alone
    if (way === "weight") return byWeight(weights, allowed, n, top);
    if (way === "hashing") return byHashing(queries, others, allowed, this.rotations(rounds, buckets, turn));
    if (way === "clustering") return byClustering(queries, others, allowed, this.get("_starts").slice(0, clusters), Math.ceil(n / clusters));
    return bySorting(queries, keys, allowed, { block, causal, ...SORT });
  }

  #measured(choice) {
    const each = recalls(this.weights, this.n, this.most, choice.chosen);
    return { ...choice, each, recall: mean(each) };
  }

  /** What a way finds for other settings of its own: {pairs, recall, setting}, from few pairs to many. */
  curve(way) {
    const { top, buckets, turn } = this.state;
    const name = JSON.stringify([way, top, way === "hashing" ? [buckets, turn] : 0]);
    if (!this.curves.has(name)) {
      const settings = {
        weight: [],
        hashing: this.matrices.map((_, at) => ({ rounds: at + 1 })),
        clustering: this.clusterings.map((clusters) => ({ clusters })),
        sorting: this.blocks.map((block) => ({ block })),
      }[way];
      const points = settings.map((own) => {
        const { pairs, recall } = this.#measured(this.#choose(way, { ...this.state, ...own }));
        return { pairs, recall };
      });
      this.curves.set(name, points.sort((a, b) => a.pairs - b.pairs));
    }
    return this.curves.get(name);
  }

  get clusterings() {
    return [2, 3, 4, 6, 8, 12, 16].filter((clusters) => clusters <= this.n / 2 && clusters <= this.get("_starts").length);
  }

  get blocks() {
    return [1, 2, 4, 8, 16, 32].filter((block) => block <= this.n / 2);
  }

  /** Where a query, or a key that is not shared, stands in the plane. */
  place(x) {
    return [0, 1].map((axis) => x.reduce((sum, value, i) => sum + value * this.axes[i][axis], 0));
  }

  moveTo(point) {
    const at = this.place(this.given.queries[this.state.query]);
    const by = point.map((x, axis) => Math.round((x - at[axis]) * 1000) / 1000);
    this.set({ moved: { ...this.get("moved"), [this.state.query]: by } });
  }

  /** The names of the keys that a way chose for the query, heaviest first. */
  keysOf(way, i = this.state.query) {
    const { chosen } = this.found[way];
    return this.tokens.map((_, j) => j).filter((j) => chosen[i * this.n + j]).sort((a, b) => this.weights[i * this.n + b] - this.weights[i * this.n + a]);
  }

  get sentence() {
    const { query, buckets } = this.state;
    const way = this.found.hashing;
    const count = this.keysOf("hashing").length;
    const keys = count === 1 ? "1 key" : `${count} keys`;
    const share = way.each[query];
    const caught = Number.isNaN(share) ? "" : `, which ${count === 1 ? "holds" : "hold"} ${percent(share)} of the weight of its ${this.state.top === 1 ? "heaviest key" : `${this.state.top} heaviest keys`}`;
    return `Query ${query} “${this.tokens[query]}” is in bucket ${this.hashed[query]} of ${buckets} (first round). Hashing finds ${keys} for it${caught}; clustering ${percent(this.found.clustering.each[query])}, sorting ${percent(this.found.sorting.each[query])}.`;
  }
}

export const percent = (share) => (Number.isNaN(share) ? "–" : `${Math.round(100 * share)} %`);
