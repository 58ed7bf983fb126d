// Attention of one query among keys of the plane, and what is drawn of it.
// The sentence is the one that attnlab_widgets/query_on_a_plane/words.py says.

const ALIKE = 1e-9; // scores that differ by less are the same

export const dot = (a, b) => a[0] * b[0] + a[1] * b[1];
export const long = (a) => Math.hypot(...a);

/** Two digits after the point, with a true minus and no minus 0. */
export function two(number, digits = 2) {
  const text = number.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** Scores, weights and output of one query; `powers` are e^score. */
export function attend({ keys, values, query, scale, masked }) {
  const products = keys.map((key) => dot(key, query));
  const scores = products.map((product) => scale * product);
  const seen = scores.map((_, j) => j).filter((j) => !masked.includes(j));
  const largest = Math.max(...seen.map((j) => scores[j]));
  const parts = scores.map((score, j) => (masked.includes(j) ? 0 : Math.exp(score - largest)));
  const total = parts.reduce((sum, part) => sum + part, 0);
  const weights = parts.map((part) => (total ? part / total : 0));
  const output = [0, 1].map((axis) => values.reduce((sum, value, j) => sum + weights[j] * value[axis], 0));
  const powers = scores.map((score, j) => (masked.includes(j) ? 0 : Math.exp(score)));
  return { products, scores, powers, weights, output, seen };
}

export function listed(names) {
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}` : names[0];
}

/** Which key gets most, and why. */
export function announcement({ names, keys, query, masked }, { scores, weights, seen }) {
  if (!seen.length) return "Every key is masked: all weights are 0, and so is the output.";
  const order = [...seen].sort((i, j) => scores[j] - scores[i] || i - j);
  const [first] = order;
  const best = order.filter((j) => scores[first] - scores[j] < ALIKE);
  const left = leftOut(names, masked);
  if (seen.length === 1) return `Only key ${names[first]} is left, so it gets 1, wherever the query is.${left}`;
  if (best.length === seen.length) {
    const why = long(query) < ALIKE ? "The query is zero, so every score is 0" : "All scores are the same";
    return `${why}: each of the ${seen.length} keys gets ${two(weights[first])}.${left}`;
  }
  if (best.length > 1) {
    return `Keys ${listed(best.map((j) => names[j]))} have the same score, ${two(scores[first])}, so each gets ${two(weights[first])}.${left}`;
  }
  const lead = scores[first] - scores[order[1]];
  return `The query gives key ${names[first]} ${two(weights[first])}, because its score, ${two(scores[first])}, is ${two(lead)} above that of key ${names[order[1]]}: its weight is e^${two(lead)}${times(lead)} times as large.${butLonger(names, keys, query, order)}${left}`;
}

function times(lead) {
  if (lead > Math.log(1000)) return ", or more than 1,000,";
  const ratio = Math.exp(lead);
  return ` = ${two(ratio, ratio < 10 ? 2 : 0)}`;
}

/** A remark where a key points more in the direction of the query than the one that wins. */
function butLonger(names, keys, query, order) {
  const [first] = order;
  const agrees = (j) => dot(keys[j], query) / Math.max(long(keys[j]), 1e-12);
  const nearest = order.reduce((best, j) => (agrees(j) > agrees(best) ? j : best), first);
  if (dot(keys[first], query) <= 0 || agrees(nearest) - agrees(first) < ALIKE) return "";
  return ` Key ${names[nearest]} points more in the direction of the query, but ${names[first]} is longer: ${two(long(keys[first]))} against ${two(long(keys[nearest]))}.`;
}

function leftOut(names, masked) {
  if (!masked.length || masked.length === names.length) return "";
  const left = listed(masked.map((j) => names[j]));
  return masked.length === 1 ? ` Key ${left} is masked and gets 0.` : ` Keys ${left} are masked and get 0.`;
}

/** e to a score, short: 0.04, 7.39, 148, 4.9 · 10⁸. */
export function power(value) {
  if (value === 0 || (value >= 0.005 && value < 100)) return two(value);
  if (value >= 100 && value < 1e4) return value.toFixed(0);
  if (!Number.isFinite(value)) return "over 10³⁰⁸";
  const [digits, exponent] = value.toExponential(1).split("e");
  const raised = [...String(Number(exponent))].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)])).join("");
  return `${digits} · 10${raised}`;
}

/** Half the side of a square around the origin that holds the points, at least `least`. */
export function extent(points, least = 3) {
  const far = Math.max(...points.flat().map(Math.abs));
  if (far <= least) return least;
  const power = 10 ** Math.floor(Math.log10(far));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((digit) => digit * power).find((size) => size >= far * 1.05) ?? 15 * power;
}

/** The score lines of a query: every `step` a line, {score, ends}, inside the square of half side `half`. */
export function scoreLines(query, scale, half, most = 9) {
  const size = long(query) * scale;
  if (size < ALIKE) return [];
  const range = scale * half * (Math.abs(query[0]) + Math.abs(query[1]));
  const step = nice((2 * range) / most);
  const lines = [];
  for (let at = Math.ceil(-range / step); at * step <= range; at += 1) {
    const ends = across(query, (at * step) / scale, half);
    if (ends) lines.push({ score: at * step, ends });
  }
  return lines;
}

function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((digit) => digit * power >= least * 0.999) * power;
}

/** Where the line {x: query · x = product} leaves the square; null where it misses it. */
function across([a, b], product, half) {
  const found = [];
  const add = (x, y) => {
    if (Math.max(Math.abs(x), Math.abs(y)) > half * 1.000001) return;
    if (!found.some(([u, v]) => Math.hypot(u - x, v - y) < half * 1e-6)) found.push([x, y]);
  };
  for (const side of [-half, half]) {
    if (b) add(side, (product - a * side) / b);
    if (a) add((product - b * side) / a, side);
  }
  return found.length < 2 ? null : found.slice(0, 2);
}

/** The foot of a key on the line of the query; null for a query of zero. */
export function foot(key, query) {
  const square = dot(query, query);
  return square < ALIKE * ALIKE ? null : query.map((x) => (x * dot(key, query)) / square);
}

/** The corners of the smallest convex area that holds the points, in order. */
export function hull(points) {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
  const half = (list) => {
    const out = [];
    for (const point of list) {
      while (out.length > 1 && turn(out[out.length - 2], out[out.length - 1], point) <= 0) out.pop();
      out.push(point);
    }
    return out.slice(0, -1);
  };
  return sorted.length < 3 ? sorted : [...half(sorted), ...half(sorted.reverse())];
}

/** For queries on a grid over the square: the winning key and its weight, row by row from above. */
export function winners(state, half, size) {
  const winner = new Int8Array(size * size);
  const weight = new Float32Array(size * size);
  for (let at = 0; at < size * size; at += 1) {
    const query = [((at % size) + 0.5) / size * 2 * half - half, half - (Math.floor(at / size) + 0.5) / size * 2 * half];
    const { weights } = attend({ ...state, query });
    winner[at] = weights.reduce((best, w, j) => (w > weights[best] ? j : best), 0);
    weight[at] = weights[winner[at]];
  }
  return { winner, weight };
}
