// The survey's rows: their order and filter, the mirror of `shown` in __init__.py, and no DOM.

const KEYS = { name: "title", claimed: "formula" };
const sortable = (value) => (typeof value === "string" ? value.toLowerCase() : Number(value));

/** The rows that pass the filter, in order; those without a value come last. */
export function arranged(rows, { order, down, family, search }) {
  const key = KEYS[order] ?? order;
  const words = search.toLowerCase();
  const kept = rows.filter((row) => ["", row.family].includes(family) && `${row.title} ${row.name}`.toLowerCase().includes(words));
  const [found, rest] = [kept.filter((row) => row[key] !== null), kept.filter((row) => row[key] === null)];
  const compare = (a, b) => (sortable(a[key]) < sortable(b[key]) ? -1 : Number(sortable(a[key]) > sortable(b[key])));
  return [...found.sort((a, b) => (down ? compare(b, a) : compare(a, b))), ...rest];
}

/** The pages of one role of the other shelves: the mirror of parts.py. */
export function arrangedParts(rows, { shelf, order, down, search }) {
  const words = search.toLowerCase();
  const kept = rows.filter((row) => row.role === shelf && `${row.title} ${row.name}`.toLowerCase().includes(words));
  const key = { name: "title", year: "year" }[order];
  if (!key) return kept;
  const compare = (a, b) => (sortable(a[key]) < sortable(b[key]) ? -1 : Number(sortable(a[key]) > sortable(b[key])));
  return kept.sort((a, b) => (down ? compare(b, a) : compare(a, b)));
}

export const power = (value) => (value === null ? "–" : value.toFixed(2));

/** How many times as fast; where half of the rounds lie around 1, no gain and no loss is known. */
export function times(gain, quartiles) {
  if (gain === null) return "not measured";
  const [low, high] = quartiles;
  return low <= 1 && 1 <= high ? "≈ 1 ×" : `${gain.toFixed(2)} ×`;
}

/** An exponent with its interval. */
export const within = (value, interval) => (value === null ? "–" : `${power(value)} (${interval.map(power).join(" to ")})`);
