// RoPE on numbers: the frequencies, and what each pair of coordinates adds to a score.

/** θ of each pair, in radians per position. */
export function frequencies(width, base) {
  return Array.from({ length: width / 2 }, (_, t) => base ** ((-2 * t) / width));
}

/** An angle brought to (−π, π]. */
export function wrapped(angle) {
  const turn = 2 * Math.PI;
  const rest = ((angle % turn) + turn) % turn;
  return rest > Math.PI ? rest - turn : rest;
}

/**
 * Each pair of a query at position i and a key at position j, both of length 1 per pair: the two
 * angles after turning, their difference, and its cosine, which is what the pair adds to q · k.
 * `phases` holds the angle of the query and of the key before turning, two numbers for each pair.
 */
export function pairsOf(i, j, phases, width, base) {
  return frequencies(width, base).map((theta, t) => {
    const query = phases[2 * t] + i * theta;
    const key = phases[2 * t + 1] + j * theta;
    return { theta, query, key, between: wrapped(key - query), adds: Math.cos(key - query) };
  });
}

/** q · k / √d at each distance i − j = 0 … n − 1. */
export function byDistance(n, phases, width, base) {
  return Array.from({ length: n }, (_, t) =>
    pairsOf(t, 0, phases, width, base).reduce((sum, one) => sum + one.adds, 0) / Math.sqrt(width));
}
