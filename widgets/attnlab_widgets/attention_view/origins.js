// From which earlier outputs the scores of one query come: parts at the key and at the query.

/** What origins.py wrote: `key` and `query` (P, k), each part less its mean over the allowed keys. */
export function openOrigins(buffer, { place, parts, keys }, m) {
  const found = keys ?? Array.from({ length: m }, (_, j) => j);
  const count = parts.length * found.length;
  const side = (at) => new Float32Array(buffer, 4 * at * count, count);
  return { place, parts, keys: found, key: side(0), query: side(1) };
}

/** The parts of one key as rows {name, key, query}, and their sums; null for a key that was not kept. */
export function partsOf(origins, key) {
  const at = origins.keys.indexOf(key);
  if (at < 0) return null;
  const of = (side, p) => side[p * origins.keys.length + at];
  const rows = origins.parts.map((name, p) => ({ name, key: of(origins.key, p), query: of(origins.query, p) }));
  return { rows, sum: total(rows, "score, less the mean") };
}

/** At most `most` rows, in their order: the largest ones, and the sum of all others. */
export function fewest(rows, most) {
  if (rows.length <= most) return rows;
  const size = ({ key, query }) => Math.max(Math.abs(key), Math.abs(query));
  const kept = new Set([...rows].sort((a, b) => size(b) - size(a)).slice(0, most - 1));
  const others = rows.filter((row) => !kept.has(row));
  return [...rows.filter((row) => kept.has(row)), total(others, `all ${others.length} others`)];
}

function total(rows, name) {
  const sum = (side) => rows.reduce((all, row) => all + row[side], 0);
  return { name, key: sum("key"), query: sum("query") };
}

const SMALLEST = 0.005; // what is written as 0.01

/** The row with the largest part on a side in the direction `way`, 1 or -1; null where no part of it reaches 0.01. */
export function mostOf(rows, side, way) {
  const best = rows.reduce((a, b) => (way * b[side] > way * a[side] ? b : a));
  return way * best[side] < SMALLEST ? null : best;
}

/** What is said of a score that lies above or below the mean: the largest parts that take it there, as strings and {name, value}. */
export function led(rows, sum) {
  const way = sum.key < 0 ? -1 : 1;
  const moves = way < 0 ? "lowers" : "raises";
  const found = ["key", "query"].map((side) => ({ side, row: mostOf(rows, side, way) }));
  const known = found.filter(({ row }) => row);
  if (!known.length) return [`Nothing ${moves} it by as much as 0.01.`];
  const named = known.map(({ side, row }) => [{ name: row.name, value: row[side] }, ` at the ${side}`]);
  const missing = found.filter(({ row }) => !row).map(({ side }) => `; nothing at the ${side} ${moves} it by as much as 0.01`);
  return [`The largest part that ${moves} it is `, ...named[0], ...(named[1] ? [", and ", ...named[1]] : []), ...missing, "."];
}
