// From queries and keys to weights and from values to the output, for one query, step by step.

/** Numbers of 16 bits as numbers. */
export function halves(bits) {
  return Float32Array.from(bits, (word) => {
    const [sign, exponent, fraction] = [word >> 15 ? -1 : 1, (word >> 10) & 31, word & 1023];
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  });
}

/** What vectors.py wrote: queries (n, d), keys (m, d), values (m, e), bias (n, m)?. */
export function openVectors(buffer, header, n, m) {
  const { d, e, kinds } = header;
  let { at } = header;
  const next = (kind, count) => {
    const part = kind === "f2" ? halves(new Uint16Array(buffer, at, count)) : new Float32Array(buffer, at, count);
    const size = count * (kind === "f2" ? 2 : 4);
    at += size + ((4 - (size % 4)) % 4);
    return part;
  };
  const [queries, keys, values] = [next(kinds[0], n * d), next(kinds[1], m * d), next(kinds[2], m * e)];
  const bias = header.bias ? next(kinds[3], n * m) : null;
  return { n, m, d, e, queries, keys, values, bias, scale: header.scale, doubt: header.doubt };
}

/**
 * All keys of query i: `sums` (of the products), `scores` (scaled), `biased` (with bias; masked:
 * −Infinity), `powers` (e to them, less the largest), `weights`, and how far rounding of the vectors
 * may have moved the weights.
 */
export function followed(vectors, i, allowed = null) {
  const { m, d, queries, keys, bias } = vectors;
  const scale = vectors.scale ?? 1;
  const [sums, scores, biased] = [new Float64Array(m), new Float64Array(m), new Float64Array(m)];
  let moved = 0;
  for (let j = 0; j < m; j += 1) {
    let size = 0;
    for (let at = 0; at < d; at += 1) {
      const product = queries[i * d + at] * keys[j * d + at];
      sums[j] += product;
      size += Math.abs(product);
    }
    scores[j] = sums[j] * scale;
    biased[j] = allowed && !allowed(i, j) ? -Infinity : scores[j] + (bias ? bias[i * m + j] : 0);
    if (biased[j] > -Infinity) moved = Math.max(moved, (size * Math.abs(scale) + Math.abs(biased[j])) / 1024);
  }
  const top = biased.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = biased.map((score) => (score === -Infinity ? 0 : Math.exp(score - top)));
  const total = powers.reduce((a, b) => a + b, 0);
  const weights = powers.map((power) => (total ? power / total : 0));
  return { sums, scores, biased, top, powers, total, weights, moved: Math.min(1, 2 * moved) };
}

/** q·k of one pair, dimension by dimension. */
export function products({ d, queries, keys }, i, j) {
  return Float32Array.from({ length: d }, (_, at) => queries[i * d + at] * keys[j * d + at]);
}

/** The sum of all values times their weights. */
export function output({ m, e, values }, weights) {
  const out = new Float32Array(e);
  for (let j = 0; j < m; j += 1) for (let at = 0; at < e; at += 1) out[at] += weights[j] * values[j * e + at];
  return out;
}

/**
 * The largest difference between recomputed and recorded weights of query i, and whether the two
 * agree within what rounding explains.
 */
export function agreement({ weights, moved }, recorded, i) {
  let [most, agree] = [0, true];
  for (let j = 0; j < weights.length; j += 1) {
    const { w, error = 0, below } = recorded.value(i, j);
    const away = below === undefined ? Math.abs(weights[j] - w) : Math.max(0, weights[j] - below);
    most = Math.max(most, away);
    if (away > error + moved * weights[j] + 1e-3) agree = false;
  }
  return { most, agree };
}
