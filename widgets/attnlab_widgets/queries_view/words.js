// What is said of the queries; words.py says the same.
import { asideOf, rowOf } from "./study.js";

export const [STEPS, MASKED] = [254, 255];
const MOST = 4; // readers of a patch that are named

export const unmasked = (code) => (code === MASKED ? 0 : code);

/** With two digits after the point, of a smaller weight with its first two. */
export function weight(code) {
  if (unmasked(code) === 0) return "0";
  const value = (code / STEPS) ** 2;
  return value.toFixed(Math.max(2, 1 - Number(value.toExponential(1).split("e")[1])));
}

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

/** How many patches, the largest first, hold half of what a query gives to patches. */
export function half(row) {
  const squares = Array.from(row, (code) => unmasked(code) ** 2).sort((a, b) => b - a);
  const whole = squares.reduce((a, b) => a + b, 0);
  let [few, sum] = [1, squares[0]];
  while (2 * sum < whole) sum += squares[few++];
  return few;
}

/** The keys before the patches. */
export const besides = ({ before }) => (before === 1 ? "class token" : `${before} tokens before them`);

function ofQuery(found, at) {
  const row = Array.from(rowOf(found, at, at.query), unmasked);
  const most = Math.max(...row);
  const beside = found.before ? `; ${weight(asideOf(found, at, at.query))} goes to the ${besides(found)}` : "";
  if (most === 0) return `query ${at.query} attends to no patch${beside}.`;
  const few = half(row);
  const whole = found.before ? `what it gives to patches${beside}` : "its weight";
  return `query ${at.query} attends most to the patch in ${place(found, row.indexOf(most))}, ${weight(most)}; ${few} of ${found.patches} patches ${few === 1 ? "holds" : "hold"} half of ${whole}.`;
}

function ofPatch(found, at) {
  const listed = readers(found, at).slice(0, MOST).map((query) => `query ${query} (${weight(rowOf(found, at, query)[at.patch])})`);
  return `The patch in ${place(found, at.patch)} is read by ${listed.join(", ")}.`;
}
