// The energy of a modern Hopfield network in the plane, and where updates lead a query.
// The sentence is the one that words.py says.
import { attend, dot, listed, two } from "#lib/plane.js";

const NEARLY_ALL = 0.9; // of the weight: a pattern that has as much is retrieved alone
const RESTS = 0.005; // a step that moves the state by less shows as 0.00
const BANDS = 14;

/** E of a state (Ramsauer et al., eq. 2); never negative. */
export function energyOf(state, { patterns, beta }) {
  const scores = patterns.map((pattern) => beta * dot(pattern, state));
  const largest = Math.max(...scores);
  const spread = (largest + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - largest), 0))) / beta;
  const longest = Math.max(...patterns.map((pattern) => dot(pattern, pattern)));
  return dot(state, state) / 2 - spread + Math.log(patterns.length) / beta + longest / 2;
}

/** The weights of the patterns at a state, and the state after one update (eq. 3). */
export function updated(state, { patterns, beta }) {
  const { weights, output } = attend({ keys: patterns, values: patterns, query: state, scale: beta, masked: [] });
  return { weights, next: output };
}

/** The states of `steps` updates (the query first), their energies, and the weights at the last. */
export function retrieval(state) {
  const path = [state.query];
  for (let step = 0; step < state.steps; step += 1) path.push(updated(path.at(-1), state).next);
  return { path, energies: path.map((point) => energyOf(point, state)), weights: updated(path.at(-1), state).weights };
}

/** The fewest patterns that have nearly all of the weight together, the heaviest first. */
export function heaviest(weights) {
  const order = weights.map((_, j) => j).sort((i, j) => weights[j] - weights[i] || i - j);
  let total = 0;
  const count = order.findIndex((j) => (total += weights[j]) > NEARLY_ALL - 1e-9);
  return order.slice(0, count < 0 ? order.length : count + 1);
}

/** Where the query is led. */
export function announcement(names, { path, energies, weights }) {
  const steps = path.length - 1;
  const times = steps === 1 ? "One step leads" : `${steps} steps lead`;
  const [last, before] = [path[steps], path[steps - 1]];
  return `${times} from ${place(path[0])}, where the energy is ${two(energies[0])}, to ${place(last)}, where it is ${two(energies[steps])}: ${found(names, weights)}${moving(Math.hypot(last[0] - before[0], last[1] - before[1]))}`;
}

function found(names, weights) {
  const most = heaviest(weights);
  const [first] = most;
  if (most.length === 1) return `pattern ${names[first]}, with ${two(weights[first])} of the weight.`;
  if (most.length === weights.length) return `a mean of all ${weights.length} patterns, of which ${names[first]} has most, ${two(weights[first])} of the weight.`;
  const together = two(most.reduce((sum, j) => sum + weights[j], 0));
  return `a mean of ${listed([...most].sort((i, j) => i - j).map((j) => names[j]))}, which have ${together} of the weight.`;
}

const moving = (by) => (by < RESTS ? "" : ` The last step still moved the state by ${two(by)}.`);

export const place = (point) => `(${two(point[0])}, ${two(point[1])})`;

/** The energies on a grid of size × size over the square, row by row from above, as bands 0 … 13:
 * equal steps of the root of what lies above the lowest, so that valleys show beside high slopes. */
export function bands(state, half, size) {
  const at = (cell) => (((cell + 0.5) / size) * 2 - 1) * half;
  const energies = Float64Array.from({ length: size * size }, (_, cell) => energyOf([at(cell % size), -at(Math.floor(cell / size))], state));
  const low = energies.reduce((a, b) => Math.min(a, b), Infinity);
  const above = Math.max(energies.reduce((a, b) => Math.max(a, b), -Infinity) - low, 1e-12);
  return { low, high: low + above, count: BANDS, of: Uint8Array.from(energies, (energy) => Math.min(BANDS * Math.sqrt((energy - low) / above), BANDS - 1)) };
}
