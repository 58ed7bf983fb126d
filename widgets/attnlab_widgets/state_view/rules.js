// The recurrences as one rule whose transition differs; rules.py computes the same.
export const SPREAD = 2; // the last channel decays by the decay to this power, the first by the power 0
const ALIKE = 1e-9; // readings that differ by less are the same
const NOTHING = 0.005; // a reading of less shows as 0.00

const square = (d, make) => Array.from({ length: d }, (_, i) => Array.from({ length: d }, (_, j) => make(i, j)));

/** Keys of unit length, any two of which have the dot product `overlap`. */
export function keysOf(count, overlap) {
  const own = Math.sqrt(1 - overlap);
  const shared = (Math.sqrt(1 - overlap + count * overlap) - own) / count;
  return square(count, (i, j) => (i === j ? own : 0) + shared);
}

/** What a token multiplies the rows of the state by. */
export function decaysOf(rule, width, decay, forget) {
  return Array.from({ length: width }, (_, r) => {
    if (rule.decays === "none") return 1;
    if (rule.decays === "constant") return decay;
    const power = rule.decays === "channel" ? (width > 1 ? (SPREAD * r) / (width - 1) : 0) : 1;
    return decay ** (power * forget);
  });
}

export const transition = (rule, key, diagonal, step) =>
  square(key.length, (i, j) => {
    const erased = rule.erases === "none" ? 0 : step * key[i] * key[j] * (rule.erases === "after" ? diagonal[j] : 1);
    return (i === j ? diagonal[i] : 0) - erased;
  });

/** The eigenvalues of A, from the least on: those of a symmetric matrix that A is similar to. */
export function eigenvalues(rule, key, diagonal, step) {
  const root = key.map((x, i) => (rule.erases === "after" ? Math.sqrt(diagonal[i]) * x : x));
  const size = rule.erases === "none" ? 0 : step;
  return ofSymmetric(square(key.length, (i, j) => (i === j ? diagonal[i] : 0) - size * root[i] * root[j]));
}

/** Jacobi's rotations: each makes one entry beside the diagonal zero. */
export function ofSymmetric(given) {
  const M = given.map((row) => [...row]);
  const d = M.length;
  for (let sweep = 0; sweep < 30; sweep += 1) {
    let left = 0;
    for (let p = 0; p < d; p += 1) {
      for (let q = p + 1; q < d; q += 1) {
        left += M[p][q] ** 2;
        if (Math.abs(M[p][q]) > 1e-300) rotate(M, p, q);
      }
    }
    if (left < 1e-28) break;
  }
  return M.map((row, i) => row[i]).sort((a, b) => a - b);
}

function rotate(M, p, q) {
  const theta = (M[q][q] - M[p][p]) / (2 * M[p][q]);
  const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1));
  const c = 1 / Math.hypot(t, 1);
  const s = t * c;
  for (let r = 0; r < M.length; r += 1) [M[r][p], M[r][q]] = [c * M[r][p] - s * M[r][q], s * M[r][p] + c * M[r][q]];
  for (let r = 0; r < M.length; r += 1) [M[p][r], M[q][r]] = [c * M[p][r] - s * M[q][r], s * M[p][r] + c * M[q][r]];
}

/** What a rule makes of the facts: A, the eigenvalues and what is written of every token, S before the first and after each. */
export function film(rule, { facts, names, values, decay, step, overlap }) {
  const keys = keysOf(names.length, overlap);
  const size = rule.erases === "none" ? 1 : step;
  const states = [keys.map(() => values.map(() => 0))];
  const [transitions, spectra, writes] = [[], [], []];
  for (const [name, value, forget] of facts) {
    const key = keys[names.indexOf(name)];
    const column = values.indexOf(value);
    const diagonal = decaysOf(rule, names.length, decay, forget);
    const A = transition(rule, key, diagonal, step);
    const write = key.map((x) => values.map((_, j) => (j === column ? size * x : 0)));
    const before = states[states.length - 1];
    transitions.push(A);
    writes.push(write);
    spectra.push(eigenvalues(rule, key, diagonal, step));
    states.push(times(A, before).map((row, i) => row.map((x, j) => x + write[i][j])));
  }
  return { keys, transitions, spectra, writes, states };
}

export const times = (A, B) => A.map((row) => B[0].map((_, j) => row.reduce((sum, x, r) => sum + x * B[r][j], 0)));

/** The places of the largest reading; none where nothing is read. */
export function best(reading) {
  const most = Math.max(...reading);
  return most < NOTHING ? [] : reading.map((_, j) => j).filter((j) => most - reading[j] < ALIKE);
}

/** The value, by its place, that was last written to each key; null where there is none. */
export function newestOf({ facts, names, values, token }) {
  const found = new Map(facts.slice(0, token + 1).map(([key, value]) => [key, values.indexOf(value)]));
  return names.map((name) => found.get(name) ?? null);
}

/** How many keys return their newest value. */
export const rightOf = (readings, newest) => readings.filter((row, i) => returns(row, newest[i])).length;
export const returns = (row, value) => value !== null && best(row).length === 1 && best(row)[0] === value;
