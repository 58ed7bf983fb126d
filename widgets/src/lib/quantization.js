// Bytes to weights: the mirror of attnlab_widgets/quantization.py.

const PLAIN = Float32Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);
const SIGNED = Float32Array.from({ length: 256 }, (_, code) => {
  const share = (code - 128) / 127;
  return Math.sign(share) * share * share;
});

export const levels = (signed) => (signed ? 127 : 255);

export const table = (signed) => (signed ? SIGNED : PLAIN);

/** How far a weight that was read may be from the one that was written. */
export function errorBound(weight, largest, signed) {
  const steps = levels(signed);
  return Math.sqrt(Math.abs(weight) * largest) / steps + largest / (4 * steps * steps);
}

/** A reader of typed arrays, one behind the other, each starting at a multiple of four. */
export function reader(buffer, start) {
  let at = start;
  const bytesOf = { f4: 4, u4: 4, u1: 1 };
  const kinds = { f4: Float32Array, u4: Uint32Array, u1: Uint8Array };
  return (kind, count) => {
    const part = new kinds[kind](buffer, at, count);
    const size = count * bytesOf[kind];
    at += size + ((4 - (size % 4)) % 4);
    return part;
  };
}

/**
 * The arrays of one layer: {h, n, m, signed, norms, mask, first, scales, codes} or its kept form;
 * `left` is what the weights of each row leave of one, where they leave something.
 */
export function openLayer(buffer, header, { h, n, m }) {
  const next = reader(buffer, header.at);
  const norms = header.norms ? next("f4", h * m) : null;
  const base = { h, n, m, signed: header.signed, whole: header.whole, norms };
  const opened = header.whole
    ? { ...base, first: next("f4", h * n), scales: next("f4", h * n), codes: next("u1", h * n * m) }
    : { ...base, ...openKept(next, header, { h, n, m }) };
  opened.left = header.left === undefined ? null : new Float32Array(buffer, header.left, h * n);
  opened.mask = header.mask ? openMask(header.mask, new Uint8Array(buffer, header.mask.at ?? 0), n, m) : null;
  return opened;
}

function openKept(next, { kept, side, planes, norms }, { h, n, m }) {
  const rows = Math.ceil(n / side);
  const columns = Math.ceil(m / side);
  const [first, sums] = [next("f4", h * n), next("f4", h * n)];
  const weightedSums = norms ? next("f4", h * n) : sums;
  const [scales, tileScales] = [next("f4", h * n), next("f4", h * rows)];
  const places = new Uint32Array(h * n * kept);
  for (let plane = 0; plane < planes; plane += 1) {
    next("u1", places.length).forEach((byte, at) => (places[at] |= byte << (8 * plane)));
  }
  const codes = next("u1", places.length).slice();
  for (let at = 0; at < codes.length; at += 1) codes[at] = (at % kept ? codes[at - 1] : 0) - codes[at];
  return { kept, side, rows, columns, first, sums, weightedSums, scales, tileScales, places, codes, tiles: next("u1", h * rows * columns) };
}

/**
 * A mask from its rule and bits: `allowed(head, i, j)`, and whether any pair of a block is allowed;
 * `shared` where it is the same for all heads.
 */
export function openMask({ causal, heads, at }, packed, n, m) {
  const all = at === null;
  const bit = (at) => (packed[at >> 3] >> (7 - (at & 7))) & 1;
  const before = (i) => (causal === null ? m - 1 : Math.min(m - 1, i + causal));
  function allowed(head, i, j) {
    if (j > before(i)) return false;
    return all || Boolean(bit(heads ? (Math.min(head, heads - 1) * n + i) * m + j : j));
  }
  function any(head, i0, i1, j0, j1) {
    // Without bits of its own, no query may attend to more than the last.
    for (let i = heads ? i0 : i1 - 1; i < i1; i += 1) {
      for (let j = j0; j < j1; j += 1) if (allowed(head, i, j)) return true;
    }
    return false;
  }
  return { shared: heads < 2, allowed, any };
}

/** The trait's bytes (a DataView, a typed array or an ArrayBuffer) as an aligned ArrayBuffer. */
export function asBuffer(data) {
  if (data instanceof ArrayBuffer) return data;
  const { buffer, byteOffset, byteLength } = data;
  if (byteOffset % 4 === 0 && byteLength % 4 === 0) {
    if (byteOffset === 0 && byteLength === buffer.byteLength) return buffer;
  }
  return buffer.slice(byteOffset, byteOffset + byteLength);
}
