// The map that a feature map implies beside the exact one: attnlab/lens/kernel_maps.py in the page.
// A head is {q, k, n, m, d, causal} with q (n · d) and k (m · d); maps are n · m.
import { rowsOf } from "./draws.js";

export const RANDOM = ["positive", "hyperbolic", "relu random", "trigonometric"];
const TINY = 2.2250738585072014e-308 ** 0.75; // sums below it are lost

export const isRandom = ({ feature }) => RANDOM.includes(feature);

/** DPFP's ν whose number of features, a multiple of 2d, is nearest to `features`. */
export function nuOf({ features }, d) {
  const share = features / (2 * d);
  const even = Math.abs(share % 1) === 0.5 ? 2 * Math.round(share / 2) : Math.round(share); // as Python rounds
  return Math.max(1, Math.min(even, 2 * d - 1));
}

/** Features per token; null for the softmax, which has infinitely many. */
export function countOf(choice, d) {
  const { feature, features } = choice;
  if (feature === "softmax") return null;
  if (feature === "elu" || feature === "relu") return d;
  if (feature === "dpfp") return 2 * d * nuOf(choice, d);
  return feature === "hyperbolic" || feature === "trigonometric" ? 2 * features : features;
}

/** How many keys a query may attend to: those up to its own, aligned at the last. */
export const seenBy = (i, { n, m, causal }) => (causal ? m - n + i + 1 : m);

function products(x, rows, count, r, d) {
  const out = new Float64Array(count * r);
  for (let i = 0; i < count; i += 1) {
    for (let f = 0; f < r; f += 1) {
      let sum = 0;
      for (let c = 0; c < d; c += 1) sum += x[i * d + c] * rows[f * d + c];
      out[i * r + f] = sum;
    }
  }
  return out;
}

const halfSquare = (x, i, d) => {
  let sum = 0;
  for (let c = 0; c < d; c += 1) sum += x[i * d + c] ** 2;
  return sum / 2;
};

/** Values over the largest of their token, and its logarithm. */
function exponential(x, rows, count, r, d, both) {
  const width = both ? 2 * r : r;
  const once = products(x, rows, count, r, d);
  const values = new Float64Array(count * width);
  const size = new Float64Array(count);
  for (let i = 0; i < count; i += 1) {
    const half = halfSquare(x, i, d);
    let most = -Infinity;
    for (let f = 0; f < width; f += 1) {
      const product = f < r ? once[i * r + f] : -once[i * r + f - r];
      values[i * width + f] = product - half;
      most = Math.max(most, product - half);
    }
    for (let f = 0; f < width; f += 1) values[i * width + f] = Math.exp(values[i * width + f] - most);
    size[i] = most;
  }
  return { values, size, width };
}

function rectified(x, rows, count, r, d) {
  const values = products(x, rows, count, r, d);
  const size = new Float64Array(count);
  for (let i = 0; i < count; i += 1) {
    let most = 0;
    for (let f = 0; f < r; f += 1) most = Math.max(most, values[i * r + f]);
    for (let f = 0; f < r; f += 1) values[i * r + f] = Math.max(0, values[i * r + f]) / (most || 1);
    size[i] = Math.log(most);
  }
  return { values, size, width: r };
}

const scaled = (x, by) => x.map((value) => value * by);

function dots(a, b, i, j, width) {
  let sum = 0;
  for (let f = 0; f < width; f += 1) sum += a[i * width + f] * b[j * width + f];
  return sum;
}

/** Weights of products φ(q)·φ(k) by positive random features. */
function estimated(head, choice, x, y) {
  const { n, m, d } = head;
  const rows = rowsOf(choice, d);
  const kernel = choice.feature === "relu random" ? rectified : exponential;
  const make = (z, count) => kernel(z, rows, count, choice.features, d, choice.feature === "hyperbolic");
  const [queries, keys] = [make(x, n), make(y, m)];
  const map = new Float64Array(n * m);
  for (let i = 0; i < n; i += 1) {
    const seen = seenBy(i, head);
    let unit = -Infinity;
    for (let j = 0; j < seen; j += 1) unit = Math.max(unit, keys.size[j]);
    let total = 0;
    for (let j = 0; j < seen; j += 1) {
      map[i * m + j] = dots(queries.values, keys.values, i, j, keys.width) * Math.exp(keys.size[j] - (unit === -Infinity ? 0 : unit));
      total += map[i * m + j];
    }
    for (let j = 0; j < seen; j += 1) map[i * m + j] = total < TINY ? 0 : map[i * m + j] / total;
  }
  return { map, negative: 0 };
}

/** Weights from cosines and sines, which may be negative, and so may what a row is divided by. */
function waves(head, choice, x, y) {
  const { n, m, d } = head;
  const r = choice.features;
  const rows = rowsOf(choice, d);
  const make = (z, count) => {
    const angles = products(z, rows, count, r, d);
    const out = new Float64Array(count * 2 * r);
    for (let i = 0; i < count; i += 1) {
      for (let f = 0; f < r; f += 1) {
        out[i * 2 * r + f] = Math.cos(angles[i * r + f]);
        out[i * 2 * r + r + f] = Math.sin(angles[i * r + f]);
      }
    }
    return out;
  };
  const [queries, keys] = [make(x, n), make(y, m)];
  const halves = Float64Array.from({ length: m }, (_, j) => halfSquare(y, j, d));
  const most = halves.reduce((a, b) => Math.max(a, b), -Infinity);
  return divided(head, (i, j) => (dots(queries, keys, i, j, 2 * r) / r) * Math.exp(halves[j] - most));
}

/** Scores over the sum of their row, and how many of the sums are below zero. */
function divided(head, score) {
  const { n, m } = head;
  const map = new Float64Array(n * m);
  let negative = 0;
  for (let i = 0; i < n; i += 1) {
    const seen = seenBy(i, head);
    let total = 0;
    for (let j = 0; j < seen; j += 1) total += map[i * m + j] = score(i, j);
    for (let j = 0; j < seen; j += 1) map[i * m + j] = total === 0 ? 0 : map[i * m + j] / total;
    negative += Number(total < 0);
  }
  return { map, negative };
}

/** Features that are not drawn: elu + 1, relu and DPFP. */
function fixed(head, choice, q, k) {
  const { n, m, d } = head;
  const nu = nuOf(choice, d);
  const width = choice.feature === "dpfp" ? 2 * d * nu : d;
  const make = (x, count) => {
    if (choice.feature === "elu") return x.map((value) => (value > 0 ? value + 1 : Math.expm1(value) + 1));
    if (choice.feature === "relu") return x.map((value) => Math.max(0, value));
    const out = new Float64Array(count * width);
    for (let i = 0; i < count; i += 1) {
      const both = Float64Array.from({ length: 2 * d }, (_, c) => Math.max(0, c < d ? x[i * d + c] : -x[i * d + c - d]));
      for (let f = 0; f < width; f += 1) out[i * width + f] = both[f % (2 * d)] * both[(f + 1 + Math.floor(f / (2 * d))) % (2 * d)];
    }
    return out;
  };
  const [queries, keys] = [make(q, n), make(k, m)];
  return divided(head, (i, j) => dots(queries, keys, i, j, width));
}

/** The exact map: the softmax of q·k / √d over the keys that a query sees. */
export function softmaxOf(head, q, k) {
  const { n, m, d } = head;
  const map = new Float64Array(n * m);
  for (let i = 0; i < n; i += 1) {
    const seen = seenBy(i, head);
    let most = -Infinity;
    for (let j = 0; j < seen; j += 1) most = Math.max(most, (map[i * m + j] = dots(q, k, i, j, d) / Math.sqrt(d)));
    let total = 0;
    for (let j = 0; j < seen; j += 1) total += map[i * m + j] = Math.exp(map[i * m + j] - most);
    for (let j = 0; j < seen; j += 1) map[i * m + j] /= total;
  }
  return map;
}

/** What `choice` implies: both maps, the share of each row in the wrong place, its mean, and rows that are no weights. */
export function approximate(head, choice) {
  const { n, m, d } = head;
  const [q, k] = [head.q, head.k].map((x) => scaled(Float64Array.from(x), choice.temperature ** -0.5));
  const exact = softmaxOf(head, q, k);
  const { map, negative } = implied(head, choice, q, k, exact, d);
  const misplaced = new Float64Array(n);
  let empty = 0;
  for (let i = 0; i < n; i += 1) {
    let some = false;
    for (let j = 0; j < m; j += 1) {
      misplaced[i] += Math.abs(map[i * m + j] - exact[i * m + j]) / 2;
      some ||= map[i * m + j] !== 0;
    }
    empty += Number(!some);
  }
  return { exact, map, misplaced, negative, empty, error: misplaced.reduce((sum, one) => sum + one, 0) / n };
}

function implied(head, choice, q, k, exact, d) {
  if (choice.feature === "softmax") return { map: exact, negative: 0 };
  if (!isRandom(choice)) return fixed(head, choice, q, k);
  const [x, y] = [q, k].map((z) => scaled(z, d ** -0.25));
  return (choice.feature === "trigonometric" ? waves : estimated)(head, choice, x, y);
}
