// What KernelLab shows, in sentences; words.py says the same.
import { grouped } from "#lib/wall.js";
import { two } from "#lib/plane.js";
import { countOf, isRandom } from "./approximation.js";

/** At most two digits after the point. */
export const temperature = (value) => value.toFixed(2).replace(/0+$/, "").replace(/\.$/, "");

/** Whole per cent from 10 on, below with a digit more. */
export function percent(share) {
  if (share === 0) return "0 %";
  if (share < 0.001) return "less than 0.1 %";
  return `${share < 0.0995 ? (100 * share).toFixed(1) : grouped((100 * share).toFixed(0))} %`;
}

/** A choice for heads of width d, in words; what has no effect is left out. */
export function setting(choice, d, kinds) {
  const count = countOf(choice, d);
  const heat = temperature(choice.temperature);
  return [
    kinds[choice.feature],
    ...(count === null ? [] : [`${grouped(count)} features`]),
    ...(isRandom(choice) ? [choice.orthogonal ? "orthogonal" : "i.i.d.", `seed ${choice.seed}`] : []),
    ...(heat === "1" ? [] : [`temperature ${heat}`]),
  ].join(", ");
}

/** How much of the attention is in the wrong place, and in which row most. */
export function description(seen, choice, head, kinds) {
  const said = setting(choice, head.d, kinds);
  const first = said[0].toUpperCase() + said.slice(1);
  if (choice.feature === "softmax") return `${first}: the map that all others are measured by.`;
  const worst = seen.misplaced.reduce((best, share, i, all) => (share > all[best] ? i : best), 0);
  const parts = [`${first}: ${percent(seen.error)} of the attention sits in the wrong place; in the worst row, ${head.names[worst]} at position ${worst}, ${percent(seen.misplaced[worst])}.`];
  if (seen.negative) parts.push(`${seen.negative} of ${head.n} rows are divided by a number below zero: their weights change sign.`);
  if (seen.empty) parts.push(`${seen.empty} of ${head.n} rows have no weight at all.`);
  return parts.join(" ");
}

/** A key by the label of the query at its position; causal queries are the last ones. */
export const keyName = ({ names, n, m }, j) => (j >= m - n ? names[j - (m - n)] : `key ${j}`);

/** One pair of the maps, in words. */
export function pairSaid(seen, head, { i, j }) {
  const [exact, map] = [seen.exact[i * head.m + j], seen.map[i * head.m + j]];
  return `${head.names[i]} (${i}) to ${keyName(head, j)} (${j}): exact ${two(exact)}, by features ${two(map)}, difference ${two(map - exact)}. Of this row ${percent(seen.misplaced[i])} is in the wrong place.`;
}
