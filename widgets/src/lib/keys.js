// Arrow keys over a list of places in rows: where the focus goes next.

/** `columns` places per row; null where the key is not one of ours. */
export function moved(at, count, key, columns = 1) {
  const steps = {
    ArrowRight: columns > 1 ? 1 : 0,
    ArrowLeft: columns > 1 ? -1 : 0,
    ArrowDown: columns,
    ArrowUp: -columns,
    PageDown: 10 * columns,
    PageUp: -10 * columns,
  };
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (!(key in steps) || steps[key] === 0) return null;
  const next = at + steps[key];
  if (key.startsWith("Page")) return Math.min(count - 1, Math.max(0, next));
  return next < 0 || next >= count ? at : next;
}
