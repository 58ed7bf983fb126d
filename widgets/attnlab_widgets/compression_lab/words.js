// What is said of the state, as words.py says it.
const WHAT = { "all weights": "all weights", "each matrix": "the weights of each matrix", "hidden units": "the hidden units", heads: "the heads" };
const tenths = (value) => `${Math.floor(value / 10)}.${value % 10}`;

export const share = (value) => `${tenths(Math.floor(1000 * value + 0.5))} %`;
export const size = (count) => `${tenths(Math.floor((count + 50) / 100))} kB`;

export function done({ cut, kept, bits, per }) {
  const what = `${Math.floor(100 * kept + 0.5)} % of ${WHAT[cut]} kept`;
  return bits === 32 ? `${what}, 32 bits each` : `${what}, ${bits} bits each with a scale for ${per === "tensor" ? "a matrix" : "a row"}`;
}

export const sentence = (name, how, now, whole, right) =>
  `${name.slice(0, 1).toUpperCase()}${name.slice(1)}, ${done(how)}: ${size(now)} of ${size(whole)} (${share(now / whole)}). ${right}`;

export function right(score, whole, { over, answers }) {
  if (!score) return "How many answers are right is not stored for this way of cutting.";
  const [middle, low, high] = score.map(share);
  return `${middle} of ${answers} are right (95 % interval over the ${over} ${low.slice(0, -2)} to ${high}); of the whole model ${share(whole)}.`;
}

export const seeds = (found) => (found.length ? `${found.length} trainings of this size, nothing cut: ${found.map((each) => each.toFixed(1)).join(", ")} % right.` : "");
