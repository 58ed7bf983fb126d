// Where the patches of a grid lie in a picture, and which token is which patch. A grid has rows,
// columns and the first of its tokens, which follow in reading order; or, where patches stand among
// words or are several vectors each, the tokens of every patch.

/** The grid of a side of a layer, {rows, columns, first, tokens?}, or null where it reads no image. */
export function gridOf(recording, shape, side) {
  return recording.grids?.[shape[side].set] ?? null;
}

/** The tokens of a patch, by its number in reading order. */
export function tokensOf({ first, tokens }, patch) {
  return tokens ? tokens[patch] : [first + patch];
}

/** The tokens of a token's patch, itself among them; itself alone where it is in none. */
export function together(grid, token) {
  const at = grid ? patchOf(grid, token) : null;
  return at === null ? [token] : tokensOf(grid, at);
}

/**
 * Between patches and words, [[its tokens, weight], …]: what `own`, the tokens of one query, give to
 * each of the keys, whose grid is `over`; or what each of the queries gives to `own`. Of a patch of
 * several vectors the weights of its keys are added up, and those of its queries are the mean.
 */
export function weightsBetween(map, of, own, over) {
  const [queries, found] = [of === "query", new Map()];
  for (const place of own) {
    for (const cell of queries ? map.row(place) : map.column(place)) {
      const tokens = together(over, queries ? cell.j : cell.i);
      const share = cell.w / (queries ? own : tokens).length;
      found.set(tokens[0], [tokens, (found.get(tokens[0])?.[1] ?? 0) + share]);
    }
  }
  return [...found.values()];
}

/** The number of a token's patch in reading order, or null. */
export function patchOf({ rows, columns, first, tokens }, token) {
  const at = tokens ? tokens.findIndex((own) => own.includes(token)) : token - first;
  return at >= 0 && at < rows * columns ? at : null;
}

/** The token whose patch lies at (x, y), both from 0 to 1, or null. */
export function tokenAt(grid, x, y) {
  const { rows, columns } = grid;
  const [row, column] = [Math.floor(y * rows), Math.floor(x * columns)];
  const inside = row >= 0 && column >= 0 && row < rows && column < columns;
  return inside ? (tokensOf(grid, row * columns + column)[0] ?? null) : null;
}

/** The box of a patch in a picture of this size, [x, y, wide, high]. */
export function boxAt({ rows, columns }, patch, wide, high) {
  const [row, column] = [Math.floor(patch / columns), patch % columns];
  return [(column * wide) / columns, (row * high) / rows, wide / columns, high / rows];
}

/** The box of a token's patch, or null. */
export function boxOf(grid, token, wide, high) {
  const at = patchOf(grid, token);
  return at === null ? null : boxAt(grid, at, wide, high);
}

/** The token one step away from a patch, by an arrow key; the same at the edge, null otherwise. */
export function neighbour(grid, token, key) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key];
  if (!step) return null;
  const { rows, columns } = grid;
  const at = patchOf(grid, token) ?? 0;
  const row = Math.min(rows - 1, Math.max(0, Math.floor(at / columns) + step[0]));
  const column = Math.min(columns - 1, Math.max(0, (at % columns) + step[1]));
  return tokensOf(grid, row * columns + column)[0] ?? token;
}
