// A query-key space from its bytes: bytes.py writes them. Every block is inflated on its own,
// so that a head costs nothing before it is looked at.
import { unzlibSync } from "fflate";

const STEPS = 1023;
const WEIGHT_STEPS = 31;
const NORM_STEPS = 7;

export const bytesOf = (view) => new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);

export const inflated = (data, [start, size]) => unzlibSync(data.subarray(start, start + size));

/** Low bytes, then high bytes, as 16-bit numbers. */
export function joined(bytes, count) {
  const words = new Uint16Array(count);
  for (let i = 0; i < count; i += 1) words[i] = bytes[i] | (bytes[count + i] << 8);
  return words;
}

/** Three coordinates for each point, from -1 to 1: the queries, then the keys. */
export function placesOf(data, at, count, dimensions) {
  const words = joined(inflated(data, at), count * dimensions);
  const out = new Float32Array(3 * count);
  for (let axis = 0; axis < dimensions; axis += 1) {
    for (let i = 0; i < count; i += 1) out[3 * i + axis] = (words[axis * count + i] - STEPS - 1) / STEPS;
  }
  return out;
}

/** The tokens of queries or of keys: texts, sequences, positions; rows by sequence. */
export function tokenSet(data, described) {
  const { n, texts } = described;
  const block = inflated(data, described.at);
  const wide = texts.length > 65535 ? 4 : 2;
  const whole = block.slice().buffer;
  const text = wide === 4 ? new Uint32Array(whole, 0, n) : new Uint16Array(whole, 0, n);
  const [sequence, position] = [0, 1].map((i) => new Uint16Array(whole.slice(n * (wide + 2 * i), n * (wide + 2 * i + 2))));
  const rows = [];
  for (let row = 0; row < n; row += 1) (rows[sequence[row]] ??= []).push(row);
  const rank = new Uint16Array(n);
  for (const one of rows) one?.forEach((row, at) => (rank[row] = at));
  const labels = described.labels && new Uint16Array(inflated(data, described.labels.at).slice().buffer);
  return {
    n, texts, text, sequence, position, rows, rank, labels,
    classes: described.labels?.names ?? [],
    images: described.images,
    short: (row) => texts[text[row]][0],
    full: (row) => texts[text[row]][1] ?? texts[text[row]][0],
  };
}

/** The strongest keys of each query, all of its own sequence: rows (-1: none) and weights. */
export function attentionOf(data, { at, k }, queries, keys) {
  const { n } = queries;
  const block = inflated(data, at);
  const back = joined(block, n * k);
  const rows = new Int32Array(n * k).fill(-1);
  const weights = new Float32Array(n * k);
  for (let i = 0; i < n; i += 1) {
    for (let one = 0; one < k; one += 1) {
      const step = block[2 * n * k + one * n + i];
      if (!step) continue;
      const place = (queries.rank[i] - back[one * n + i] + 65536) & 65535;
      rows[i * k + one] = keys.rows[queries.sequence[i]][place];
      weights[i * k + one] = (step / WEIGHT_STEPS) ** 2;
    }
  }
  return { k, rows, weights };
}

/** The keys of a query with their weights, strongest first. */
export function keysOf(attention, query) {
  const found = [];
  for (let at = query * attention.k; at < (query + 1) * attention.k; at += 1) {
    if (attention.rows[at] >= 0) found.push({ row: attention.rows[at], w: attention.weights[at] });
  }
  return found;
}

/** The queries of its sequence among whose strongest keys a key is, strongest first. */
export function queriesOf(attention, key, queries, keys) {
  const found = [];
  for (const row of queries.rows[keys.sequence[key]] ?? []) {
    const own = keysOf(attention, row).find((one) => one.row === key);
    if (own) found.push({ row, w: own.w });
  }
  return found.sort((a, b) => b.w - a.w);
}

/** Shares from 0 to 1 of the range of the norms: queries, keys, values. */
export function normsOf(data, { at, ranges }, n, m) {
  const block = inflated(data, at);
  const part = (from, count) => Float32Array.from(block.subarray(from, from + count), (step) => step / NORM_STEPS);
  return { query: part(0, n), key: part(n, m), value: part(n + m, m), ranges: { query: ranges[0], key: ranges[1], value: ranges[2] } };
}

export function byPositionOf(data, { at, shape }) {
  const weights = Float32Array.from(inflated(data, at), (level) => (level / 255) ** 2);
  return { weights, rows: shape[0], columns: shape[1] };
}

/** The pixels of one image, 0 to 255. */
export function imageOf(data, { at, size, colours }, sequence) {
  const [high, wide] = size;
  const one = high * wide * colours;
  return inflated(data, at).subarray(sequence * one, (sequence + 1) * one);
}
