// What points that lie together have in common, against all points of the map.
import { KINDS, kindsOf } from "#lib/tokens.js";
import { keysOf } from "./space.js";

const LEAST = 0.06; // of the cluster: a rarer value is left out
const LIFT = 1.3; // times as frequent as on the map
const FARTHEST = 16; // tokens away, for attention by distance

/** How often each value stands among some rows, as shares. */
function shares(values, rows, count) {
  const out = new Float64Array(count);
  for (const row of rows) out[values[row]] += 1 / rows.length;
  return out;
}

/** The values that are over-represented in the cluster, the clearest first. */
export function over(cluster, map) {
  return [...cluster.keys()]
    .filter((value) => cluster[value] >= LEAST && cluster[value] >= LIFT * map[value])
    .map((value) => ({ value, share: cluster[value], map: map[value] }))
    .sort((a, b) => b.share - b.map - (a.share - a.map));
}

/** The run of positions that the cluster has most beyond the map: [first, last]. */
export function run(cluster, map) {
  let [best, from, sum, found] = [0, 0, 0, null];
  for (let at = 0; at < cluster.length; at += 1) {
    if (sum <= 0) [sum, from] = [0, at];
    sum += cluster[at] - map[at];
    if (sum > best) [best, found] = [sum, [from, at]];
  }
  if (!found) return null;
  const total = (all) => all.slice(found[0], found[1] + 1).reduce((a, b) => a + b, 0);
  const [share, mapped] = [total(cluster), total(map)];
  return share >= LIFT * mapped ? { first: found[0], last: found[1], share, map: mapped } : null;
}

/** What the members share: [{what, name, share, map}], shares of the cluster and of the map. */
export function common(members, { q, k }, modulo) {
  const sides = [[q, members.query], [k, members.key]].filter(([, rows]) => rows.length);
  const total = members.query.length + members.key.length;
  /** Shares over both sides together, of the cluster and of the same sides of the map. */
  const both = (valuesOf, count) => [true, false].map((inside) => sides.reduce((sum, [set, rows]) => {
    const values = valuesOf(set);
    const all = inside ? rows : Array.from(values.keys());
    shares(values, all, count).forEach((share, at) => (sum[at] += (share * rows.length) / total));
    return sum;
  }, new Float64Array(count)));
  const names = [...new Set(sides.flatMap(([set]) => set.texts.map(([short]) => short)))];
  const numbers = new Map(names.map((name, at) => [name, at]));
  const texts = (set) => { const place = set.texts.map(([short]) => numbers.get(short)); return set.text.map((at) => place[at]); };
  const longest = 1 + sides.reduce((most, [set]) => Math.max(most, set.position.reduce((a, b) => Math.max(a, b), 0)), 0);
  const found = [];
  const add = (what, list, name) => list.forEach(({ value, share, map }) => found.push({ what, name: name(value), share, map }));
  add("token", over(...both(texts, names.length)).slice(0, 4), (value) => names[value]);
  add("kind", over(...both(kindsOf, KINDS.length)).slice(0, 2), (value) => KINDS[value]);
  const positions = run(...both((set) => set.position, longest));
  if (positions) found.push({ what: "position", name: positions.first === positions.last ? String(positions.first) : `${positions.first} to ${positions.last}`, ...positions });
  add(`position modulo ${modulo}`, over(...both((set) => set.position.map((p) => p % modulo), modulo)).slice(0, 2), String);
  return found;
}

/** Mean weight of the strongest keys by how far they are from their query: [{distance, w}]. */
export function byDistance(queries, attention, { q, k }) {
  const sums = new Map();
  for (const row of queries) {
    for (const key of keysOf(attention, row)) {
      const apart = Math.max(-FARTHEST, Math.min(FARTHEST, k.position[key.row] - q.position[row]));
      sums.set(apart, (sums.get(apart) ?? 0) + key.w / queries.length);
    }
  }
  const reach = [...sums.keys()];
  const [low, high] = [Math.min(0, ...reach), Math.max(0, ...reach)];
  return Array.from({ length: high - low + 1 }, (_, i) => ({ distance: low + i, w: sums.get(low + i) ?? 0, beyond: Math.abs(low + i) === FARTHEST }));
}
