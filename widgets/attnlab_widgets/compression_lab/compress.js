// Pruning, rounding and attention of a small network, as attnlab.compression and attnlab.models do
// them: the same masks, the same integers, the same maps.
const UNCHANGED = 32;
const SCALE = 5; // bytes of a scale of four and a zero point of one
export const ADDED = "+ positions";
const { fround, round, abs, ceil, sqrt, exp, min, max } = Math;

/** Half precision to a number. */
function half(bits) {
  const [sign, power, part] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (power === 31) return part ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + part / 1024) : 2 ** -14 * (part / 1024));
}

/** The numbers of a network: name → {values, shape}. */
export function opened(told, buffer) {
  const found = new Map();
  for (const [name, shape, at] of told.tensors) {
    const count = shape.reduce((a, b) => a * b, 1);
    const values = told.half ? Float32Array.from(new Uint16Array(buffer, at, count), half) : new Float32Array(buffer, at, count);
    found.set(name, { values, shape });
  }
  return found;
}

/** How many of N are left: ⌈kept · N⌉; what only rounding has put above a whole number is that. */
export function count(N, kept) {
  const exact = kept * N;
  return abs(exact - round(exact)) <= 1e-12 * max(exact, round(exact)) ? round(exact) : ceil(exact);
}

/** Masks of the `left` largest sizes of several lists together; of equal ones the first. */
function largest(lists, sorted, left) {
  const least = left > 0 ? sorted[sorted.length - left] : Infinity;
  let above = 0;
  for (let at = sorted.length - 1; at >= 0 && sorted[at] > least; at -= 1) above += 1;
  let equal = left - above;
  const masks = lists.map((list) => {
    const mask = new Uint8Array(list.length);
    for (let at = 0; at < list.length; at += 1) {
      const size = abs(list[at]);
      if (size > least) mask[at] = 1;
      else if (size === least && equal > 0) mask[at] = equal-- > 0 ? 1 : 0;
    }
    return mask;
  });
  return { masks, least };
}

const ordered = (lists) => {
  const all = new Float64Array(lists.reduce((sum, list) => sum + list.length, 0));
  let at = 0;
  for (const list of lists) for (let i = 0; i < list.length; i += 1) all[at++] = abs(list[i]);
  return all.sort();
};

/** A network with what is asked of it often: sorted sizes, norms of units. */
export class Network {
  constructor(told, buffer) {
    Object.assign(this, { told, numbers: opened(told, buffer), sorted: new Map(), mapped: new Map() });
  }

  values = (name) => this.numbers.get(name).values;
  shape = (name) => this.numbers.get(name).shape;

  order(names) {
    const key = names.join();
    if (!this.sorted.has(key)) this.sorted.set(key, ordered(names.map(this.values)));
    return this.sorted.get(key);
  }

  /** The masks of its matrices and biases, name → Uint8Array; of what is not cut there is none. */
  masks({ cut, kept }) {
    const { matrices, units, order } = this.told;
    const found = new Map();
    if (cut === "all weights" && kept < 1) this.cutTogether(matrices, kept, found);
    if (cut === "each matrix" && kept < 1) for (const name of matrices) this.cutTogether([name], kept, found);
    if (cut === "hidden units" && kept < 1) {
      for (const [kind, parts] of units) if (kind === "hidden") this.maskUnits(parts, this.largestUnits(parts, kept), found);
    }
    if (cut === "heads") {
      const gone = order.slice(0, order.length - count(order.length, kept)).map(String);
      units.filter(([kind]) => kind === "heads").forEach(([, parts], layer) => {
        this.maskUnits(parts, this.norms(parts).map((_, head) => Number(!gone.includes(String([layer, head])))), found);
      });
    }
    return found;
  }

  cutTogether(names, kept, found) {
    const sorted = this.order(names);
    const { masks } = largest(names.map(this.values), sorted, count(sorted.length, kept));
    names.forEach((name, at) => found.set(name, masks[at]));
  }

  /** The least size that is kept, where single weights are cut. */
  threshold({ cut, kept }, name) {
    if (kept === 1 || !["all weights", "each matrix"].includes(cut)) return null;
    const sorted = this.order(cut === "all weights" ? this.told.matrices : [name]);
    return sorted[sorted.length - count(sorted.length, kept)];
  }

  largestUnits(parts, kept) {
    const sizes = this.norms(parts);
    return largest([sizes], Float64Array.from(sizes).sort(), count(sizes.length, kept)).masks[0];
  }

  /** The sum of the squares of all that each unit owns. */
  norms(parts) {
    const units = this.shape(parts[0][0])[parts[0][1]] / parts[0][2];
    const sums = new Array(units).fill(0);
    for (const [name, axis, width] of parts) {
      const [values, [rows, columns]] = [this.values(name), this.shape(name)];
      for (let i = 0; i < rows; i += 1) {
        for (let j = 0; j < columns; j += 1) sums[Math.floor((axis ? j : i) / width)] += values[i * columns + j] ** 2;
      }
    }
    return sums;
  }

  maskUnits(parts, kept, found) {
    if (kept.every((each) => each)) return;
    for (const [name, axis, width] of parts) {
      const [rows, columns] = this.shape(name);
      const mask = found.get(name) ?? new Uint8Array(rows * columns).fill(1);
      for (let i = 0; i < rows; i += 1) {
        for (let j = 0; j < columns; j += 1) if (!kept[Math.floor((axis ? j : i) / width)]) mask[i * columns + j] = 0;
      }
      found.set(name, mask);
      const bias = name.replace(/weight$/, "bias");
      if (axis === 0 && this.numbers.has(bias)) found.set(bias, Uint8Array.from({ length: rows }, (_, i) => Number(kept[Math.floor(i / width)])));
    }
  }

  /** A matrix or bias after masks and rounding. */
  made(name, masks, { bits, per }) {
    const [values, shape] = [this.values(name), this.shape(name)];
    const mask = masks.get(name);
    let cut = values;
    if (mask) {
      cut = new Float32Array(values.length);
      for (let at = 0; at < cut.length; at += 1) cut[at] = mask[at] ? values[at] : 0;
    }
    const whole = this.told.matrices.includes(name) || this.told.tables.includes(name);
    return bits === UNCHANGED || !whole ? cut : rounded(cut, shape, bits, per);
  }

  /** The bytes of all its numbers, stored as they need to be. */
  size(masks, { cut, bits, per }) {
    const byUnits = cut === "hidden units" || cut === "heads";
    const { matrices, tables, units } = this.told;
    let total = 4 * this.told.numbers;
    for (const name of [...matrices, ...tables]) {
      const [rows, columns] = this.shape(name);
      const mask = masks.get(name);
      const N = rows * columns;
      const left = mask ? leftOf(mask) : N;
      total += ceil((left * bits) / 8) - 4 * N;
      if (bits !== UNCHANGED) total += SCALE * (per === "channel" ? (byUnits && mask ? rowsLeft(mask, columns) : rows) : 1);
      if (mask && !byUnits) total += ceil(N / 8);
      const bias = masks.get(name.replace(/weight$/, "bias"));
      if (bias) total -= 4 * (bias.length - leftOf(bias));
    }
    if (!byUnits) return total;
    for (const [kind, parts] of units) {
      if ((kind === "heads") !== (cut === "heads") || !parts.some(([name]) => masks.has(name))) continue;
      const [first, axis, width] = parts[0];
      const all = this.shape(first)[axis] / width;
      for (const part of parts) total += ceil((all * part[2]) / 8);
    }
    return total;
  }

  /** The attention maps of all layers for an example, each (h · n · n), after these changes. */
  maps(masks, how, example, features) {
    const { run, heads, causal } = this.told;
    const [x, n, dim] = this.embedded(masks, how, example, features);
    const found = [];
    for (let layer = 0; layer < run.layers; layer += 1) {
      const block = `${run.stack}.blocks.${layer}`;
      const get = (name) => (this.numbers.has(`${block}.${name}`) ? this.made(`${block}.${name}`, masks, how) : null);
      const linear = (input, name) => product(input, n, get(`${name}.weight`), get(`${name}.bias`), this.shape(`${block}.${name}.weight`));
      const normed = (name) => norm(x, n, dim, this.values(`${block}.${name}.norm.weight`), this.values(`${block}.${name}.norm.bias`), run.eps);
      const input = normed("attention_residual");
      const [q, k] = ["query", "key"].map((name) => linear(input, `attention.heads.${name}`));
      const weights = attention(q, k, n, heads[layer], causal);
      found.push(weights);
      if (layer + 1 === run.layers) break;
      const v = linear(input, "attention.heads.value");
      add(x, linear(gathered(weights, v, n, heads[layer]), "attention.heads.output"));
      const inside = linear(normed("feed_forward_residual"), "feed_forward.expand");
      for (let at = 0; at < inside.length; at += 1) inside[at] = gelu(inside[at]);
      add(x, linear(inside, "feed_forward.contract"));
    }
    return found;
  }

  embedded(masks, how, { inputs, size: n }, features) {
    const [table, { values: added, shape: [, dim] }] = [this.made("embedding.weight", masks, how), this.numbers.get(ADDED)];
    const bias = this.numbers.has("embedding.bias") ? this.made("embedding.bias", masks, how) : null;
    const x = features ? product(Float32Array.from(inputs), n, table, bias, this.shape("embedding.weight")) : new Float32Array(n * dim);
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < dim; j += 1) x[i * dim + j] += (features ? 0 : table[inputs[i] * dim + j]) + added[i * dim + j];
    }
    return [x, n, dim];
  }
}

/** How many ones a mask has. */
export function leftOf(mask) {
  let left = 0;
  for (let at = 0; at < mask.length; at += 1) left += mask[at];
  return left;
}

function rowsLeft(mask, columns) {
  let rows = 0;
  for (let at = 0; at < mask.length; at += columns) if (mask.subarray(at, at + columns).some((each) => each)) rows += 1;
  return rows;
}

/** Round to the even of two equally near integers. */
function even(x) {
  const near = round(x);
  return near - x === 0.5 && near % 2 !== 0 ? near - 1 : near;
}

/** Affine levels: x̂ = s (q - z), with one scale for all or one for each row. */
export function rounded(values, [rows, columns], bits, per) {
  const out = new Float32Array(values.length);
  const [lowest, highest] = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1];
  const piece = per === "channel" ? columns : rows * columns;
  for (let from = 0; from < values.length; from += piece) {
    let [low, high] = [0, 0];
    for (let at = from; at < from + piece; at += 1) {
      if (values[at] < low) low = values[at];
      else if (values[at] > high) high = values[at];
    }
    const step = fround(fround(high - low) / (2 ** bits - 1)) || 1;
    const zero = min(highest, max(lowest, lowest - even(fround(low / step))));
    for (let at = from; at < from + piece; at += 1) {
      const q = min(highest, max(lowest, even(fround(values[at] / step)) + zero));
      out[at] = step * (q - zero);
    }
  }
  return out;
}

// ---- the layers

/** x Wᵀ + b, for x (n, columns) and W (rows, columns). */
function product(x, n, W, b, [rows, columns]) {
  const out = new Float32Array(n * rows);
  for (let i = 0; i < n; i += 1) {
    for (let r = 0; r < rows; r += 1) {
      let sum = b ? b[r] : 0;
      for (let c = 0, left = i * columns, right = r * columns; c < columns; c += 1) sum += x[left + c] * W[right + c];
      out[i * rows + r] = sum;
    }
  }
  return out;
}

function norm(x, n, dim, weight, bias, eps) {
  const out = new Float32Array(x.length);
  for (let i = 0; i < n; i += 1) {
    const row = x.subarray(i * dim, (i + 1) * dim);
    const mean = row.reduce((sum, each) => sum + each, 0) / dim;
    const spread = sqrt(row.reduce((sum, each) => sum + (each - mean) ** 2, 0) / dim + eps);
    for (let j = 0; j < dim; j += 1) out[i * dim + j] = ((row[j] - mean) / spread) * weight[j] + bias[j];
  }
  return out;
}

function attention(q, k, n, heads, causal) {
  const [wide, out] = [q.length / n, new Float32Array(heads * n * n)];
  const d = wide / heads;
  for (let h = 0; h < heads; h += 1) {
    for (let i = 0; i < n; i += 1) {
      const row = out.subarray((h * n + i) * n, (h * n + i + 1) * n);
      const seen = causal ? i + 1 : n;
      let [top, sum] = [-Infinity, 0];
      for (let j = 0; j < seen; j += 1) {
        let score = 0;
        for (let c = 0; c < d; c += 1) score += q[i * wide + h * d + c] * k[j * wide + h * d + c];
        row[j] = score / sqrt(d);
        top = max(top, row[j]);
      }
      for (let j = 0; j < seen; j += 1) sum += row[j] = exp(row[j] - top);
      for (let j = 0; j < seen; j += 1) row[j] /= sum;
    }
  }
  return out;
}

function gathered(weights, v, n, heads) {
  const [wide, out] = [v.length / n, new Float32Array(v.length)];
  const d = wide / heads;
  for (let h = 0; h < heads; h += 1) {
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < n; j += 1) {
        const w = weights[(h * n + i) * n + j];
        if (w) for (let c = h * d; c < (h + 1) * d; c += 1) out[i * wide + c] += w * v[j * wide + c];
      }
    }
  }
  return out;
}

function add(x, more) {
  for (let at = 0; at < x.length; at += 1) x[at] += more[at];
}

const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2));

/** erf by its series without cancellation: 2/√π e^(−x²) Σ 2^k x^(2k+1) / (1 · 3 … (2k+1)). */
function erf(x) {
  const size = abs(x);
  if (size > 5) return Math.sign(x);
  let [term, sum] = [size, size];
  for (let k = 1; term > 1e-9 * sum; k += 1) sum += term *= (2 * size * size) / (2 * k + 1);
  return Math.sign(x) * (2 / sqrt(Math.PI)) * exp(-size * size) * sum;
}

// ---- what is right

const Z = 1.96;

/** Share and interval of a grid's place; of rows with one answer each by Wilson. */
export function scoreAt({ right, half }, at, n) {
  if (half) return [right[at], max(0, right[at] - half[at]), min(1, right[at] + half[at])];
  const [share, spread] = [right[at] / n, (Z * Z) / n];
  const middle = (share + spread / 2) / (1 + spread);
  const wide = (Z / (1 + spread)) * sqrt((share * (1 - share)) / n + spread / (4 * n));
  return [share, max(0, middle - wide), min(1, middle + wide)];
}
