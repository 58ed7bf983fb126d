// Labels that do not lie over each other, and what lies inside a drawn loop.

const CELL = 64;
const SQUARE = 6;

/** How many points lie in a box, counted in squares of 6 pixels. */
export function crowd(screen, wide, high) {
  const columns = Math.ceil(wide / SQUARE) + 1;
  const rows = Math.ceil(high / SQUARE) + 1;
  const counts = new Uint32Array(columns * rows);
  for (let i = 0; i < screen.length; i += 2) {
    const [column, row] = [Math.floor(screen[i] / SQUARE), Math.floor(screen[i + 1] / SQUARE)];
    if (column >= 0 && row >= 0 && column < columns && row < rows) counts[row * columns + column] += 1;
  }
  return ({ x, y, w, h }) => {
    let sum = 0;
    const last = [Math.min(columns - 1, Math.floor((x + w) / SQUARE)), Math.min(rows - 1, Math.floor((y + h) / SQUARE))];
    for (let row = Math.max(0, Math.floor(y / SQUARE)); row <= last[1]; row += 1) {
      for (let column = Math.max(0, Math.floor(x / SQUARE)); column <= last[0]; column += 1) sum += counts[row * columns + column];
    }
    return sum;
  };
}

/** Boxes that were taken; `free(box)` takes one where nothing lies yet. */
export function room() {
  const taken = new Map();
  const cells = function* cells({ x, y, w, h }) {
    for (let i = Math.floor(x / CELL); i <= Math.floor((x + w) / CELL); i += 1) {
      for (let j = Math.floor(y / CELL); j <= Math.floor((y + h) / CELL); j += 1) yield `${i},${j}`;
    }
  };
  const meet = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  return {
    free(box) {
      for (const cell of cells(box)) if (taken.get(cell)?.some((one) => meet(one, box))) return false;
      for (const cell of cells(box)) taken.set(cell, [...(taken.get(cell) ?? []), box]);
      return true;
    },
  };
}

/**
 * The labels that have room, in the order of their importance: [{row, x, y, w}] with the place of
 * the text's left end. A label lies to the right of its point, or else to its left, and hides at
 * most `hides` points unless it is strong.
 */
export function placed(wanted, measure, { wide, high, most, crowded, hides = 2, line = 14 }) {
  const taken = room();
  const out = [];
  for (const one of wanted) {
    if (out.length >= most) break;
    if (one.x < 0 || one.y < line || one.x > wide || one.y > high - line) continue;
    const w = measure(one.text);
    for (const x of [one.x + 7, one.x - 7 - w]) {
      const box = { x: x - 2, y: one.y - line / 2, w: w + 4, h: line };
      if (x < 2 || x + w > wide - 2 || (!one.strong && crowded(box) > hides) || !taken.free(box)) continue;
      out.push({ ...one, at: x, w });
      break;
    }
  }
  return out;
}

/** Rows in an order that looks like chance and is always the same. */
export function shuffled(count, seed = 1) {
  const order = count > 65535 ? new Uint32Array(count) : new Uint16Array(count);
  for (let i = 0; i < count; i += 1) order[i] = i;
  let state = seed;
  for (let i = count - 1; i > 0; i -= 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 4294967296) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/** Whether a point lies inside a loop [x, y, x, y, …]. */
export function inside(loop, x, y) {
  let within = false;
  for (let i = 0, j = loop.length - 2; i < loop.length; j = i, i += 2) {
    const crosses = loop[i + 1] > y !== loop[j + 1] > y;
    if (crosses && x < ((loop[j] - loop[i]) * (y - loop[i + 1])) / (loop[j + 1] - loop[i + 1]) + loop[i]) within = !within;
  }
  return within;
}
