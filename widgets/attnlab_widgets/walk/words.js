// What is said of one step at one letter; words.py says the same.
import { two } from "#lib/plane.js";
import { ordered } from "#lib/draws.js";

const NAMED = 3; // answers that are named

export const fixed = (value) => two(value);
export const four = (value) => two(value, 4);
export const percent = (value) => `${two(100 * value, 1)} %`;

export const where = (step, at, count) => `Step ${at + 1} of ${count}, ${step.part}: ${step.name}.`;

export const placed = ({ shown }, tokens, at) => `“${shown[tokens[at]]}” (${at})`;

/** How long a vector is, and its largest number. */
export function vector(row) {
  let [most, squares] = [0, 0];
  row.forEach((value, at) => {
    if (Math.abs(value) > Math.abs(row[most])) most = at;
    squares += value * value;
  });
  const numbers = row.length === 1 ? "1 number" : `${row.length} numbers`;
  if (row[most] === 0) return `${numbers}, all zeros`;
  return `${numbers} of length ${fixed(Math.sqrt(squares))}; the largest, number ${most}, is ${row[most] > 0 ? "+" : ""}${fixed(row[most])}`;
}

/** The most probable letters, or those with the highest logits. */
export function answers({ shown }, row, kind) {
  const said = kind === "chances" ? percent : fixed;
  return ordered(row).slice(0, NAMED).map((token) => `“${shown[token]}” ${said(row[token])}`).join(", ");
}

/** What this step gives at the letter `at`: `row` are its numbers there. */
export function seen(network, tokens, step, at, row, head, silent) {
  const letter = placed(network, tokens, at);
  if (step.kind === "logits" || step.kind === "chances") return `After ${letter}: ${answers(network, row, step.kind)}.`;
  if (step.kind === "vectors") return `${letter}: ${vector(row)}.`;
  const layer = parseInt(step.key, 10);
  const name = `Head ${layer}.${head}`;
  const mute = silent.some((pair) => pair[0] === layer && pair[1] === head);
  if (step.kind === "heads") {
    return `${name}, ${letter}: ${vector(row)}.${mute && step.key.endsWith(".gathered") ? " It is silent: what it gathers is replaced by zeros." : ""}`;
  }
  let best = 0;
  for (let j = 1; j <= at; j += 1) if (row[j] > row[best]) best = j;
  const other = best === at ? "itself" : placed(network, tokens, best);
  if (step.kind === "scores") return `${name}: ${letter} scores highest with ${other}, ${fixed(row[best])}.`;
  return `${name}: ${letter} gives ${fixed(row[best])} of its weight to ${other}.${mute ? " It is silent: nothing that it gathers is passed on." : ""}`;
}
