// The wall's bytes, order, filter and words: the mirror of attnlab_widgets/wall/bytes.py, and no DOM.
import { level } from "./colours.js";

export const FIRST = "full"; // what the others are compared with
import { reader } from "./quantization.js";

const PLAIN = Float32Array.from({ length: 256 }, (_, code) => (Math.max(0, code - 1) / 254) ** 2);
const SIGNED = Float32Array.from({ length: 256 }, (_, code) => {
  const share = code === 0 ? 0 : (code - 128) / 127;
  return Math.sign(share) * share * share;
});

export const setName = (weights, causal, n) => `${weights} ${causal ? "causal" : "both"} ${n}`;

/** All heads of a tile: {h, n, m, weights, masked, signed, exact, how}; `why` where there are none. */
export function openTile(buffer, header) {
  if (header.why) return header;
  const { at, h, n, m, signed } = header;
  const next = reader(buffer, at);
  const scales = next("f4", h * n);
  const codes = next("u1", h * n * m);
  const table = signed ? SIGNED : PLAIN;
  const weights = new Float32Array(h * n * m);
  const masked = new Uint8Array(h * n * m);
  for (let cell = 0; cell < codes.length; cell += 1) {
    weights[cell] = table[codes[cell]] * scales[Math.floor(cell / m)];
    masked[cell] = codes[cell] === 0 ? 1 : 0;
  }
  return { ...header, weights, masked };
}

/** One head, or the mean of all (null); a tile without heads has one map. Masked is masked in all. */
export function mapOf(tile, head) {
  const { h, n, m, signed } = tile;
  const size = n * m;
  let values = new Float32Array(size);
  let masked = new Uint8Array(size);
  if (head !== null && h > 1) {
    values = tile.weights.subarray(head * size, (head + 1) * size);
    masked = tile.masked.subarray(head * size, (head + 1) * size);
  } else {
    masked.fill(1);
    for (let at = 0; at < h * size; at += 1) {
      values[at % size] += tile.weights[at] / h;
      masked[at % size] &= tile.masked[at];
    }
  }
  const alone = onlyKeys({ n, m, values, masked });
  let largest = 0;
  values.forEach((value, at) => {
    if (!alone.includes(at)) largest = Math.max(largest, Math.abs(value));
  });
  const top = topOf(largest, signed);
  return { n, m, values, masked, signed, alone, top, levels: Uint8Array.from(values, (value) => level(value, top, signed)) };
}

/**
 * The cells that are the only key of their query, with all of its weight, as in the first row of a
 * causal map: they cannot be other than 1, are outlined and stay out of the scale.
 */
export function onlyKeys({ n, m, values, masked }) {
  const found = [];
  for (let i = 0; i < n; i += 1) {
    const free = [];
    for (let at = i * m; at < (i + 1) * m && free.length < 2; at += 1) if (!masked[at]) free.push(at);
    if (free.length === 1 && Math.abs(values[free[0]] - 1) < 1e-3) found.push(free[0]);
  }
  return found;
}

/** The weight at the end of the scale of colours: 1; of a map with both signs, or beyond 1, its largest. */
export const topOf = (largest, signed) => (signed || largest > 1.005 ? largest : 1);

/** What is said of a map whose scale of colours is not that of the legend; "" of all others. */
export const scaleSaid = ({ signed, top }) => (signed ? `±${three(top)}` : top === 1 ? "" : `to ${three(top)}`);

/** Pairs that are not masked. */
export const pairsOf = ({ masked }) => masked.reduce((sum, one) => sum + 1 - one, 0);

const COMPARE = {
  family: () => 0,
  year: (a, b) => a.year - b.year,
  name: (a, b) => a.title.localeCompare(b.title),
};

/** The tiles that pass the filter, full attention first, then in the chosen order; costs are those at place `at`. */
export function arranged(tiles, { order, family, seeing, at }) {
  const kept = tiles.filter((tile) => {
    if (family && tile.family !== family) return false;
    if (seeing === "few") return tile.few;
    if (seeing === "causal") return tile.causal !== "never";
    if (seeing === "both sides") return tile.causal !== "always";
    return true;
  });
  const compare = order === "cost" ? (a, b) => a.time[at] - b.time[at] : COMPARE[order];
  return kept.sort((a, b) => (b.name === FIRST) - (a.name === FIRST) || compare(a, b));
}

/** The pages of one role of the other shelves, in the chosen order. */
export function arrangedAround(pages, role, order) {
  const kept = pages.filter((page) => page.role === role);
  return COMPARE[order] ? kept.sort(COMPARE[order]) : kept;
}

/** A token without the sign for the space before it, where there is more to it. */
export const word = (token) => (token.length > 1 ? token.replace(/^␣/, "") : token);

/** A number in three digits with its prefix: 2.20 T, 98.3 k, 512. */
export function short(number) {
  const names = ["", " k", " M", " G", " T", " P"];
  let step = 0;
  let rest = number;
  while (rest >= 999.5 && step < names.length - 1) {
    rest /= 1000;
    step += 1;
  }
  const digits = step === 0 ? 0 : Math.min(2, Math.max(0, 2 - Math.floor(Math.log10(rest))));
  return `${rest.toFixed(digits)}${names[step]}`;
}

export const flops = (number) => `${short(number)}${number < 999.5 ? " " : ""}FLOPs`;

/** Elements of four bytes each. */
export const bytes = (elements) => `${short(4 * elements)}${4 * elements < 999.5 ? " " : ""}B`;

/** A share in two digits: 0.014 %, 38 %, 900 %. */
export const percent = (share) => `${Number((100 * share).toPrecision(2))} %`;

/** A title without what stands in brackets or after a colon. */
export const shortTitle = (title) => title.replace(/(: | \().*$/, "");

export const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

/** What the slider stands for: a prefix, the sentence, or a length beyond it. */
export function lengthSaid(length, n) {
  if (length < n) return `the first ${length} of ${n} tokens`;
  if (length === n) return `${n} tokens`;
  return `${grouped(length)} tokens`;
}

/** What one position takes from another, as a sentence. */
export function readAloud(title, said, names, map, i, j) {
  const from = j < map.n ? `“${names[j]}”` : `summary ${j - map.n + 1}`;
  const at = i * map.m + j;
  if (map.masked[at]) return `${title}, ${said}: “${names[i]}” may not attend to ${from}: the pair is masked`;
  return `${title}, ${said}: “${names[i]}” takes ${three(map.values[at])} from ${from}`;
}

export function three(value) {
  if (value === 0) return "0";
  const digits = Math.min(4, Math.max(2, 1 - Math.floor(Math.log10(Math.abs(value)))));
  return value.toFixed(digits).replace("-", "−");
}

/** Of each query the key with the largest weight: [i, j, weight], masked rows left out. */
export function strongestKeys(map) {
  const found = [];
  for (let i = 0; i < map.n; i += 1) {
    let best = -1;
    for (let j = 0; j < map.m; j += 1) {
      const at = i * map.m + j;
      if (!map.masked[at] && (best < 0 || Math.abs(map.values[at]) > Math.abs(map.values[i * map.m + best]))) best = j;
    }
    if (best >= 0) found.push([i, best, map.values[i * map.m + best]]);
  }
  return found;
}

/** Of a log–log plot: the place of a value between two powers of ten, 0 to 1. */
export function onScale(value, low, high) {
  return (Math.log10(value) - Math.log10(low)) / (Math.log10(high) - Math.log10(low));
}
