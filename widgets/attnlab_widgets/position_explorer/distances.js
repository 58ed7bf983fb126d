// Scores of positions: maps (heads, n, n) as numbers, and what they are by distance.

/** The schemes by name, their maps as views on one run of numbers; NaN where nothing may be attended to. */
export function opened(buffer, schemes, n) {
  const numbers = new Float32Array(buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength));
  return new Map(schemes.map(({ name, heads, at }) => [name, { name, heads, at, numbers, n }]));
}

export function scoreOf({ numbers, at, n }, head, i, j) {
  return numbers[at + (head * n + i) * n + j];
}

/** The mean score of all pairs whose query stands `t` after the key, t = 0 … n − 1. */
export function curveOf(scheme, head) {
  const { n } = scheme;
  return Array.from({ length: n }, (_, t) => {
    let sum = 0;
    for (let i = t; i < n; i += 1) sum += scoreOf(scheme, head, i, i - t);
    return sum / (n - t);
  });
}

/** From the lowest to the highest number of several lists, 0 among them, with a margin. */
export function rangeOf(lists) {
  const all = [0, ...lists.flat().filter(Number.isFinite)];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const margin = 0.06 * (high - low || 1);
  return [low - margin, high + margin];
}

/** Round numbers inside a range, about `count` of them. */
export function ticks([low, high], count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(6)));
}

/** Heights of labels, in the order of `wanted`, moved apart to at least `gap`, within [low, high]. */
export function apart(wanted, gap, low, high) {
  const order = wanted.map((_, at) => at).sort((a, b) => wanted[a] - wanted[b]);
  const placed = [];
  order.forEach((at, place) => {
    placed[at] = Math.max(wanted[at], low + place * gap, place ? placed[order[place - 1]] + gap : low);
  });
  const over = order.length ? placed[order[order.length - 1]] - high : 0;
  if (over > 0) {
    let ceiling = high;
    for (const at of [...order].reverse()) {
      placed[at] = Math.min(placed[at], ceiling);
      ceiling = placed[at] - gap;
    }
  }
  return placed;
}
