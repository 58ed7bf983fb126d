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

/** The arrays of one layer: {h, n, m, signed, norms?, first, scales, codes} or its kept form. */
export function openLayer(buffer, header, { h, n, m }) {
  const next = reader(buffer, header.at);
  const norms = header.norms ? next("f4", h * m) : null;
  const base = { h, n, m, signed: header.signed, whole: header.whole, norms };
  if (header.whole) {
    return { ...base, first: next("f4", h * n), scales: next("f4", h * n), codes: next("u1", h * n * m) };
  }
  const { kept, side } = header;
  const rows = Math.ceil(n / side);
  const columns = Math.ceil(m / side);
  return {
    ...base,
    kept,
    side,
    rows,
    columns,
    first: next("f4", h * n),
    sums: next("f4", h * n),
    weightedSums: next("f4", h * n),
    scales: next("f4", h * n),
    tileScales: next("f4", h * rows),
    places: next("u4", h * n * kept),
    codes: next("u1", h * n * kept),
    tiles: next("u1", h * rows * columns),
  };
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
