// A graph and what its nodes attend to: the words of words.py, the receptive field, and the
// arrows of the drawing.
import { listed, two } from "#lib/plane.js";

const LEVELS = 65535;
const [MOST_NAMED, WHOLE] = [3, 0.995];

/** The pairs (node, whom it attends to), by node, and the weights of each layer. */
export function openGraph({ labels, layers, ...told }, pairBytes, weightBytes) {
  const words = (view) => new Uint16Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
  const [pairs, codes] = [words(pairBytes), words(weightBytes)];
  const count = pairs.length / 2;
  const n = labels.length;
  const [targets, sources] = [0, 1].map((side) => Array.from({ length: count }, (_, at) => pairs[2 * at + side]));
  const rows = Array.from({ length: n }, () => []);
  targets.forEach((node, at) => rows[node].push(at));
  let start = 0;
  const opened = layers.map(({ title, h }) => {
    const heads = Array.from({ length: h }, (_, head) => codes.subarray(start + head * count, start + (head + 1) * count));
    start += h * count;
    return { title, h, heads };
  });
  return { ...told, n, labels, targets, sources, rows, layers: opened, index: new Map(targets.map((node, at) => [node * n + sources[at], at])) };
}

/** The weight of each pair in one head, or the mean of all; ones where no weights are known. */
export function weightsOf({ layers, targets }, layer, head) {
  if (!layers.length) return new Float64Array(targets.length).fill(1);
  const { heads } = layers[layer];
  const used = head === null ? heads : [heads[head]];
  return Float64Array.from(targets, (_, at) => meanOf(used, at));
}

const meanOf = (heads, at) => heads.reduce((sum, codes) => sum + codes[at] / LEVELS, 0) / heads.length;

/** After how many layers each node is in the receptive field of one; -1 for never. */
export function hopsOf({ n, rows, sources }, node) {
  const hops = new Array(n).fill(-1);
  hops[node] = 0;
  let front = [node];
  for (let step = 1; front.length; step += 1) {
    const next = [];
    for (const one of front) {
      for (const at of rows[one]) {
        if (hops[sources[at]] >= 0) continue;
        hops[sources[at]] = step;
        next.push(sources[at]);
      }
    }
    front = next;
  }
  return hops;
}

// The path: along its edges information travels, one edge in each layer

/** The hops of the path, hop k in layer k - 1: [{source, target, at, layer}], layer null where no weights are known. */
export function hopsAlong({ path, n, index, layers }) {
  return path.slice(1).map((target, hop) => ({ source: path[hop], target, at: index.get(target * n + path[hop]), layer: layers.length ? hop : null }));
}

/** Where the weight of a hop is from, and what it is: {where, w}; a head that its layer lacks gives way to the mean of all. */
export function hopWeight({ layers }, { layer, at }, head) {
  if (layer === null) return { where: "", w: null };
  const { heads, h } = layers[layer];
  const used = head !== null && head < h ? head : null;
  return { where: placeOf(layers[layer], used), w: meanOf(used === null ? heads : [heads[used]], at) };
}

/** The hops that are shown, an edge once, with their numbers; that of the present hop comes last: [{at, text, now}]. */
export function hopMarks(hops, step) {
  const numbers = new Map();
  hops.slice(0, step).forEach(({ at }, hop) => numbers.set(at, [...(numbers.get(at) ?? []), hop + 1]));
  const found = [...numbers].map(([at, own]) => ({ at, text: own.join(","), now: own.includes(step) }));
  return found.sort((a, b) => a.now - b.now);
}

// Words

export const named = (labels, node) => (labels[node] === String(node) ? `node ${node}` : `“${labels[node]}”`);

export function placeOf({ title, h }, head) {
  if (head !== null) return `${title} (head ${head})`;
  return h === 1 ? title : `${title} (mean of ${h} heads)`;
}

/** Whom a node attends to: [{node, w}], the strongest first. */
export function attendedBy(graph, weights, node) {
  const found = graph.rows[node].map((at) => ({ node: graph.sources[at], w: weights[at] })).filter(({ w }) => w > 0);
  return found.sort((a, b) => b.w - a.w || a.node - b.node);
}

function attentionSaid(graph, weights, node, where) {
  const name = named(graph.labels, node);
  const order = attendedBy(graph, weights, node);
  if (!order.length) return `In ${where} ${name} attends to nothing: ${graph.rows[node].length ? "its weights are 0" : "no edge leads to it"}.`;
  const most = order.slice(0, MOST_NAMED).map((one) => `${one.node === node ? "itself" : named(graph.labels, one.node)} (${two(one.w)})`);
  const total = graph.rows[node].reduce((sum, at) => sum + weights[at], 0);
  const to = order.length <= MOST_NAMED ? `to ${listed(most)}` : `to ${order.length} nodes, most to ${listed(most)}`;
  return `In ${where} ${name} attends ${to}.${total >= WHOLE ? "" : ` These weights sum to ${two(total)}.`}`;
}

function edgesSaid({ labels, rows, sources }, node) {
  const count = rows[node].length;
  if (!count) return `No edge leads to ${named(labels, node)}.`;
  const first = rows[node].slice(0, MOST_NAMED).map((at) => (sources[at] === node ? "itself" : named(labels, sources[at])));
  const left = count - first.length;
  if (left) first.push(`${left} ${left === 1 ? "other" : "others"}`);
  return `${count === 1 ? "An edge leads" : "Edges lead"} to ${named(labels, node)} from ${listed(first)}.`;
}

/** Whom a node attends to, in a sentence; or, where no weights are known, where its edges come from. */
export function nodeSaid(graph, weights, node, { layer, head }) {
  if (!graph.layers.length) return edgesSaid(graph, node);
  return attentionSaid(graph, weights, node, placeOf(graph.layers[layer], head));
}

export const countReached = (hops, depth) => hops.filter((hop) => hop >= 0 && hop <= depth).length;

/** Who attends to whom in the present hop of the path, or, before the first, where the path leads. */
function pathSaid(graph, { step, head }) {
  const { labels, path } = graph;
  const hops = hopsAlong(graph);
  if (!hops.length) return "";
  const [first, last] = [path[0], path.at(-1)].map((node) => named(labels, node));
  if (!step) return `A path of ${hops.length === 1 ? "1 hop" : `${hops.length} hops`} leads from ${first} to ${last}.`;
  const hop = hops[step - 1];
  const { where, w } = hopWeight(graph, hop, head);
  const [from, to] = [hop.source, hop.target].map((node) => named(labels, node));
  const loop = hop.source === hop.target;
  const said = w === null ? `an edge leads from ${from} to ${loop ? "itself" : to}.` : `${to} attends to ${loop ? "itself" : from} with ${two(w)} in ${where}.`;
  return `Hop ${step} of ${hops.length}: ${said}`;
}

/** What is seen, in a sentence or two. */
export function graphSaid(graph, weights, state) {
  const path = pathSaid(graph, state);
  if (path && state.step && state.node === null) return path;
  return `${path} ${partSaid(graph, weights, state)}`.trimStart();
}

/** The chosen node or, where none is, all of them. */
function partSaid(graph, weights, state) {
  const { node, layer, head, depth } = state;
  if (node === null) return allSaid(graph, weights, layer, head);
  const field = depth ? ` After ${depth === 1 ? "1 layer" : `${depth} layers`} its receptive field holds ${countReached(hopsOf(graph, node), depth)} of ${graph.n} nodes.` : "";
  return nodeSaid(graph, weights, node, state) + field;
}

function allSaid({ n, edges, labels, layers, targets, sources }, weights, layer, head) {
  const said = `${n === 1 ? "1 node" : `${n} nodes`} and ${edges === 1 ? "1 edge" : `${edges} edges`}.`;
  if (!layers.length || !targets.length) return `${said} Choose a node to see which edges lead to it.`;
  let best = 0;
  weights.forEach((w, at) => (best = w > weights[best] ? at : best));
  const to = targets[best] === sources[best] ? "itself" : named(labels, sources[best]);
  return `${said} The largest weight in ${placeOf(layers[layer], head)} is ${two(weights[best])}, with which ${named(labels, targets[best])} attends to ${to}. Choose a node to see whom it attends to.`;
}

// The drawing

/**
 * Names beside their nodes, in the order of their importance: [{node, left, y}], the left end of each. None lies on
 * another; one that must not hide nodes has no name where it would, and others stand where they hide fewest.
 */
export function namesPlaced(wanted, { wide, high, radius, crowded, line = 13 }) {
  const taken = [];
  const meets = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  const found = [];
  for (const { node, x, y, w, strong } of wanted) {
    const [beside, up] = [radius + 3, radius + line / 2 + 1];
    const middle = Math.max(2, Math.min(x - w / 2, wide - 2 - w));
    const spots = [[x + beside, y], [x - beside - w, y], [middle, y - up], [middle, y + up], [x + beside, y - up], [x + beside, y + up], [x - beside - w, y - up], [x - beside - w, y + up]];
    let best = null;
    for (const [left, centre] of spots) {
      const box = { x: left, y: centre - line / 2, w, h: line };
      if (left < 2 || left + w > wide - 2 || box.y < 1 || box.y + line > high - 1 || taken.some((one) => meets(one, box))) continue;
      const hidden = crowded(box);
      if (!strong && hidden) continue;
      if (!best || hidden < best.hidden) best = { box, hidden };
    }
    if (!best) continue;
    taken.push(best.box);
    found.push({ node, left: best.box.x, y: best.box.y + line / 2 });
  }
  return found;
}

/** An arrow between two places: from, control point, end of the line, and the three corners of its head. */
export function arrow([x0, y0], [x1, y1], radius, width, bent) {
  const long = Math.max(Math.hypot(x1 - x0, y1 - y0), 1e-9);
  const bend = bent ? Math.min(0.12 * long, 22) : 0;
  const middle = [(x0 + x1) / 2 + (bend * (y0 - y1)) / long, (y0 + y1) / 2 + (bend * (x1 - x0)) / long];
  const far = Math.max(Math.hypot(x1 - middle[0], y1 - middle[1]), 1e-9);
  const [dx, dy] = [(x1 - middle[0]) / far, (y1 - middle[1]) / far];
  const size = 3.5 + 1.3 * width;
  const tip = [x1 - dx * (radius + 1), y1 - dy * (radius + 1)];
  const base = [tip[0] - size * dx, tip[1] - size * dy];
  const half = size / 2;
  const head = [tip, [base[0] - half * dy, base[1] + half * dx], [base[0] + half * dy, base[1] - half * dx]];
  return { from: [x0, y0], middle, to: base, head };
}

const AHEAD = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The node next to one in the direction of an arrow key: near, and not far off to the side. */
export function neighbourTowards(places, node, key) {
  const [ax, ay] = AHEAD[key];
  let [best, cost] = [node, Infinity];
  places.forEach(([x, y], other) => {
    const [dx, dy] = [x - places[node][0], y - places[node][1]];
    const [along, aside] = [dx * ax + dy * ay, Math.abs(dx * ay - dy * ax)];
    if (other === node || along <= 0 || aside > 2 * along) return;
    const own = along + 2 * aside;
    if (own < cost) [best, cost] = [other, own];
  });
  return best;
}

/** Half way along an arrow. */
export const halfWay = ({ from, middle, to }) => [0, 1].map((side) => 0.25 * from[side] + 0.5 * middle[side] + 0.25 * to[side]);

/** A place moved by a step in the direction of an arrow key. */
export const movedBy = ([x, y], key, step) => [inside(x + AHEAD[key][0] * step), inside(y + AHEAD[key][1] * step)];
export const isArrow = (key) => key in AHEAD;
export const inside = (share) => Math.round(Math.min(1, Math.max(0, share)) * 1e4) / 1e4;
