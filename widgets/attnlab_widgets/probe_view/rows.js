// Where a key leads, and where a value is drawn.

/** The task and layer after a key; null for a key that chooses nothing. Up and down go by rows. */
export function moved({ task, layer }, key, rows, layers) {
  const at = rows.indexOf(task);
  const within = (value, count) => Math.max(0, Math.min(count - 1, value));
  const down = { ArrowUp: -1, ArrowDown: 1, PageUp: -rows.length, PageDown: rows.length }[key];
  const right = { ArrowLeft: -1, ArrowRight: 1, Home: -layers, End: layers }[key];
  if (down) return { task: rows[within(at + down, rows.length)], layer };
  if (right) return { task, layer: within(layer + right, layers) };
  return null;
}

/** Places in a row: of a layer from the left, of a value from the top. */
export const across = (layer, layers, wide) => (layers === 1 ? wide / 2 : (wide * layer) / (layers - 1));
export const upwards = (value, low, high) => high * (1 - (value - low) / (1 - low));

export const mean = (rows, layer) => rows.reduce((sum, row) => sum + row[layer], 0) / rows.length;
export const percent = (value) => `${(100 * value).toFixed(1)} %`;
