// Where the patches of a grid lie in a picture, and which token is which patch.

/** The grid of a side of a layer, {rows, columns, first}, or null where it reads no image. */
export function gridOf(recording, shape, side) {
  return recording.grids?.[shape[side].set] ?? null;
}

/** The token whose patch lies at (x, y), both from 0 to 1, or null. */
export function tokenAt({ rows, columns, first }, x, y) {
  const [row, column] = [Math.floor(y * rows), Math.floor(x * columns)];
  const inside = row >= 0 && column >= 0 && row < rows && column < columns;
  return inside ? first + row * columns + column : null;
}

/** The box of a token's patch in a picture of this size, [x, y, wide, high], or null. */
export function boxOf({ rows, columns, first }, token, wide, high) {
  const at = token - first;
  if (at < 0 || at >= rows * columns) return null;
  const [row, column] = [Math.floor(at / columns), at % columns];
  return [(column * wide) / columns, (row * high) / rows, wide / columns, high / rows];
}

/** The token one step away from a patch, by an arrow key; the same at the edge, null otherwise. */
export function neighbour({ rows, columns, first }, token, key) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key];
  if (!step) return null;
  const at = Math.max(0, token - first);
  const row = Math.min(rows - 1, Math.max(0, Math.floor(at / columns) + step[0]));
  const column = Math.min(columns - 1, Math.max(0, (at % columns) + step[1]));
  return first + row * columns + column;
}
