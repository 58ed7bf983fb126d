// A word is r·exp(i(ωp + θ)) at position p: the numbers that the explorer draws.

/** Amplitude, frequency and phase of one word in one dimension. */
export function wave(tables, word, dimension) {
  const [r, w, theta] = ["amplitude", "frequency", "phase"].map((name) => tables[name][word][dimension]);
  return { r, w, theta };
}

/** [Re, Im] at a position. */
export function at({ r, w, theta }, position) {
  const angle = w * position + theta;
  return [r * Math.cos(angle), r * Math.sin(angle)];
}

/** |f₁ + f₂| where both stand at the same position. */
export function together(first, second, position) {
  const [a, b] = at(first, position);
  const [c, d] = at(second, position);
  return Math.hypot(a + c, b + d);
}

/** The largest amplitude of some words, at least a little more than 0. */
export function largest(tables, words) {
  return Math.max(1e-6, ...words.flatMap((word) => tables.amplitude[word].map(Math.abs)));
}

/** How many positions one whole turn takes, in words. */
export function period({ w }) {
  if (Math.abs(w) < 1e-6) return "does not turn";
  const positions = (2 * Math.PI) / Math.abs(w);
  return positions > 9999 ? "one turn in more than 9,999 positions" : `one turn in ${positions.toFixed(1)} positions`;
}
