// What KernelLab shows, in sentences; words.py says the same.
import { grouped } from "#lib/wall.js";
import { two } from "#lib/plane.js";
import { countOf, isRandom } from "./approximation.js";

const [FEWEST_DIGITS, MOST_DIGITS] = [2, 20];

/** At most so many digits after the point. */
export const temperature = (value, digits = FEWEST_DIGITS) => value.toFixed(digits).replace(/0+$/, "").replace(/\.$/, "");

/** How many digits after the point tell these temperatures apart: two, or more. */
export function digitsOf(temperatures) {
  const apart = [...new Set(temperatures)];
  for (let digits = FEWEST_DIGITS; digits < MOST_DIGITS; digits += 1) {
    if (new Set(apart.map((value) => temperature(value, digits))).size === apart.length) return digits;
  }
  return MOST_DIGITS;
}

/** Whole per cent from 10 on, below with a digit more. */
export function percent(share) {
  if (share === 0) return "0 %";
  if (share < 0.001) return "less than 0.1 %";
  return `${share < 0.0995 ? (100 * share).toFixed(1) : grouped((100 * share).toFixed(0))} %`;
}

/** A choice for heads of width d, in words; what has no effect is left out. */
export function setting(choice, d, kinds, digits) {
  const count = countOf(choice, d);
  const heat = temperature(choice.temperature, digits);
  return [
    kinds[choice.feature],
    ...(count === null ? [] : [`${grouped(count)} feature${count === 1 ? "" : "s"}`]),
    ...(isRandom(choice) ? [choice.orthogonal ? "orthogonal" : "i.i.d.", `seed ${choice.seed}`] : []),
    ...(heat === "1" ? [] : [`temperature ${heat}`]),
  ].join(", ");
}

/** How much of the attention is in the wrong place, and in which row most. */
export function description(seen, choice, head, kinds, digits) {
  const said = setting(choice, head.d, kinds, digits);
  const first = said[0].toUpperCase() + said.slice(1);
  if (choice.feature === "softmax") return `${first}: the map that all others are measured by.`;
  const worst = seen.misplaced.reduce((best, share, i, all) => (share > all[best] ? i : best), 0);
  const name = head.names[worst];
  const where = name === String(worst) ? `that at position ${worst}` : `${name} at position ${worst}`;
  const parts = [`${first}: ${percent(seen.error)} of the attention sits in the wrong place; in the worst row, ${where}, ${percent(seen.misplaced[worst])}.`];
  const rows = `of ${head.n} row${head.n === 1 ? "" : "s"}`;
  const [is, their] = seen.negative === 1 ? ["is", "its"] : ["are", "their"];
  if (seen.negative) parts.push(`${seen.negative} ${rows} ${is} divided by a number below zero: ${their} weights change sign.`);
  if (seen.empty) parts.push(`${seen.empty} ${rows} ${seen.empty === 1 ? "has" : "have"} no weight at all.`);
  return parts.join(" ");
}

/** Whether some weights are below zero, by more than rounding. */
export const isSigned = ({ map }) => map.some((value) => value < -1e-9);

/** How far weights go that have both signs, where the colours end before; "" otherwise. */
export function reach({ map }) {
  const [least, most] = [map.reduce((a, b) => Math.min(a, b)), map.reduce((a, b) => Math.max(a, b))];
  return Math.max(-least, most) < 1.005 ? "" : `colours end at ±1: here weights go from ${two(least)} to ${two(most)}`;
}

/** A key by the label of the query at its position; causal queries are the last ones. */
export const keyName = ({ names, n, m }, j) => (j >= m - n ? names[j - (m - n)] : `key ${j}`);

/** A token with its position, which is said once where it has no other name. */
export const placed = (name, at) => (name === String(at) || name === `key ${at}` ? name : `${name} (${at})`);

/** One pair of the maps, in words. */
export function pairSaid(seen, head, { i, j }) {
  const [exact, map] = [seen.exact[i * head.m + j], seen.map[i * head.m + j]];
  return `${placed(head.names[i], i)} to ${placed(keyName(head, j), j)}: exact ${two(exact)}, by features ${two(map)}, difference ${two(map - exact)}. Of this row ${percent(seen.misplaced[i])} is in the wrong place.`;
}
