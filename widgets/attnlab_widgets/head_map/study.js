// What the panels share: the heads, the state, and what follows from both.
import { asBuffer, reader } from "#lib/quantization.js";
import { announcement } from "./words.js";

export const [STEPS, MASKED] = [254, 255];
const NAMES = ["layer", "head", "query", "near", "colour"];

/** What study.py wrote: divergences as floats, then the maps in bytes. */
export function opened(buffer, told) {
  const [count, n] = [told.heads.length, told.tokens.length];
  const next = reader(buffer, 0);
  return { ...told, count, n, divergence: next("f4", count * count), codes: next("u1", count * n * n) };
}

/** The weight of a byte; 0 where the pair is masked. */
export const weightOf = (code) => (code === MASKED ? 0 : (code / STEPS) ** 2);

/** The other heads by their number, the one that attends most alike first. */
export function nearest({ count, divergence }, at) {
  const others = Array.from({ length: count }, (_, other) => other).filter((other) => other !== at);
  return others.sort((a, b) => divergence[at * count + a] - divergence[at * count + b] || a - b);
}

/** The key with the largest weight of a query; null where all are 0. */
export function strongest({ n, codes }, at, query) {
  let best = null;
  for (let j = 0; j < n; j += 1) {
    const code = codes[(at * n + query) * n + j];
    if (code !== MASKED && code > (best?.code ?? 0)) best = { j, code };
  }
  return best && { key: best.j, weight: weightOf(best.code) };
}

/** Points in a field of that size, with one scale for both axes. */
export function placed(points, wide, high, edge) {
  const [low, top] = [0, 1].map((axis) => points.map((point) => point[axis])).reduce((ends, axis) => [[...ends[0], Math.min(...axis)], [...ends[1], Math.max(...axis)]], [[], []]);
  const fits = [wide, high].map((size, axis) => (size - 2 * edge) / (top[axis] - low[axis])).filter(Number.isFinite);
  const scale = fits.length ? Math.min(...fits) : 0;
  const middle = low.map((value, axis) => (value + top[axis]) / 2);
  return points.map(([x, y]) => [wide / 2 + scale * (x - middle[0]), high / 2 - scale * (y - middle[1])]);
}

/** The head to which an arrow key goes from one: the nearest within half a right angle of it. */
export function towards(points, at, [dx, dy]) {
  let best = null;
  points.forEach(([x, y], other) => {
    const [a, b] = [x - points[at][0], y - points[at][1]];
    const along = a * dx + b * dy;
    const across = Math.abs(a * dy - b * dx);
    const far = Math.hypot(a, b);
    if (other !== at && along > 0 && across <= along && (!best || far < best.far)) best = { other, far };
  });
  return best?.other ?? null;
}

export class Study {
  constructor(model) {
    this.model = model;
    this.found = opened(asBuffer(model.get("_data")), model.get("_told"));
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    this.at = this.placeOf(this.state.layer, this.state.head);
    this.order = nearest(this.found, this.at);
    this.shown = this.order.slice(0, this.state.near);
    this.sentence = announcement(this.found, this.at, this.state.query, this.order);
  }

  /** The number of a head; between two messages the layer may have fewer heads. */
  placeOf(layer, head) {
    const { heads } = this.found;
    const at = heads.findIndex(([a, b]) => a === layer && b === head);
    return at < 0 ? heads.findIndex(([a]) => a === layer) : at;
  }

  /** The number of the chosen head now: keys may come faster than pictures. */
  now() {
    return this.placeOf(this.model.get("layer"), this.model.get("head"));
  }

  choose(at) {
    const [layer, head] = this.found.heads[Math.min(this.found.count - 1, Math.max(0, at))];
    this.set({ layer, head });
  }

  chooseQuery(query) {
    this.set({ query: Math.min(this.found.n - 1, Math.max(0, query)) });
  }

  code(query, key) {
    return this.found.codes[(this.at * this.found.n + query) * this.found.n + key];
  }

  radius(at) {
    const { importance } = this.found;
    const most = importance ? Math.max(...importance) : 0;
    return most > 0 ? 4 + 8 * Math.sqrt(importance[at] / most) : 7;
  }
}
