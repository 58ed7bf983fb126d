// What the panels share: the graph, the state, and what follows from it.
import { attendedBy, graphSaid, hopMarks, hopsAlong, hopsOf, nodeSaid, openGraph, weightsOf } from "./graph.js";

export const NAMED = ["node", "layer", "head", "depth", "order", "positions", "step"];
export const FEW = 40; // nodes, of which all names are wanted

export class Study {
  constructor(model) {
    this.model = model;
    this.graph = openGraph(model.get("_graph"), model.get("_pairs"), model.get("_weights"));
    const { groups, communities } = this.graph;
    this.groups = groups?.of ?? communities;
    this.groupNames = groups?.names ?? Array.from({ length: 1 + Math.max(...communities) }, (_, at) => `community ${at + 1}`);
    this.path = hopsAlong(this.graph);
    this.at = null; // the node that is pointed at
    this.cell = null; // the pair that is pointed at on the map
    this.moved = null; // a node on its way: {node, place}
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    const last = this.state;
    this.state = Object.fromEntries(NAMED.map((name) => [name, this.model.get(name)]));
    const { layer, head, order } = this.state;
    if (!last || last.layer !== layer || last.head !== head) {
      this.weights = weightsOf(this.graph, layer, head);
      this.largest = this.weights.reduce((a, b) => Math.max(a, b), 0) || 1;
      this.rising = Array.from(this.weights.keys()).sort((a, b) => this.weights[a] - this.weights[b]);
    }
    this.order = this.graph.orders[order];
    this.sentence = graphSaid(this.graph, this.weights, this.state);
  }

  /** The node whose attention is shown: that pointed at, or else the chosen one. */
  get shown() {
    return this.at ?? this.state.node;
  }

  /** Of the node whose attention is shown: how many layers away the others are; null where that is not wanted. */
  get hops() {
    return this.state.depth && this.shown !== null ? hopsOf(this.graph, this.shown) : null;
  }

  get places() {
    const { positions } = this.state;
    return this.moved ? positions.map((place, node) => (node === this.moved.node ? this.moved.place : place)) : positions;
  }

  attended(node) {
    return attendedBy(this.graph, this.weights, node);
  }

  said(node) {
    return nodeSaid(this.graph, this.weights, node, this.state);
  }

  /** What another layer has less of begins anew. */
  chooseLayer(layer, changes = {}) {
    const { head } = this.state;
    this.set({ ...changes, layer, head: head !== null && head >= this.graph.layers[layer].h ? null : head });
  }

  /** So many hops of the path, and the other edges in the layer of the last of them. */
  chooseStep(step) {
    if (step && this.graph.layers.length) this.chooseLayer(step - 1, { step });
    else this.set({ step });
  }

  /** The arrows of the hops that are shown. */
  get marks() {
    return hopMarks(this.path, this.state.step);
  }

  /** The receptive field of the chosen node, or of that with most neighbours. */
  chooseDepth(depth) {
    const node = this.model.get("node") ?? this.graph.orders.degree[0];
    this.set({ depth, node });
  }

  /** The nodes whose names are wanted, the most important first. */
  get wanted() {
    const { path, orders: { degree } } = this.graph;
    if (this.shown === null) return [...new Set([...path, ...degree])];
    const seen = [...path, this.shown, ...this.attended(this.shown).map(({ node }) => node)];
    return [...new Set([...seen, ...(degree.length <= FEW ? degree : [])])];
  }
}
