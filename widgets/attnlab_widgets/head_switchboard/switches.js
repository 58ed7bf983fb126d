// Choices of silent heads: what each predicts, and the sentence that __init__.py says.
import { listed } from "#lib/plane.js";

export const headName = ([layer, head]) => `${layer}.${head}`;
const same = (a, b) => a[0] === b[0] && a[1] === b[1];

/** A choice as a number: bit k is set where head k is silent. */
export function stateOf(heads, silent) {
  return heads.reduce((state, head, bit) => state + (silent.some((one) => same(one, head)) ? 2 ** bit : 0), 0);
}

export const silentIn = (heads, state) => heads.filter((_, bit) => (state >> bit) & 1);

export const rightIn = ({ guesses, coming }, state) => coming.map((token, i) => guesses[state][i] === token);

export const countRight = (board, state) => rightIn(board, state).filter(Boolean).length;

/** Of each token but the first: "right", "lost" (right with all heads), "gained" (wrong with all) or "never". */
export function kindsIn(board, state) {
  const whole = rightIn(board, 0);
  return rightIn(board, state).map((right, i) => (right ? (whole[i] ? "right" : "gained") : whole[i] ? "lost" : "never"));
}

export function sentence(board, silent) {
  const state = stateOf(board.heads, silent);
  const now = tally(board, state);
  if (!state) return `With all ${board.all} heads, ${now} are right.`;
  const heads = `head${silent.length > 1 ? "s" : ""} ${listed(silent.map(headName))}`;
  if (kindsIn(board, state).every((kind) => kind === "right" || kind === "never")) {
    return `Without ${heads} the same ${now} are right as with all heads.`;
  }
  return `Without ${heads}, ${now} are right; with all, ${rightsIn(board, 0).map(([right]) => right).join(" and ")}.`;
}

/** How many are right, and of how many: of those that repeat and of the others, or of all where none or each repeats. */
function rightsIn(board, state) {
  const right = rightIn(board, state);
  const of = (kept) => [right.filter((one, i) => one && kept(i)).length, right.filter((_, i) => kept(i)).length];
  const repeating = board.repeats.filter(Boolean).length;
  if (!repeating || repeating === right.length) return [of(() => true)];
  return [of((i) => board.repeats[i]), of((i) => !board.repeats[i])];
}

function tally(board, state) {
  const [[now, count], others] = rightsIn(board, state);
  const units = `${board.unit}${count === 1 ? "" : "s"}`;
  if (!others) return `${now} of ${count} ${units}`;
  return `${now} of the ${count} ${units} that ${count === 1 ? "repeats" : "repeat"} and ${others[0]} of the ${others[1]} others`;
}

/** Where the map of switch `bit` begins in the bytes: it depends on the switches of lower layers only. */
export function mapAt({ heads, tokens }, bit, state) {
  const cells = tokens.length ** 2;
  const below = (layer) => heads.filter(([at]) => at < layer).length;
  const within = (layer) => heads.filter(([at]) => at === layer).length;
  const [layer] = heads[bit];
  let start = 0;
  for (const one of new Set(heads.map(([at]) => at))) if (one < layer) start += 2 ** below(one) * within(one);
  const variant = state & (2 ** below(layer) - 1);
  return (start + variant * within(layer) + bit - below(layer)) * cells;
}

/** The width of each of n lamps, so that they fill as few equal lines as they can. */
export function lampWidth(n, wide, gap = 4, least = 24, most = 44) {
  for (let lines = 1; ; lines += 1) {
    const each = Math.ceil(n / lines);
    const width = (wide - gap * (each - 1)) / each;
    if (width >= least || each === 1) return Math.floor(Math.min(most, width));
  }
}

/** All choices in order: fewer silent heads first. */
export function ordered(count) {
  const ones = (state) => [...state.toString(2)].filter((bit) => bit === "1").length;
  return Array.from({ length: 2 ** count }, (_, state) => state).sort((a, b) => ones(a) - ones(b) || a - b);
}
