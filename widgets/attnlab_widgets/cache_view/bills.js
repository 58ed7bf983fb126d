// What the layers of a model keep after so many tokens: the arithmetic of bills.py.
export const EXACT = 128; // newest tokens that a cache of few bits leaves as they are
const WIDE = 16;
export const LENGTHS = Array.from({ length: 21 }, (_, power) => 2 ** power);
export const LEAST = 2; // pixels of what is kept, however little

/** How many tokens a layer of this kind keeps something of. */
export const keptOf = ({ cap }, tokens) => (cap === null ? tokens : Math.min(tokens, cap));

export function bytesOf(kind, tokens, bits = WIDE) {
  const kept = keptOf(kind, tokens);
  if (bits === WIDE || !kind.rounds) return kind.fixed + kept * kind.per_token;
  const rounded = Math.max(0, kept - EXACT);
  return kind.fixed + kind.per_token * (kept - rounded + (rounded * (bits + 1)) / WIDE);
}

export const total = (kinds, layers, tokens, bits = WIDE) =>
  layers.reduce((sum, name) => sum + bytesOf(kinds[name], tokens, bits), 0);

/** Where what is kept begins and ends, of `wide` pixels for all tokens. */
export function extent(kind, tokens, wide) {
  if (!kind.per_token) return kind.fixed ? [wide - 8, wide] : [0, 0];
  return [wide - Math.max(LEAST, (wide * keptOf(kind, tokens)) / tokens), wide];
}

export const SCOPES = ["this layer", "all layers", "every second layer", "three of four layers"];

/** Whether a layer is switched when `layer` is the chosen one. */
export function within(scope, layer, at) {
  const apart = (by) => (((at - layer) % by) + by) % by;
  return [at === layer, true, apart(2) === 0, apart(4) !== 0][SCOPES.indexOf(scope)];
}
