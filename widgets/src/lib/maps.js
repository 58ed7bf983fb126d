// One head's map under the present settings, asked by row, by cell and by picture.
// Its mask, where one is known, stands beside it: see `maskPicture`.
// A map has: n, m, signed, largest, row(i) -> [{j, w}] of what is known, value(i, j) -> {w, error} or
// {below}, and picture(i0, i1, j0, j1, rows, columns): the weight of largest size per pixel.
import { errorBound, table } from "./quantization.js";

/** Settings are {hideFirst, weighted}. Rows are renormalised after either. */
export function mapOf(layer, head, settings) {
  return layer.whole ? wholeMap(layer, head, settings) : keptMap(layer, head, settings);
}

/** The weights, and by what each row was divided. */
export function decodeWhole(layer, head, { hideFirst = false, weighted = false } = {}) {
  const { n, m, codes, first, scales, norms, signed } = layer;
  const share = table(signed);
  const values = new Float32Array(n * m);
  const divisor = new Float32Array(n).fill(1);
  for (let i = 0; i < n; i += 1) {
    const scale = scales[head * n + i];
    const from = (head * n + i) * m;
    let total = 0;
    for (let j = 0; j < m; j += 1) {
      let w = j === 0 ? first[head * n + i] : scale * share[codes[from + j]];
      if (weighted) w *= norms[head * m + j];
      if (hideFirst && j === 0) w = 0;
      values[i * m + j] = w;
      total += w;
    }
    if ((weighted || hideFirst) && total > 0) {
      divisor[i] = total;
      for (let j = 0; j < m; j += 1) values[i * m + j] /= total;
    }
  }
  return { values, divisor };
}

function wholeMap(layer, head, settings) {
  const { n, m, signed, scales, norms, codes } = layer;
  const { values, divisor } = decodeWhole(layer, head, settings);
  const share = table(signed);
  return {
    ...all(values, n, m),
    signed,
    value(i, j) {
      const w = values[i * m + j];
      if (j === 0) return { w, error: 0 };
      const at = head * n + i;
      const raw = scales[at] * share[codes[at * m + j]];
      const factor = (settings.weighted ? norms[head * m + j] : 1) / divisor[i];
      return { w, error: errorBound(raw, scales[at], signed) * factor };
    },
  };
}

/** What follows from all weights (n, m) of a map. */
function all(values, n, m) {
  return {
    n,
    m,
    whole: true,
    values,
    largest: largestOf(values),
    row(i) {
      const found = [];
      for (let j = 0; j < m; j += 1) if (values[i * m + j] !== 0) found.push({ j, w: values[i * m + j] });
      return found;
    },
    column(j) {
      const found = [];
      for (let i = 0; i < n; i += 1) if (values[i * m + j] !== 0) found.push({ i, w: values[i * m + j] });
      return found;
    },
    picture: (...window) => pool(values, m, ...window),
  };
}

function keptMap(layer, head, { hideFirst = false, weighted = false }) {
  const { n, m, kept, signed, places, codes, scales, side, rows, columns, norms } = layer;
  const share = table(signed);
  const divisor = new Float32Array(n).fill(1);
  for (let i = 0; i < n && (hideFirst || weighted); i += 1) {
    const at = head * n + i;
    const sum = weighted ? layer.weightedSums[at] : layer.sums[at];
    const first = layer.first[at] * (weighted ? norms[head * m] : 1);
    const left = sum - (hideFirst ? first : 0);
    divisor[i] = left > 1e-12 ? left : 1;
  }
  const factor = (i, j) => (weighted ? norms[head * m + j] : 1) / divisor[i];
  const rawOf = (i, place) => scales[head * n + i] * share[codes[(head * n + i) * kept + place]];
  // The first key, then the kept ones.
  const one = (i, place) => {
    if (place < 0) return { j: 0, w: hideFirst ? 0 : layer.first[head * n + i] * factor(i, 0) };
    const j = places[(head * n + i) * kept + place];
    return { j, w: rawOf(i, place) * factor(i, j) };
  };
  const tiles = tilesOf(layer, head, weighted, divisor);
  let incoming = null;
  const map = {
    n,
    m,
    signed,
    whole: false,
    kept,
    side,
    tiles,
    largest: 0,
    row(i) {
      const found = [];
      for (let place = -1; place < kept; place += 1) {
        const cell = one(i, place);
        if (cell.w !== 0) found.push(cell);
      }
      return found;
    },
    column(j) {
      if (!incoming) {
        incoming = new Map();
        for (let i = 0; i < n; i += 1) {
          for (const cell of map.row(i)) {
            if (!incoming.has(cell.j)) incoming.set(cell.j, []);
            incoming.get(cell.j).push({ i, w: cell.w });
          }
        }
      }
      return incoming.get(j) ?? [];
    },
    value(i, j) {
      if (j === 0) return { w: one(i, -1).w, error: 0 };
      for (let place = 0; place < kept; place += 1) {
        if (places[(head * n + i) * kept + place] !== j) continue;
        const error = errorBound(rawOf(i, place), scales[head * n + i], signed) * factor(i, j);
        return { w: one(i, place).w, error };
      }
      return { below: Math.abs(rawOf(i, kept - 1)) * factor(i, j) };
    },
    picture(i0, i1, j0, j1, wide, high) {
      return keptPicture(map, { i0, i1, j0, j1, wide, high, rows, columns });
    },
  };
  for (let i = 0; i < n; i += 1) {
    const last = weighted ? kept : 1; // largest first, unless they are weighted
    for (let place = -1; place < last; place += 1) {
      map.largest = Math.max(map.largest, Math.abs(one(i, place).w));
    }
  }
  return map;
}

function tilesOf(layer, head, weighted, divisor) {
  const { n, m, rows, columns, side, tiles, tileScales, norms, signed } = layer;
  const share = table(signed);
  const out = new Float32Array(rows * columns);
  for (let r = 0; r < rows; r += 1) {
    let mean = 0;
    const end = Math.min(n, (r + 1) * side);
    for (let i = r * side; i < end; i += 1) mean += divisor[i] / (end - r * side);
    for (let c = 0; c < columns; c += 1) {
      const at = (head * rows + r) * columns + c;
      let w = tileScales[head * rows + r] * share[tiles[at]];
      if (weighted) w *= norms[head * m + Math.min(m - 1, c * side + (side >> 1))];
      out[r * columns + c] = w / mean;
    }
  }
  return out;
}

function keptPicture(map, { i0, i1, j0, j1, wide, high, rows, columns }) {
  const t = map.side;
  const out = new Float32Array(wide * high);
  const perRow = (i1 - i0) / high;
  const perColumn = (j1 - j0) / wide;
  // Where a tile is wider than a pixel it is only a backdrop for the kept weights.
  for (let y = 0; y < high; y += 1) {
    const r = Math.min(rows - 1, Math.floor((i0 + (y + 0.5) * perRow) / t));
    for (let x = 0; x < wide; x += 1) {
      const c = Math.min(columns - 1, Math.floor((j0 + (x + 0.5) * perColumn) / t));
      out[y * wide + x] = perRow < t / 2 ? 0 : map.tiles[r * columns + c];
    }
  }
  for (let i = Math.floor(i0); i < Math.min(map.n, Math.ceil(i1)); i += 1) {
    const y0 = Math.max(0, Math.floor((i - i0) / perRow));
    const y1 = Math.min(high, Math.max(y0 + 1, Math.ceil((i + 1 - i0) / perRow)));
    for (const { j, w } of map.row(i)) {
      if (j + 1 <= j0 || j >= j1) continue;
      const x0 = Math.max(0, Math.floor((j - j0) / perColumn));
      const x1 = Math.min(wide, Math.max(x0 + 1, Math.ceil((j + 1 - j0) / perColumn)));
      for (let y = y0; y < y1; y += 1) {
        for (let x = x0; x < x1; x += 1) {
          if (Math.abs(w) > Math.abs(out[y * wide + x])) out[y * wide + x] = w;
        }
      }
    }
  }
  return out;
}

/** second − first. */
export function difference(first, second) {
  const { n, m } = first;
  const base = { n, m, signed: true, side: first.side, kept: first.kept };
  if (first.whole && second.whole) {
    const values = new Float32Array(n * m);
    for (let at = 0; at < values.length; at += 1) values[at] = second.values[at] - first.values[at];
    return {
      ...base,
      ...all(values, n, m),
      value(i, j) {
        const error = first.value(i, j).error + second.value(i, j).error;
        return { w: values[i * m + j], error };
      },
    };
  }
  const merged = (a, b, name) => {
    const all = new Map();
    for (const cell of b) all.set(cell[name], cell.w);
    for (const cell of a) all.set(cell[name], (all.get(cell[name]) ?? 0) - cell.w);
    return [...all].map(([at, w]) => ({ [name]: at, w }));
  };
  return {
    ...base,
    whole: false,
    largest: Math.max(first.largest, second.largest),
    row: (i) => merged(first.row(i), second.row(i), "j"),
    column: (j) => merged(first.column(j), second.column(j), "i"),
    value(i, j) {
      const a = first.value(i, j);
      const b = second.value(i, j);
      const w = (b.w ?? 0) - (a.w ?? 0);
      return { w, error: (a.error ?? a.below) + (b.error ?? b.below) };
    },
    picture(...window) {
      const a = first.picture(...window);
      const b = second.picture(...window);
      return b.map((w, at) => w - a[at]);
    },
  };
}

export function largestOf(values) {
  let largest = 0;
  for (let at = 0; at < values.length; at += 1) {
    const size = Math.abs(values[at]);
    if (size > largest) largest = size;
  }
  return largest;
}

/** Of a window of a map with m columns: the weight of largest size under each of wide × high pixels. */
export function pool(values, m, ...window) {
  return underPixels(Float32Array, window, (from, to, left, right) => {
    let found = 0;
    for (let i = from; i < to; i += 1) {
      for (let j = left; j < right; j += 1) {
        const w = values[i * m + j];
        if (Math.abs(w) > Math.abs(found)) found = w;
      }
    }
    return found;
  });
}

/** Of a window of a mask: 1 for each of wide × high pixels under which no pair is allowed. */
export function maskPicture(mask, head, ...window) {
  return underPixels(Uint8Array, window, (...cells) => Number(!mask.any(head, ...cells)));
}

/** For each of wide × high pixels, `found` of the rows and the columns that lie under it. */
function underPixels(Numbers, [i0, i1, j0, j1, wide, high], found) {
  const out = new Numbers(wide * high);
  for (let y = 0; y < high; y += 1) {
    const from = Math.floor(i0 + ((i1 - i0) * y) / high);
    const to = Math.max(from + 1, Math.ceil(i0 + ((i1 - i0) * (y + 1)) / high));
    for (let x = 0; x < wide; x += 1) {
      const left = Math.floor(j0 + ((j1 - j0) * x) / wide);
      const right = Math.max(left + 1, Math.ceil(j0 + ((j1 - j0) * (x + 1)) / wide));
      out[y * wide + x] = found(from, to, left, right);
    }
  }
  return out;
}

/** The cells that are drawn as lines: of size ≥ threshold · largest, at most topK (0 = all). */
export function strongest(cells, { threshold, topK, largest }) {
  const least = threshold * largest;
  const kept = cells.filter((cell) => Math.abs(cell.w) >= least);
  kept.sort((a, b) => Math.abs(b.w) - Math.abs(a.w));
  return topK > 0 ? kept.slice(0, topK) : kept;
}
