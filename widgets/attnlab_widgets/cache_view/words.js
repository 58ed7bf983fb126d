// What a stack keeps, in two sentences; words.py says the same.
import { bytesOf } from "./bills.js";

const UNITS = ["B", "kB", "MB", "GB", "TB"];
export const thousands = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

function three(number) {
  if (number >= 999.5) return thousands(even(number));
  const digits = number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2;
  const text = number.toFixed(digits);
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

/** Bytes in decimal units, with three digits. */
export function size(number) {
  let at = 0;
  while (number >= 999.5 && at < UNITS.length - 1) [number, at] = [number / 1000, at + 1];
  return `${three(number)} ${UNITS[at]}`;
}

function times(now, before) {
  if (!now || !before) return now === before ? "" : `, where the model keeps ${size(before)}`;
  if (Math.abs(now - before) < 1e-9 * before) return "";
  const [ratio, word] = now < before ? [before / now, "less"] : [now / before, "more"];
  return `, ${three(ratio)} times ${word} than the model (${size(before)})`;
}

export function sentence({ name, kinds, layers, published, tokens, bits }) {
  const sums = new Map();
  const counts = new Map();
  for (const key of layers) counts.set(key, (counts.get(key) ?? 0) + 1);
  for (const [key, count] of counts) sums.set(key, count * bytesOf(kinds[key], tokens, bits));
  const whole = [...sums.values()].reduce((a, b) => a + b, 0);
  const rounded = bits === 16 ? "" : ` in ${bits} bits`;
  const head = `${name}, ${thousands(tokens)} token${tokens === 1 ? "" : "s"}${rounded}: ${layers.length} layers keep ${size(whole)}${times(whole, published)}.`;
  if (!whole) return head;
  const most = [...sums.keys()].reduce((best, key) => (sums.get(key) > sums.get(best) ? key : best));
  const share = (100 * sums.get(most)) / whole;
  const said = share === 100 ? "all" : share < 99.5 ? `${even(share)} %` : "nearly all";
  return `${head} ${counts.get(most)} × ${kinds[most].title} keep ${said} of it.`;
}

/** Rounded as Python rounds: halves to even numbers. */
function even(number) {
  const below = Math.floor(number);
  return number - below === 0.5 ? below + (below % 2) : Math.round(number);
}
