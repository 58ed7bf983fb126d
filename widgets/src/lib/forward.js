// One forward pass of a small transformer, every step of it, in double precision: forward.py in the page.
const { sqrt, exp, abs } = Math;

/** Half precision to a number. */
export function half(bits) {
  const [sign, power, part] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (power === 31) return part ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + part / 1024) : 2 ** -14 * (part / 1024));
}

/** The parameters by name; `bytes` is what network.py packed. */
export function opened({ tensors, half: halves }, bytes) {
  const [size, found] = [halves ? 2 : 4, {}];
  let at = 0;
  for (const [name, shape] of tensors) {
    const count = shape.reduce((a, b) => a * b, 1);
    const part = bytes.slice(at, at + size * count);
    found[name] = { values: halves ? Float64Array.from(new Uint16Array(part), half) : Float64Array.from(new Float32Array(part)), shape };
    at += size * count;
  }
  return found;
}

/** x Wᵀ + b, for x (n, columns) and W (rows, columns). */
export function product(x, n, W, b) {
  const [rows, columns] = W.shape;
  const out = new Float64Array(n * rows);
  for (let i = 0; i < n; i += 1) {
    for (let r = 0; r < rows; r += 1) {
      let sum = b ? b.values[r] : 0;
      for (let c = 0, left = i * columns, right = r * columns; c < columns; c += 1) sum += x[left + c] * W.values[right + c];
      out[i * rows + r] = sum;
    }
  }
  return out;
}

export function norm(x, n, weight, bias, epsilon) {
  const [dim, out] = [x.length / n, new Float64Array(x.length)];
  for (let i = 0; i < n; i += 1) {
    let [mean, variance] = [0, 0];
    for (let j = i * dim; j < (i + 1) * dim; j += 1) mean += x[j] / dim;
    for (let j = i * dim; j < (i + 1) * dim; j += 1) variance += (x[j] - mean) ** 2 / dim;
    for (let j = 0; j < dim; j += 1) out[i * dim + j] = ((x[i * dim + j] - mean) / sqrt(variance + epsilon)) * weight.values[j] + (bias ? bias.values[j] : 0);
  }
  return out;
}

/** erf by its series without cancellation: 2/√π e^(−x²) Σ 2^k x^(2k+1) / (1 · 3 … (2k+1)). */
function erf(x) {
  const size = abs(x);
  if (size > 6) return Math.sign(x);
  let [term, sum] = [size, size];
  for (let k = 1; term > 1e-17 * sum; k += 1) sum += term *= (2 * size * size) / (2 * k + 1);
  return Math.sign(x) * (2 / sqrt(Math.PI)) * exp(-size * size) * sum;
}

export const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2));

/** Each row of `width` numbers as shares that sum to 1; −Infinity gets none. */
export function softmax(values, width) {
  const out = new Float64Array(values.length);
  for (let from = 0; from < values.length; from += width) {
    let [top, sum] = [-Infinity, 0];
    for (let j = from; j < from + width; j += 1) top = Math.max(top, values[j]);
    for (let j = from; j < from + width; j += 1) sum += out[j] = exp(values[j] - top);
    for (let j = from; j < from + width; j += 1) out[j] /= sum;
  }
  return out;
}

const sum = (a, b) => a.map((value, at) => value + b[at]);

/** (n, h · d) → (h, n, d), and with `back` the other way. */
function split(x, n, h, back = false) {
  const [d, out] = [x.length / n / h, new Float64Array(x.length)];
  for (let i = 0; i < n; i += 1) {
    for (let head = 0; head < h; head += 1) {
      for (let c = 0; c < d; c += 1) {
        const [beside, apart] = [(i * h + head) * d + c, (head * n + i) * d + c];
        if (back) out[beside] = x[apart];
        else out[apart] = x[beside];
      }
    }
  }
  return out;
}

export function scores(q, k, n, h, scale) {
  const [d, out] = [q.length / n / h, new Float64Array(h * n * n).fill(-Infinity)];
  for (let head = 0; head < h; head += 1) {
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j <= i; j += 1) {
        let score = 0;
        for (let c = 0, left = (head * n + i) * d, right = (head * n + j) * d; c < d; c += 1) score += q[left + c] * k[right + c];
        out[(head * n + i) * n + j] = score * scale;
      }
    }
  }
  return out;
}

export function gathered(weights, v, n, h, silent) {
  const [d, out] = [v.length / n / h, new Float64Array(v.length)];
  for (let head = 0; head < h; head += 1) {
    if (silent[head]) continue;
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j <= i; j += 1) {
        const weight = weights[(head * n + i) * n + j];
        for (let c = 0; c < d; c += 1) out[(head * n + i) * d + c] += weight * v[(head * n + j) * d + c];
      }
    }
  }
  return out;
}

/** Every step of the pass of these tokens by its key; `silent` holds heads as pairs [layer, head]. */
export function forward(network, tokens, silent = []) {
  const { numbers, heads, scales, epsilon, logitScale } = network;
  const [n, dim, found] = [tokens.length, numbers.embedding.shape[1], {}];
  const linear = (x, name) => product(x, n, numbers[name], numbers[`${name}.bias`]);
  const normed = (x, name, at) => norm(x, n, numbers[name], numbers[`${name}.bias`], epsilon[at]);
  found.embedding = new Float64Array(n * dim);
  tokens.forEach((token, i) => found.embedding.set(numbers.embedding.values.subarray(token * dim, (token + 1) * dim), i * dim));
  found.position = numbers.positions ? numbers.positions.values.slice(0, n * dim) : new Float64Array(n * dim);
  let x = (found.stream = sum(found.embedding, found.position));
  heads.forEach((h, layer) => {
    const at = `${layer}.`;
    const mute = Array.from({ length: h }, (_, head) => silent.some((pair) => pair[0] === layer && pair[1] === head));
    let read = (found[`${at}norm`] = normed(x, `${at}norm`, 2 * layer));
    const projected = (name) => (found[at + name] = split(linear(read, at + name), n, h));
    const [q, k] = [projected("query"), projected("key")];
    found[`${at}score`] = scores(q, k, n, h, scales[layer]);
    found[`${at}weight`] = softmax(found[`${at}score`], n);
    found[`${at}gathered`] = gathered(found[`${at}weight`], projected("value"), n, h, mute);
    found[`${at}output`] = linear(split(found[`${at}gathered`], n, h, true), `${at}output`);
    x = found[`${at}attended`] = sum(x, found[`${at}output`]);
    read = found[`${at}norm2`] = normed(x, `${at}norm2`, 2 * layer + 1);
    found[`${at}hidden`] = linear(read, `${at}expand`).map(gelu);
    found[`${at}contract`] = linear(found[`${at}hidden`], `${at}contract`);
    x = found[`${at}stream`] = sum(x, found[`${at}contract`]);
  });
  found.norm = normed(x, "norm", epsilon.length - 1);
  found.logits = linear(found.norm, numbers.output ? "output" : "embedding").map((value) => value * logitScale);
  found.chances = softmax(found.logits, network.names.length);
  return found;
}
