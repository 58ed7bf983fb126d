// The colours of points by what they stand for, and the legend that says so. Queries and keys differ
// in shape everywhere; on scales they differ in hue, too.
import { mixed, parse } from "./colours.js";
import { frequencies, KINDS, kindsOf } from "./tokens.js";

const RAMPS = {
  light: { query: ["#7fc0e8", "#0072b2", "#0a2a4a"], key: ["#f7ab73", "#d55e00", "#5a2400"] },
  dark: { query: ["#255f8c", "#56b4e9", "#e2f3ff"], key: ["#8f4814", "#f08a3c", "#ffe9d2"] },
};
/** Ten colours for a few names, told apart on either paper. */
export const FEW = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b0568f", "#8a5a00", "#45b0e6", "#5a4fcf", "#c79a00", "#9c1f4a", "#00594c"],
  dark: ["#56b4e9", "#f08a3c", "#2ec49a", "#e39cc6", "#d9a441", "#9fd8ff", "#a79cff", "#f0e06a", "#ff8fab", "#8fe0d2"],
};
const OTHERS = { light: "#a3aab2", dark: "#646d78" };
export const MOST = 10;
const TOKENS = 8;

export const COLOURS = {
  side: "query or key", position: "position", modulo: "position modulo", token: "token (most frequent)",
  kind: "kind of token", norm: "norm of the vector", frequency: "frequency of the token",
  class: "class", value_norm: "norm of the value",
};

/** What the points of one head are coloured by: a value for each side and row. */
export function valuesOf(mode, { q, k, norms, modulo }) {
  const sides = { query: q, key: k };
  const each = (make) => ({ query: make(q, "query"), key: make(k, "key") });
  if (mode === "side") return { few: ["query", "key"], at: each((set, side) => new Uint8Array(set.n).fill(side === "key" ? 1 : 0)) };
  if (mode === "modulo") return modular(each, modulo);
  if (mode === "position") return scaled(each((set) => Float32Array.from(set.position)), "position");
  if (mode === "frequency") {
    return scaled(each((set) => { const { counts } = frequencies(set); return Float32Array.from(set.text, (at) => Math.log10(counts[at])); }), "times", (x) => String(Math.round(10 ** x)));
  }
  if (mode === "kind") return { few: KINDS, at: each(kindsOf) };
  if (mode === "class") return { few: sides.query.classes.slice(0, MOST), at: each((set) => set.labels) };
  if (mode === "token") return ofTokens(each, q);
  const ranges = norms.ranges;
  const values = mode === "norm" ? { query: norms.query, key: norms.key } : { query: new Float32Array(q.n).fill(NaN), key: norms.value };
  const ends = mode === "norm" ? { query: ranges.query, key: ranges.key } : { key: ranges.value };
  return { share: values, ends: Object.fromEntries(Object.entries(ends).map(([side, two]) => [side, two.map((x) => x.toPrecision(2))])), unit: "norm" };
}

function modular(each, modulo) {
  const at = each((set) => Uint16Array.from(set.position, (p) => p % modulo));
  if (modulo <= MOST) return { few: Array.from({ length: modulo }, (_, i) => String(i)), at };
  return scaled({ query: Float32Array.from(at.query), key: Float32Array.from(at.key) }, `position modulo ${modulo}`);
}

function ofTokens(each, q) {
  const { order } = frequencies(q);
  const names = order.slice(0, TOKENS).map((at) => q.texts[at][0]);
  return { few: names, at: each((set) => {
    const place = set.texts.map(([short]) => { const at = names.indexOf(short); return at < 0 ? 255 : at; });
    return Uint8Array.from(set.text, (at) => place[at]);
  }) };
}

function scaled(values, unit, said = String) {
  const all = [values.query, values.key];
  const low = Math.min(...all.map((one) => one.reduce((a, b) => Math.min(a, b), Infinity)));
  const high = Math.max(...all.map((one) => one.reduce((a, b) => Math.max(a, b), -Infinity)));
  const share = (one) => one.map((x) => (x - low) / (high - low || 1));
  const ends = [said(low), said(high)];
  return { share: { query: share(values.query), key: share(values.key) }, ends: { query: ends, key: ends }, unit };
}

/** Four bytes for each point, queries before keys; the fourth says which of both (0 or 255). */
export function coloured(values, dark) {
  const theme = dark ? "dark" : "light";
  const [n, m] = [values.at ?? values.share].flatMap(({ query, key }) => [query.length, key.length]);
  const out = new Uint8Array(4 * (n + m));
  const few = FEW[theme].map(parse);
  const others = parse(OTHERS[theme]);
  for (const [side, from, count] of [["query", 0, n], ["key", n, m]]) {
    const ramp = values.share && Array.from({ length: 64 }, (_, i) => mixed(RAMPS[theme][side], i / 63));
    for (let i = 0; i < count; i += 1) {
      const share = ramp ? values.share[side][i] : 0;
      const rgb = ramp ? (Number.isNaN(share) ? others : ramp[Math.round(63 * share)]) : few[values.at[side][i]] ?? others;
      out.set(rgb, 4 * (from + i));
      out[4 * (from + i) + 3] = side === "key" ? 255 : 0;
    }
  }
  return out;
}

/** The legend: [{name, colour, side}] of a few, or {ramps} of a scale. */
export function legendOf(values, dark) {
  const theme = dark ? "dark" : "light";
  if (values.share) return { unit: values.unit, ramps: Object.entries(values.ends).map(([side, ends]) => ({ side, ends, colours: RAMPS[theme][side] })) };
  const used = new Set([...values.at.query, ...values.at.key]);
  const few = values.few.map((name, at) => ({ name, at, colour: FEW[theme][at] })).filter(({ at }) => used.has(at));
  const rest = [...used].some((at) => at >= values.few.length);
  return { few: rest ? [...few, { name: "others", colour: OTHERS[theme], at: 255 }] : few };
}
