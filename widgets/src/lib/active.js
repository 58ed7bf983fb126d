// What is chosen of a sequence: a query or a key.

/** Neither. */
export const NONE = Object.freeze({ query: null, key: null });

/** What is pointed at, else what is pinned: ["query" | "key", its place], or null. */
export function activeOf(store) {
  for (const side of ["query", "key"]) if (store.hover[side] !== null) return [side, store.hover[side]];
  for (const side of ["query", "key"]) if (store.pinned(side) !== null) return [side, store.pinned(side)];
  return null;
}
