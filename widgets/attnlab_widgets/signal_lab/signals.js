// A signal through the kernel of a diagonal state space, or of a few taps. Complex numbers are
// [re, im]. The sentence is the one that words.py says.
import { two } from "#lib/plane.js";

export const RULES = { zoh: "zero-order hold", bilinear: "bilinear rule" };
export const [LEAST_TOKENS, MOST_TOKENS, MOST_POLES] = [4, 128, 32];
const [LARGEST, LARGEST_POLE] = [100, 1000];
const FREQUENCIES = 129; // of the spectrum, from 0 to half a turn per token
const STILL = 1e-9; // a pole that fades or turns by less in a step does not fade or turn
const MOST = 9999; // tokens

const product = ([a, b], [c, d]) => [a * c - b * d, a * d + b * c];
const quotient = ([a, b], [c, d]) => [(a * c + b * d) / (c * c + d * d), (b * c - a * d) / (c * c + d * d)];

/** Ā and B̄ (for B = 1) of a pole under one step of time. */
export function discretised(pole, step, rule) {
  const [x, y] = pole.map((part) => part * step);
  if (rule === "bilinear") {
    const below = [1 - x / 2, -y / 2];
    return { decay: quotient([1 + x / 2, y / 2], below), drive: quotient([step, 0], below) };
  }
  const size = Math.exp(x);
  const less = [Math.expm1(x) * Math.cos(y) - 2 * Math.sin(y / 2) ** 2, size * Math.sin(y)]; // e^z − 1
  const drive = x || y ? quotient(less, [x, y]).map((part) => part * step) : [step, 0];
  return { decay: [size * Math.cos(y), size * Math.sin(y)], drive };
}

/**
 * The kernel as it is drawn: what a token takes of itself is cut to the largest other number, by sign,
 * where it is more than twice as large and would hide the others.
 */
export function cut(kernel) {
  const most = Math.max(0, ...kernel.slice(1).map(Math.abs));
  const hides = most > 0 && Math.abs(kernel[0]) > 2 * most;
  return hides ? [Math.sign(kernel[0]) * most, ...kernel.slice(1)] : kernel;
}

/** The kernel of n tokens, its modes (none for taps), the states [row][token] and the output. */
export function responded({ signal, poles, weights, step, rule, skip, taps }) {
  const n = signal.length;
  const modes = taps.length ? [] : poles.map((pole) => discretised(pole, step, rule));
  const kernel = taps.length ? signal.map((_, k) => taps[k] ?? 0) : impulse(modes, weights, n);
  kernel[0] += skip;
  const states = taps.length ? taps.map((_, j) => signal.map((_, k) => signal[k - j] ?? 0)) : modes.map((mode) => path(mode, signal));
  const output = signal.map((_, i) => signal.slice(0, i + 1).reduce((sum, u, j) => sum + kernel[i - j] * u, 0));
  return { kernel, modes, states, output };
}

function impulse(modes, weights, n) {
  const kernel = new Array(n).fill(0);
  modes.forEach(({ decay, drive }, r) => {
    let now = product(weights[r], drive);
    for (let k = 0; k < n; k += 1) {
      kernel[k] += 2 * now[0];
      now = product(now, decay);
    }
  });
  return kernel;
}

/** The real part of a mode after every token. */
function path({ decay, drive }, signal) {
  let x = [0, 0];
  return signal.map((u) => {
    x = product(decay, x).map((part, at) => part + drive[at] * u);
    return x[0];
  });
}

/** By what numbers multiply (as a kernel) or hold (as a signal) waves of 0 to half a turn per token. */
export function spectrum(numbers) {
  return Array.from({ length: FREQUENCIES }, (_, at) => {
    const angle = (Math.PI * at) / (FREQUENCIES - 1);
    const sums = numbers.reduce(([re, im], value, k) => [re + value * Math.cos(angle * k), im - value * Math.sin(angle * k)], [0, 0]);
    return Math.hypot(...sums);
  });
}

const phase = ([re, im]) => Math.abs(Math.atan2(im, re));

/** How long the kernel remembers and how fast it turns. */
export function announcement({ poles, step, rule, taps }, { kernel, modes }) {
  const sum = `The kernel sums to ${two(kernel.reduce((a, b) => a + b, 0))}.`;
  if (taps.length) return `${reach(taps.length)} ${sum}`;
  const slowest = Math.max(...modes.map(({ decay }) => Math.hypot(...decay)));
  const fastest = Math.max(...modes.map(({ decay }) => phase(decay)));
  const [begin, one, other] = poles.length === 1 ? ["One pole", "its mode", "it"] : [`${poles.length} poles`, "the slowest mode", "the fastest"];
  return `${begin}, steps of ${shortStep(step)} (${RULES[rule]}): ${one} ${fades(slowest)}, ${other} ${turns(fastest)}.${onTheAxis(poles)}${aliased(poles, step, rule)} ${sum}`;
}

function reach(count) {
  if (count === 1) return "One tap: every token reads itself alone.";
  return `${count} taps: every token reads itself and ${count === 2 ? "the token" : `the ${count - 1} tokens`} before it, and none older.`;
}

/** A token by how long before it is. */
export const ago = (k) => (k === 0 ? "the token itself" : `${k === 1 ? "1 token" : `${k} tokens`} before`);
export const shortStep = (step) => two(step, 4).replace(/\.?0+$/, "");
export const fades = (size) => (size > 1 - STILL ? "does not fade" : `fades to half in ${tokens(Math.LN2 / -Math.log(Math.max(size, 1e-300)))}`);
export const turns = (angle) => (angle < STILL ? "does not turn" : `turns once in ${tokens((2 * Math.PI) / angle)}`);
const tokens = (count) => (count > MOST ? "more than 9,999 tokens" : `${two(count, 1)} tokens`);
/** The same of one decay Ā. */
export const behaves = (decay) => `${fades(Math.hypot(...decay))}, ${turns(phase(decay))}`;

function onTheAxis(poles) {
  if (poles.every(([re]) => re < 0)) return "";
  return " A pole on the imaginary axis never fades.";
}

function aliased(poles, step, rule) {
  const found = poles.filter(([, turn]) => Math.abs(turn) * step > Math.PI).length;
  if (rule !== "zoh" || !found) return "";
  const [turn, look] = found === 1 ? ["One mode turns", "looks"] : [`${found} modes turn`, "look"];
  return ` ${turn} by more than half a circle in a step and ${look} slower.`;
}

/** How far the picture of the plane reaches, up and to each side. */
export function extents(poles) {
  const most = (axis) => Math.max(...poles.map((pole) => Math.abs(pole[axis])));
  return [Math.max(8, 1.3 * most(1)), Math.max(2, 2 * most(0))];
}

/** A pole where it may be: not to the right of the imaginary axis. */
export function allowed([re, im]) {
  const near = (x) => Math.min(Math.max(x, -LARGEST_POLE), LARGEST_POLE);
  return { pole: [Math.min(near(re), 0) + 0, near(im)], refused: re > 0 };
}

/** The numbers of a typed text, or a sentence that says what is wrong with it. */
export function typed(text, least) {
  const words = text.trim().replaceAll("−", "-").split(/[\s,;]+/).filter(Boolean);
  const numbers = words.map(Number);
  const wrong = words.find((_, at) => !Number.isFinite(numbers[at]));
  if (wrong !== undefined) return { error: `“${wrong.slice(0, 20)}” is not a number; write numbers with a point, and a space between them.` };
  if (numbers.length < least || numbers.length > MOST_TOKENS) return { error: `Type ${least} to ${MOST_TOKENS} numbers; these are ${numbers.length}.` };
  if (numbers.some((x) => Math.abs(x) > LARGEST)) return { error: `Numbers beyond ±${LARGEST} cannot be drawn; type smaller ones.` };
  return { numbers };
}

/** Numbers after a stroke of the pen from one place to another; between them on a straight line. */
export function stroked(numbers, from, to) {
  const out = [...numbers];
  const kept = (value) => Math.round(100 * Math.min(Math.max(value, -LARGEST), LARGEST)) / 100 + 0;
  const steps = Math.abs(to.at - from.at);
  for (let step = 0; step <= steps; step += 1) {
    const share = steps ? step / steps : 1;
    out[from.at + Math.sign(to.at - from.at) * step] = kept(from.value + share * (to.value - from.value));
  }
  return out;
}
