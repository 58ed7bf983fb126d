// How tokens come to their final state; the sentences are those of words.py.
import { percent } from "#lib/film.js";
import { two } from "#lib/plane.js";
import { reader } from "#lib/quantization.js";

const NEAR = 0.1; // of its final state: a token that close has settled

/** What __init__.py wrote: {n, s, distance, change, probability}, (n, s) each. */
export function openDepth(buffer, told) {
  const [n, s] = [told.tokens.length, told.steps.length];
  const next = reader(buffer, 0);
  return { ...told, n, s, distance: next("f4", n * s), change: next("f4", n * s), probability: told.probabilities ? next("f4", n * s) : null };
}

export const isEarly = ({ left, s }) => left.some((step) => step < s);

/** How many tokens are computed at each step. */
export const running = ({ left, s }) => Array.from({ length: s }, (_, at) => left.filter((step) => step > at).length);

/** The step, counted from 1, from which on a token stays near the state with which it leaves. */
export function settledAt({ left, distance, s }, i) {
  let found = 1;
  for (let at = 0; at < left[i]; at += 1) if (distance[i * s + at] > NEAR) found = at + 2;
  return Math.min(found, left[i]);
}

/** The tokens in the order of the rows. */
export function rowsOf({ left, n }, order) {
  const rows = Array.from({ length: n }, (_, i) => i);
  return order === "left" ? rows.sort((a, b) => left[a] - left[b] || a - b) : rows;
}

/**
 * From a value to its place on the colours, 0 to 1; logarithmic where values differ by more than a
 * factor of 50, otherwise a square root.
 */
export function scaleOf(values, colour) {
  const known = values.filter((value) => value > 0);
  const plain = colour === "probability";
  const high = plain || !known.length ? 1 : known.reduce((a, b) => Math.max(a, b));
  const least = known.length ? known.reduce((a, b) => Math.min(a, b)) : 1;
  const log = !plain && least < high / 50;
  const low = log ? Math.max(least, high / 1e4) : 0;
  const share = (value) => {
    if (!log) return plain ? value / high : Math.sqrt(value / high);
    return value <= low ? 0 : Math.log(value / low) / Math.log(high / low);
  };
  return { log, low, high, share };
}

/** What is common to all tokens, and the way of one. */
export const announcement = (depth, token) => `${ofAll(depth)} ${ofToken(depth, token)}`;

function ofAll({ n, s, what, steps: names, left, residual }) {
  const steps = `${s} ${what}${s > 1 ? "s" : ""}`;
  if (isEarly({ left, s })) {
    const [first, last] = [Math.min(...left), Math.max(...left)];
    const span = last > first ? `between ${what} ${names[first - 1]} and ${names[last - 1]} of ${s}` : `after ${what} ${names[first - 1]}`;
    const share = left.reduce((a, b) => a + b, 0) / (n * s);
    return `${n} tokens leave ${span}: ${percent(share)} of the work of all ${steps} is done.`;
  }
  if (residual) return `In ${steps} the residual falls from ${power(residual[0])} to ${power(residual.at(-1))}.`;
  return `All ${n} tokens go through all ${steps}.`;
}

function ofToken(depth, token) {
  const { tokens, what, steps, left, s, guesses, probability } = depth;
  const [end, settled] = [left[token], settledAt(depth, token)];
  const at = `${what} ${steps[settled - 1]}`;
  const near = settled < end ? ` and is near its final state from ${at} on` : "";
  const said = isEarly(depth)
    ? `Token ${token} “${tokens[token]}” leaves after ${what} ${steps[end - 1]}${near}`
    : `Token ${token} “${tokens[token]}” is near its final state, within ${percent(NEAR)}, from ${at} on`;
  if (!guesses) return `${said}.`;
  const row = guesses[token].slice(0, end);
  const same = row.findIndex((_, i) => row.slice(i).every((guess) => guess === row[end - 1]));
  return `${said}; its answer, “${row[end - 1]}” with ${two(probability[token * s + end - 1])}, is the same from ${what} ${steps[same]} on.`;
}

/** A number of any size in few letters: 0.04, 12.5, 3.1e−5. */
export function power(value) {
  if (value === 0 || (value >= 0.01 && value < 1000)) return two(value);
  const [digits, exponent] = value.toExponential(1).split("e");
  return `${digits}e${Number(exponent)}`.replaceAll("-", "−");
}
