// What the state returns for each key after a token; words.py says the same.
import { listed, two } from "#lib/plane.js";
import { best, rightOf } from "./rules.js";

/** Two digits; beyond 1,000 a power of ten. */
export function number(value) {
  if (Math.abs(value) < 1000) return two(Number(value.toFixed(9)));
  const [digits, power] = value.toExponential(1).split("e");
  return `${digits} · 10^${Number(power)}`.replaceAll("-", "−");
}

export function sentence({ title, token, count, fact, spectrum, names, values, readings, newest }) {
  const known = newest.map((_, i) => i).filter((i) => newest[i] !== null);
  const said = known.map((i) => `${names[i]} returns ${returned(values, readings[i])}`);
  const [what, are] = spectrum.length === 1 ? ["eigenvalue", "is"] : ["eigenvalues", "are"];
  const keys = known.length === 1 ? "key returns its" : "keys return their";
  return `${title}, token ${token} of ${count}, ${fact[0]} → ${fact[1]}: the ${what} of A ${are} ${listed(spectrum.map(number))}. Now ${listed(said)}: ${rightOf(readings, newest)} of ${known.length} ${keys} newest value.`;
}

function returned(values, reading) {
  const found = best(reading);
  return found.length ? `${found.map((j) => values[j]).join(" or ")} (${number(reading[found[0]])})` : "nothing";
}

/** A name that fits where there is room for so many letters. */
export function short(name, longest) {
  const letters = [...name];
  return letters.length <= longest ? name : `${letters.slice(0, longest - 1).join("")}…`;
}
