// The next letter drawn from the model's answer: draws.py in the page.
import { softmax } from "./forward.js";

/** A number between 0 and 1 that depends on the seed and the place alone: the finalizer of MurmurHash3. */
export function uniform(seed, place) {
  let mixed = seed ^ Math.imul(place + 1, 0x9e3779b1);
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (((mixed ^ (mixed >>> 16)) >>> 0) + 0.5) / 2 ** 32;
}

/** The tokens from the highest logit on; of equal ones the first. */
export const ordered = (logits) => Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);

/** A token of the `topK` with the highest logits, by softmax(logits / temperature); at 0 the first. */
export function drawn(logits, temperature, topK, chance) {
  const order = ordered(logits).slice(0, topK);
  if (temperature === 0) return order[0];
  const shares = softmax(Float64Array.from(order, (token) => logits[token] / temperature), order.length);
  let [at, sum] = [0, shares[0]];
  while (sum <= chance && at + 1 < order.length) sum += shares[(at += 1)];
  return order[at];
}
