// What the panels share: the tree with its numbers, what is chosen and pointed at, and undo.
import { excess, read, write } from "./brackets.js";
import { accumulated, above, below, listed, mask, names, numbered, shape, valued } from "./trees.js";

const LISTS = ["leaf_values", "node_values", "weights"];
const KEPT = ["tree", ...LISTS, "selected", "cell"];
const MOST_BACK = 100;

export class Study {
  constructor(model) {
    this.model = model;
    this.maps = model.get("_maps");
    this.weights = numbers(model.get("_data"));
    this.at = null; // what is pointed at: {node}, {leaf}, both, or {key}
    this.until = null; // the last of several neighbours that will be wrapped, a key
    this.error = "";
    this.past = [];
    this.future = [];
    this.last = null;
  }

  get(name) {
    return this.model.get(name);
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** The tree as it stands in the model, and all that follows from it. */
  get tree() {
    const key = JSON.stringify(["tree", ...LISTS].map((name) => this.get(name)));
    if (key !== this.known) {
      this.known = key;
      this.at = null; // it may be gone
      const lists = Object.fromEntries(LISTS.map((name) => [name, this.get(name)]));
      const tree = numbered(valued(read(this.get("tree")), lists));
      this.made = Object.assign(tree, accumulated(tree), { names: names(tree), mask: mask(tree) });
    }
    return this.made;
  }

  /** What is wrong with the text that is typed; nothing once another tree came from elsewhere. */
  get mistake() {
    return this.draftOf === this.get("tree") ? this.error : "";
  }

  get selected() {
    return Math.min(this.get("selected"), this.tree.keys.length - 1);
  }

  /** The phrase and the word whose cell is written out. */
  get cell() {
    const [node, leaf] = this.get("cell");
    return [Math.min(node, this.tree.m - 1), Math.min(leaf, this.tree.n - 1)];
  }

  /** The phrase that is pointed at, else the chosen one. */
  get phrase() {
    return this.at?.node ?? this.cell[0];
  }

  /** Choosing a word keeps the phrase if the word is below it, and choosing a phrase the word. */
  select(key) {
    this.until = null;
    this.set({ selected: key, cell: this.cellOf(this.tree, key) });
  }

  cellOf(tree, key) {
    const [node, leaf] = this.cell;
    if (key >= tree.n) {
      const leaves = below(tree, key - tree.n); // the word chosen before may be none of this tree
      return [key - tree.n, leaves.includes(leaf) ? leaf : leaves[0]];
    }
    return [above(tree, key).includes(node) ? node : tree.parents[key], key];
  }

  choose(node, leaf) {
    this.until = null;
    this.set({ selected: this.tree.n + node, cell: [node, leaf] });
  }

  // Changes of the tree or its numbers, which can be taken back. The same `tag` twice is one change.

  edit(root, chosen, tag = null) {
    const tooMany = excess(root);
    if (tooMany) {
      this.refuse(tooMany);
      return;
    }
    const tree = numbered(root);
    const key = Math.max(0, tree.keys.indexOf(chosen));
    this.until = null;
    this.remember({ tree: write(root), ...listed(tree), selected: key, cell: this.cellOf(tree, key) }, tag);
  }

  remember(changes, tag = null) {
    if (tag === null || tag !== this.last) this.past = [...this.past, this.now].slice(-MOST_BACK);
    this.last = tag;
    this.future = [];
    this.error = "";
    this.set(changes);
  }

  /** Another weight for a word. */
  weigh(leaf, weight) {
    this.remember({ weights: this.tree.leaves.map((one, j) => (j === leaf ? weight : one.weight)) }, `weight ${leaf}`);
  }

  get now() {
    return Object.fromEntries(KEPT.map((name) => [name, this.get(name)]));
  }

  undo() {
    this.travel("past", "future");
  }

  redo() {
    this.travel("future", "past");
  }

  travel(from, to) {
    if (!this[from].length) return;
    this[to] = [...this[to], this.now];
    const state = this[from][this[from].length - 1];
    this[from] = this[from].slice(0, -1);
    this.last = null;
    this.error = "";
    this.set(state);
  }

  /** The text as it is typed: the tree follows as soon as it can be read. */
  type(text) {
    try {
      const bare = read(text);
      this.error = "";
      const written = write(bare);
      if (written === this.get("tree")) return;
      const tree = numbered(valued(bare, Object.fromEntries(LISTS.map((name) => [name, this.get(name)]))));
      const key = Math.min(this.selected, tree.keys.length - 1);
      this.remember({ tree: written, ...listed(tree), selected: key, cell: this.cellOf(tree, key) }, "typed");
    } catch (error) {
      if (error.column === undefined) throw error;
      this.refuse(error.message, text);
    }
  }

  /** What is wrong, and the text that is kept until it is mended. */
  refuse(sentence, draft = null) {
    this.error = sentence;
    this.draft = draft;
    this.draftOf = this.get("tree");
  }

  // Recorded attention

  get map() {
    return this.maps.find(({ name }) => name === this.get("shown")) ?? this.maps[0];
  }

  /** Attention was recorded for a tree of one shape: words may be renamed, not moved. */
  get attentionFits() {
    return this.maps.length > 0 && shape(this.tree) === this.get("_shape");
  }

  /** The weight with which a query attends to a key; NaN where it may not. */
  weight(query, key) {
    const { heads, at } = this.map;
    const size = this.tree.keys.length;
    return this.weights[at + ((this.get("layer") * heads + this.get("head")) * size + query) * size + key];
  }

  choseMap(name) {
    const { layers, heads } = this.maps.find((one) => one.name === name);
    this.set({ shown: name, layer: Math.min(this.get("layer"), layers - 1), head: Math.min(this.get("head"), heads - 1) });
  }
}

function numbers(buffer) {
  return new Float32Array(buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength));
}

/** A number with at most two decimals. */
export function said(value, decimals = 2) {
  const text = value.toFixed(decimals);
  return (decimals ? text.replace(/\.?0+$/, "") : text).replace("-", "−").replace(/^−0$/, "0");
}

/** A label that fits into some pixels. */
export function short(label, room) {
  const letters = Array.from(label);
  const most = Math.max(1, Math.min(14, Math.floor(room / 7.4)));
  return letters.length <= most ? label : `${letters.slice(0, most - 1).join("")}…`;
}
