// The survey's rows: their order and filter, the mirror of `shown` in __init__.py, and no DOM.

const KEYS = { name: "title", claimed: "formula" };
const OF_FORMS = ["forward", "both", "share"];
const sortable = (value) => (typeof value === "string" ? value.toLowerCase() : Number(value));

/** The rows that pass the filter, in order; those without a value come last. */
export function arranged(rows, { order, down, family, search }) {
  const kept = passing(rows, family, search);
  return OF_FORMS.includes(order) ? kept : sorted(kept, KEYS[order] ?? order, down);
}

function passing(rows, family, search) {
  const words = search.toLowerCase();
  return rows.filter((row) => ["", row.family].includes(family) && `${row.title} ${row.name}`.toLowerCase().includes(words));
}

function sorted(kept, key, down) {
  const [found, rest] = [kept.filter((row) => row[key] !== null), kept.filter((row) => row[key] === null)];
  const compare = (a, b) => (sortable(a[key]) < sortable(b[key]) ? -1 : Number(sortable(a[key]) > sortable(b[key])));
  return [...found.sort((a, b) => (down ? compare(b, a) : compare(a, b))), ...rest];
}

/** The forms that were timed on a GPU: the mirror of on_a_gpu.py. */
export function arrangedForms(rows, { order, down, family, search }) {
  const kept = passing(rows, family, search);
  return ["name", "measured", ...OF_FORMS].includes(order) ? sorted(kept, order, down) : kept;
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

const commas = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
const timeAt = (seconds, n) => (seconds === null ? "–" : `${Number((1e3 * seconds).toPrecision(3))} ms at ${commas(n)}`);
const exponent = (value, interval) => (value === null ? "–" : value.toFixed(2) + (interval ? ` (${interval.map(power).join(" to ")})` : ""));

/** A row of a GPU in words, the mirror of `cells` in on_a_gpu.py. */
export function formCells(row) {
  return [
    row.name,
    exponent(row.cpu, row.cpu_interval),
    exponent(row.measured, row.interval),
    timeAt(row.forward, row.forward_n),
    timeAt(row.both, row.both_n),
    row.beside || "–",
    row.starts.map(([, count]) => (count === null ? "not counted" : commas(count))).join(" → ") || "–",
    row.share === null ? "–" : `${(100 * row.share).toFixed(1)} %`,
  ];
}
