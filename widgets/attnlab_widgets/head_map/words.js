// What is said of the heads; words.py says the same.
import { strongest } from "./study.js";

export const called = ([layer, head]) => `head ${head} of layer ${layer}`;
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const many = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
export const fits = (stress) => (stress < 0.1 ? "well" : stress < 0.2 ? "roughly" : "poorly");

/** All heads, the chosen one, its query, and how far the plane can be trusted. */
export function announcement(found, at, query, order) {
  return [ofAll(found), ofOne(found, at, order), ofQuery(found, at, query), ofPlane(found)].filter(Boolean).join(" ");
}

/** The looks that occur as [look, count], the most frequent first. */
export function counted({ kinds }) {
  const counts = new Map();
  for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
}

function ofAll(found) {
  const listed = counted(found).map(([kind, count]) => `${count} “${found.looks[kind]}”`).join(", ");
  const layers = new Set(found.heads.map(([layer]) => layer)).size;
  return `${many(found.count, "head")} of ${many(layers, "layer")}: ${listed}.`;
}

function ofOne({ heads, kinds, looks, importance, divergence, count }, at, order) {
  const ahead = importance?.filter((one) => one > importance[at]).length;
  const said = `${capital(called(heads[at]))}, “${looks[kinds[at]]}”${importance ? `, number ${ahead + 1} by importance` : ""}`;
  if (!order.length) return `${said}, is the only one.`;
  const [near, far] = [order[0], order[order.length - 1]];
  const number = (other) => divergence[at * count + other].toFixed(2);
  return `${said}, attends most like ${called(heads[near])} (divergence ${number(near)} of at most ${Math.LN2.toFixed(2)} nats) and least like ${called(heads[far])} (${number(far)}).`;
}

export function ofQuery(found, at, query) {
  const name = `“${found.tokens[query]}” (${query})`;
  const best = strongest(found, at, query);
  return best ? `${name} attends most to “${found.tokens[best.key]}” (${best.key}), ${best.weight.toFixed(2)}.` : `${name} attends to nothing.`;
}

function ofPlane({ count, stress }) {
  return count < 3 ? "" : `Stress ${stress.toFixed(2)}: the plane shows the distances ${fits(stress)}.`;
}
