// Four ways to choose keys: the arithmetic of attnlab/lens/choices.py, number for number.
// Vectors are rows of Float64Array, pairs are Uint8Array (n × n, row = query).

const LLOYD = 10; // steps of k-means

/** Rows of `width` numbers. */
export function rowsOf(numbers, width) {
  return Array.from({ length: numbers.length / width }, (_, i) => Float64Array.from(numbers.slice(i * width, (i + 1) * width)));
}

const dot = (a, b) => {
  let sum = 0;
  for (let i = 0; i < a.length; i += 1) sum += a[i] * b[i];
  return sum;
};

/** The index of the largest; of equal ones the first. */
function best(values) {
  let at = 0;
  for (let i = 1; i < values.length; i += 1) if (values[i] > values[at]) at = i;
  return at;
}

/** Indices from the largest value down; of equal ones the first comes first. */
const descending = (values) => Array.from(values, (_, i) => i).sort((a, b) => values[b] - values[a] || a - b);

export function allowedPairs(n, { causal, shared }) {
  const pairs = new Uint8Array(n * n);
  for (let i = 0; i < n; i += 1) {
    const last = causal ? i : n - 1;
    for (let j = 0; j <= last; j += 1) pairs[i * n + j] = Number(!(shared && i === j && last > 0));
  }
  return pairs;
}

/** Softmax attention over the allowed pairs. */
export function fullWeights(queries, keys, allowed) {
  const n = queries.length;
  const scale = 1 / Math.sqrt(queries[0].length);
  const weights = new Float64Array(n * n);
  for (let i = 0; i < n; i += 1) {
    const scores = keys.map((key, j) => (allowed[i * n + j] ? dot(queries[i], key) * scale : -Infinity));
    const largest = Math.max(...scores);
    if (largest === -Infinity) continue;
    let total = 0;
    for (let j = 0; j < n; j += 1) total += weights[i * n + j] = Math.exp(scores[j] - largest);
    for (let j = 0; j < n; j += 1) weights[i * n + j] /= total;
  }
  return weights;
}

const row = (values, n, i) => values.subarray(i * n, (i + 1) * n);

/** The `top` heaviest keys of each query. */
export function heaviest(weights, n, top) {
  const found = new Uint8Array(n * n);
  for (let i = 0; i < n; i += 1) for (const j of descending(row(weights, n, i)).slice(0, top)) found[i * n + j] = 1;
  return found;
}

/** Of the weight of each query's heaviest keys the share that is chosen: one number a query, NaN where there is no weight. */
export function recalls(weights, n, most, chosen) {
  return Array.from({ length: n }, (_, i) => {
    let [whole, found] = [0, 0];
    for (let at = i * n; at < (i + 1) * n; at += 1) {
      if (!most[at]) continue;
      whole += weights[at];
      if (chosen[at]) found += weights[at];
    }
    return whole > 0 ? found / whole : NaN;
  });
}

export function mean(values) {
  const real = values.filter((value) => !Number.isNaN(value));
  return real.reduce((sum, value) => sum + value, 0) / real.length;
}

const count = (pairs) => pairs.reduce((sum, one) => sum + one, 0);

export function byWeight(weights, allowed, n, top) {
  return { chosen: heaviest(weights, n, top).map((one, at) => one & allowed[at]), pairs: count(allowed) };
}

/** arg max of [xR; −xR], one list a round; `rotations` are matrices of d rows. */
export function hashes(vectors, rotations) {
  return rotations.map((R) =>
    vectors.map((x) => {
      const turned = R[0].map((_, column) => x.reduce((sum, value, i) => sum + value * R[i][column], 0));
      return best([...turned, ...turned.map((value) => -value)]);
    }),
  );
}

export function byHashing(queries, keys, allowed, rotations) {
  const n = queries.length;
  const [q, k] = [hashes(queries, rotations), keys === queries ? null : hashes(keys, rotations)];
  const chosen = new Uint8Array(n * n);
  let pairs = 0;
  rotations.forEach((_, round) => {
    const [left, right] = [q[round], (k ?? q)[round]];
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < n; j += 1) {
        if (left[i] !== right[j] || !allowed[i * n + j]) continue;
        pairs += 1;
        chosen[i * n + j] = 1;
      }
    }
  });
  return { chosen, pairs, queryGroups: q[0], keyGroups: (k ?? q)[0] };
}

/** The matrix of a hash, turned by an angle in each pair of neighbouring dimensions. */
export function turned(R, angle) {
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  return R.map((values, i) => {
    const other = i % 2 ? R[i - 1] : R[i + 1];
    if (!other) return values;
    return values.map((value, column) => (i % 2 ? sin * other[column] + cos * value : cos * value - sin * other[column]));
  });
}

export function unit(x) {
  const length = Math.sqrt(dot(x, x));
  return length ? x.map((value) => value / length) : x;
}

/** Spherical k-means. */
function centresOf(points, starts) {
  let centres = starts.map((at) => points[at]);
  for (let step = 0; step < LLOYD; step += 1) {
    const sums = centres.map((centre) => new Float64Array(centre.length));
    for (const point of points) {
      const sum = sums[best(centres.map((centre) => dot(point, centre)))];
      point.forEach((value, i) => (sum[i] += value));
    }
    centres = sums.map((sum, at) => (dot(sum, sum) > 0 ? unit(sum) : centres[at]));
  }
  return centres;
}

export function byClustering(queries, keys, allowed, starts, width) {
  const n = queries.length;
  const shared = keys === queries;
  const q = queries.map(unit);
  const k = shared ? q : keys.map(unit);
  const centres = centresOf(shared ? q : [...q, ...k], starts);
  const taken = (points) => centres.map((centre) => descending(points.map((point) => dot(point, centre))).slice(0, width));
  const [membersQ, membersK] = [taken(q), taken(k)];
  const chosen = new Uint8Array(n * n);
  let pairs = 0;
  centres.forEach((_, cluster) => {
    for (const i of membersQ[cluster]) {
      for (const j of membersK[cluster]) {
        if (!allowed[i * n + j]) continue;
        pairs += 1;
        chosen[i * n + j] = 1;
      }
    }
  });
  const groups = (points, members) =>
    points.map((point, i) => {
      const near = centres.map((centre, cluster) => (members[cluster].includes(i) ? dot(point, centre) : -Infinity));
      const at = best(near);
      return near[at] === -Infinity ? -1 : at;
    });
  return { chosen, pairs, queryGroups: groups(q, membersQ), keyGroups: groups(k, membersK) };
}

function blockMeans(vectors, block) {
  const means = [];
  for (let from = 0; from < vectors.length; from += block) {
    const part = vectors.slice(from, from + block);
    means.push(part[0].map((_, i) => part.reduce((sum, x) => sum + x[i], 0) / part.length));
  }
  return means;
}

const logSum = (values) => {
  const largest = Math.max(...values);
  return largest + Math.log(values.reduce((sum, value) => sum + Math.exp(value - largest), 0));
};

/** Sinkhorn's normalisation of the scores of blocks; causally a softmax over the earlier blocks. */
export function matching(queries, keys, { block, causal, temperature, steps }) {
  const scale = 1 / (Math.sqrt(queries[0].length) * temperature);
  const [q, k] = [blockMeans(queries, block), blockMeans(keys, block)];
  let scores = q.map((a, i) => k.map((b, j) => (i === j ? -Infinity : dot(a, b) * scale)));
  if (q.length === 1) return [[0]];
  if (causal) {
    return scores.map((values, i) => {
      const total = i ? logSum(values.slice(0, i)) : 0;
      return values.map((value, j) => (j < i ? Math.exp(value - total) : 0));
    });
  }
  for (let step = 0; step < steps; step += 1) {
    scores = scores.map((values) => values.map((value, _, all) => value - logSum(all)));
    const columns = scores[0].map((_, j) => logSum(scores.map((values) => values[j])));
    scores = scores.map((values) => values.map((value, j) => value - columns[j]));
  }
  return scores.map((values) => values.map(Math.exp));
}

export function bySorting(queries, keys, allowed, options) {
  const n = queries.length;
  const matched = matching(queries, keys, options);
  const partner = matched.map(best); // of the first block, causally, itself
  const of = queries.map((_, i) => Math.floor(i / options.block));
  const chosen = allowed.map((one, at) => {
    const [i, j] = [Math.floor(at / n), at % n];
    return one && (of[i] === of[j] || partner[of[i]] === of[j]) ? 1 : 0;
  });
  return { chosen, pairs: count(chosen), queryGroups: of, keyGroups: of };
}

/** Positions in the order of their groups, those of no group last. */
export function inGroups(groups) {
  const rank = (group) => (group < 0 ? Infinity : group);
  return groups.map((_, i) => i).sort((a, b) => rank(groups[a]) - rank(groups[b]) || a - b);
}

/** Where one group ends and the next begins, in that order. */
export function borders(groups, order) {
  return order.map((_, at) => at).filter((at) => at > 0 && groups[order[at]] !== groups[order[at - 1]]);
}
