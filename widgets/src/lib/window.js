// The part of a matrix that is in view: {i0, i1, j0, j1}, never outside it, never under `least` cells.

export const whole = (n, m) => ({ i0: 0, i1: n, j0: 0, j1: m });

function axis(from, to, factor, at, count, least) {
  const span = Math.min(count, Math.max(Math.min(least, count), (to - from) * factor));
  const start = Math.min(Math.max(0, at - ((at - from) / (to - from)) * span), count - span);
  return [start, start + span];
}

/** Zoom by a factor (below 1: closer) around cell (i, j). */
export function zoomed({ i0, i1, j0, j1 }, factor, i, j, n, m, least = 4) {
  const [a, b] = axis(i0, i1, factor, i, n, least);
  const [c, d] = axis(j0, j1, factor, j, m, least);
  return { i0: a, i1: b, j0: c, j1: d };
}

export function shifted({ i0, i1, j0, j1 }, rows, columns, n, m) {
  const down = Math.min(Math.max(rows, -i0), n - i1);
  const right = Math.min(Math.max(columns, -j0), m - j1);
  return { i0: i0 + down, i1: i1 + down, j0: j0 + right, j1: j1 + right };
}

/** The same window, moved as little as needed to hold cell (i, j). */
export function holding(window, i, j, n, m) {
  const down = i < window.i0 ? i - window.i0 : Math.max(0, i + 1 - window.i1);
  const right = j < window.j0 ? j - window.j0 : Math.max(0, j + 1 - window.j1);
  return shifted(window, down, right, n, m);
}

/** Every how many labels one is written, so that each has `room` pixels. */
export function labelStep(pixelsPerCell, room) {
  for (let power = 1; ; power *= 10) {
    for (const digit of [1, 2, 5]) if (digit * power * pixelsPerCell >= room) return digit * power;
  }
}
