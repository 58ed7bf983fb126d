// Which heads are shown, and in which order.

export const STATISTICS = {
  layer: { label: "layer and head", unit: "" },
  entropy: { label: "entropy", unit: "nats" },
  normalised_entropy: { label: "entropy, 0 to 1", unit: "" },
  distance: { label: "distance", unit: "tokens" },
  previous: { label: "to the previous token", unit: "" },
  next: { label: "to the next token", unit: "" },
  same: { label: "to itself", unit: "" },
  first: { label: "to the first token", unit: "" },
  sink: { label: "rest of 1 (sink, gate)", unit: "" },
  negative: { label: "subtracted (negative weights)", unit: "" },
};

const SOMETIMES = ["sink", "negative"];

/** The statistics that some layer has: not all weights leave something for a sink, or are negative. */
export const known = (statistics) =>
  Object.keys(STATISTICS).filter((name) => !SOMETIMES.includes(name) || statistics.some((layer) => layer?.[name]));

/** Every head as {layer, head, value}; value is null where the statistic has no meaning. */
export function listed(layers, statistics, sort) {
  const found = [];
  layers.forEach(({ h }, layer) => {
    for (let head = 0; head < h; head += 1) {
      const value = sort === "layer" ? null : (statistics[layer]?.[sort]?.[head] ?? null);
      found.push({ layer, head, value });
    }
  });
  return found;
}

/** In order (largest first; heads without a value last), only those of at least `atLeast`. */
export function arranged(heads, sort, atLeast) {
  if (sort === "layer") return heads;
  const kept = atLeast === null ? heads : heads.filter(({ value }) => value !== null && value >= atLeast);
  return [...kept].sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
}

export function range(heads) {
  const values = heads.map(({ value }) => value).filter((value) => value !== null);
  return values.length ? [Math.min(...values), Math.max(...values)] : null;
}
