// A table whose rows and columns have scores; the score of a cell is their sum.
import { two } from "#lib/plane.js";

const firstLargest = (scores) => scores.indexOf(Math.max(...scores));

/** [row, column] of the highest score, which is in the best row and in the best column. */
export const best = ({ rows, columns }) => [firstLargest(rows), firstLargest(columns)];

export const sum = ({ rows, columns }, [row, column]) => rows[row] + columns[column];

export const same = (one, other) => Boolean(one && other) && one[0] === other[0] && one[1] === other[1];

/** All cells, the highest score first; those of one score in the order of the table. */
export function ranked(question) {
  const cells = question.rows.flatMap((_, row) => question.columns.map((__, column) => [row, column]));
  return cells.sort((a, b) => sum(question, b) - sum(question, a));
}

/** How many cells have a higher score, and one more. */
export function rank(question, cell) {
  const own = sum(question, cell);
  return 1 + question.rows.reduce((count, row) => count + question.columns.filter((column) => row + column > own).length, 0);
}

/** Where a score lies between the lowest, 0, and the highest, 1. */
export function share(score, low, high) {
  return high > low ? (score - low) / (high - low) : 1;
}

/** What is said of one cell. */
export function readOut(question, cell) {
  const [row, column] = cell;
  const count = question.rows.length * question.columns.length;
  const numbers = `${two(question.rows[row])} + ${two(question.columns[column])} = ${two(sum(question, cell))}`;
  return `Row ${row}, column “${question.header[column]}”: ${numbers}, number ${rank(question, cell)} of ${count}`;
}
