// What follows from a mask of n × n: counts, blocks, the receptive field, softmax rows, and what was painted.

export const MOST = 128;

export const pairsOf = (mask) => mask.reduce((sum, one) => sum + one, 0);

export function maskedRows(mask, n) {
  const found = [];
  for (let i = 0; i < n; i += 1) if (!mask.subarray(i * n, (i + 1) * n).includes(1)) found.push(i);
  return found;
}

export function keysOf(mask, n, i) {
  const keys = [];
  for (let j = 0; j < n; j += 1) if (mask[i * n + j]) keys.push(j);
  return keys;
}

/** Places as a short text: 0, 3–7. */
export function runs(places) {
  const parts = [];
  for (const place of places) {
    const last = parts.at(-1);
    if (last && place === last[1] + 1) last[1] = place;
    else parts.push([place, place]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

/** Each block's kind, "full", "mixed" or "empty", row by row, and how many there are of each. */
export function blocksOf(mask, n, size) {
  const across = Math.ceil(n / size);
  const kinds = [];
  const counts = { full: 0, mixed: 0, empty: 0 };
  for (let top = 0; top < n; top += size) {
    for (let left = 0; left < n; left += size) {
      const [bottom, right] = [Math.min(n, top + size), Math.min(n, left + size)];
      let pairs = 0;
      for (let i = top; i < bottom; i += 1) for (let j = left; j < right; j += 1) pairs += mask[i * n + j];
      const kind = pairs === 0 ? "empty" : pairs === (bottom - top) * (right - left) ? "full" : "mixed";
      kinds.push(kind);
      counts[kind] += 1;
    }
  }
  return { across, kinds, counts };
}

// ---- the receptive field

/**
 * Which inputs j can influence output i after L layers: the mask `frames[L − 1]`. `layers` is the
 * smallest L after which more layers add nothing, null where there is none (without residuals the
 * frames may alternate for ever).
 */
export function receptiveField(mask, n, residual, most = 2 * MOST) {
  const wide = Math.ceil(n / 32);
  let known = new Uint32Array(n * wide);
  for (let i = 0; i < n; i += 1) known[i * wide + (i >> 5)] |= 1 << (i & 31);
  const sees = Array.from({ length: n }, (_, i) => {
    const keys = keysOf(mask, n, i);
    return residual && !keys.includes(i) ? [...keys, i] : keys;
  });
  const frames = [];
  for (let layer = 1; layer <= most; layer += 1) {
    const next = new Uint32Array(n * wide);
    sees.forEach((keys, i) => {
      for (const j of keys) for (let w = 0; w < wide; w += 1) next[i * wide + w] |= known[j * wide + w];
    });
    const same = layer > 1 && next.every((word, at) => word === known[at]);
    if (same) return summed(frames, n, layer - 1);
    frames.push(unpacked(next, n, wide));
    known = next;
  }
  return summed(frames, n, null);
}

function unpacked(known, n, wide) {
  const mask = new Uint8Array(n * n);
  for (let i = 0; i < n; i += 1) for (let j = 0; j < n; j += 1) mask[i * n + j] = (known[i * wide + (j >> 5)] >>> (j & 31)) & 1;
  return mask;
}

function summed(frames, n, layers) {
  const last = frames.at(-1);
  let past = true;
  for (let i = 0; i < n; i += 1) for (let j = 0; j <= i; j += 1) past &&= Boolean(last[i * n + j]);
  return { frames, layers, complete: last.every(Boolean), completePast: past };
}

const counted = (layers) => (layers === 1 ? "1 layer" : `${layers} layers`);

export function receptiveFieldText({ layers, complete, completePast, frames }, n) {
  if (layers === null) return `what is known still changes after ${counted(frames.length)}, without ever settling`;
  if (complete) return `everything is connected after ${counted(layers)}`;
  if (completePast) return `every position knows its whole past after ${counted(layers)}`;
  const share = percent(pairsOf(frames.at(-1)) / (n * n));
  return `more than ${counted(layers)} add${layers === 1 ? "s" : ""} nothing: ${share} of the pairs are connected, the others never`;
}

// ---- softmax

/** Scores from −1 to 1 that look like chance and are the same everywhere. */
export function exampleScore(i, j) {
  let x = Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(j + 1, 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 15), 0x2c1b3c6d);
  x = Math.imul(x ^ (x >>> 12), 0x297a2d39);
  return (2 * ((x ^ (x >>> 15)) >>> 0)) / 2 ** 32 - 1;
}

export const SHARPNESS = { sharp: 3, flat: 0.7, equal: 0 };

/** Row i of the weights; all zero where it attends to nothing. */
export function softmaxRow(score, mask, n, i) {
  const weights = new Float64Array(n);
  const keys = keysOf(mask, n, i);
  if (!keys.length) return weights;
  const largest = Math.max(...keys.map((j) => score(i, j)));
  let total = 0;
  for (const j of keys) total += weights[j] = Math.exp(score(i, j) - largest);
  return weights.map((weight) => weight / total);
}

// ---- painting: cells that were set by hand lie over what the expression says

/** (i, j, allowed) per cell, three bytes each, as a map of "i,j" → allowed. */
export function painted(view) {
  const bytes = view.byteLength ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(0);
  const cells = new Map();
  for (let at = 0; at + 2 < bytes.length; at += 3) cells.set(bytes[at] * MOST + bytes[at + 1], bytes[at + 2]);
  return cells;
}

export function asBytes(cells) {
  const bytes = new Uint8Array(3 * cells.size);
  [...cells].sort((a, b) => a[0] - b[0]).forEach(([place, allowed], at) => {
    bytes.set([Math.floor(place / MOST), place % MOST, allowed], 3 * at);
  });
  return new DataView(bytes.buffer);
}

/** The mask under the painted cells; those beyond n wait until n grows. */
export function overlaid(mask, n, cells) {
  const result = mask.slice();
  for (const [place, allowed] of cells) {
    const [i, j] = [Math.floor(place / MOST), place % MOST];
    if (i < n && j < n) result[i * n + j] = allowed;
  }
  return result;
}

/** The expression with what was painted, as one expression. */
export function paintedCode(expression, base, mask, n) {
  const removed = cellsCode(n, (at) => base[at] && !mask[at]);
  const added = cellsCode(n, (at) => !base[at] && mask[at]);
  const kept = removed ? `${enclosed(expression)} & ~(${removed})` : expression;
  if (!added) return kept;
  return removed ? `${kept} | ${added}` : `${enclosed(expression)} | ${added}`;
}

const enclosed = (text) => (/^~?\w+\([^()]*\)$/.test(text) ? text : `(${text})`);

/** Rows that share their cells are written together. */
function cellsCode(n, chosen) {
  const groups = new Map();
  for (let i = 0; i < n; i += 1) {
    const keys = [];
    for (let j = 0; j < n; j += 1) if (chosen(i * n + j)) keys.push(j);
    const name = keys.join(", ");
    if (keys.length) groups.set(name, [...(groups.get(name) ?? []), i]);
  }
  return [...groups].map(([keys, rows]) => `places([${rows.join(", ")}], of="row") & places([${keys}], of="column")`).join(" | ");
}

// ---- texts

export const percent = (share) => {
  const value = 100 * share;
  if (value === 0 || value === 100) return `${value} %`;
  return `${value > 99.9 ? "99.9" : value < 0.1 ? "0.1" : Number(value.toPrecision(3)).toFixed(value < 10 ? 1 : 0).replace(/\.0$/, "")} %`;
};

export function maskedRowsText(rows) {
  if (!rows.length) return "";
  if (rows.length === 1) return `row ${rows[0]} attends to nothing: its output is zero`;
  return `rows ${runs(rows)} attend to nothing: their outputs are zero`;
}
