// What is said of the queries; words.py says the same.
import { rowOf } from "./study.js";

export const [STEPS, MASKED] = [254, 255];
const MOST = 4; // readers of a patch that are named

export const unmasked = (code) => (code === MASKED ? 0 : code);
export const weight = (code) => ((unmasked(code) / STEPS) ** 2).toFixed(2);

/** What the chosen query attends to, and who reads the chosen patch. */
export function announcement(found, at) {
  const where = `${when(found, at.moment)}${found.layers[at.layer]} (${ofHeads(found, at.head)})`;
  const said = [`${where}: ${ofQuery(found, at)}`];
  if (at.patch >= 0) said.push(ofPatch(found, at));
  return said.join(" ");
}

export function when({ dated, steps }, moment) {
  if (!dated) return "In ";
  if (steps[moment] === 0) return "Before the first update, in ";
  return `After ${steps[moment]} update${steps[moment] === 1 ? "" : "s"}, in `;
}

export function ofHeads({ heads }, head) {
  if (head >= 0) return `head ${head}`;
  return heads === 1 ? "its only head" : `mean of ${heads} heads`;
}

export const place = ({ grid: { columns } }, patch) => `row ${Math.floor(patch / columns)}, column ${patch % columns}`;

/** Queries by the weight that they give a patch, the largest first. */
export function readers(found, at) {
  const codes = Array.from({ length: found.queries }, (_, query) => unmasked(rowOf(found, at, query)[at.patch]));
  return codes.map((_, query) => query).sort((a, b) => codes[b] - codes[a] || a - b);
}

/** How many patches, the largest first, hold half of the weight of a query's row. */
export function half(row) {
  const squares = Array.from(row, (code) => unmasked(code) ** 2).sort((a, b) => b - a);
  const whole = squares.reduce((a, b) => a + b, 0);
  let [few, sum] = [1, squares[0]];
  while (2 * sum < whole) sum += squares[few++];
  return few;
}

function ofQuery(found, at) {
  const row = Array.from(rowOf(found, at, at.query), unmasked);
  const most = Math.max(...row);
  if (most === 0) return `query ${at.query} attends to no patch.`;
  const few = half(row);
  return `query ${at.query} attends most to the patch in ${place(found, row.indexOf(most))}, ${weight(most)}; ${few} of ${found.patches} patches ${few === 1 ? "holds" : "hold"} half of its weight.`;
}

function ofPatch(found, at) {
  const listed = readers(found, at).slice(0, MOST).map((query) => `query ${query} (${weight(rowOf(found, at, query)[at.patch])})`);
  return `The patch in ${place(found, at.patch)} is read by ${listed.join(", ")}.`;
}
