// Costs from the cards' formulas: the mirror of attnlab_widgets/cost_formulas.py and __init__.py, and no DOM.

export const GROWTHS = {
  n: (n) => n,
  "n log n": (n) => n * Math.log2(n),
  "n√n": (n) => n ** 1.5,
  "n²": (n) => n ** 2,
};

/** A formula as nested lists, such as ["*", 2, "n"], as a number. */
export function evaluate(formula, known) {
  if (typeof formula === "number") return formula;
  if (typeof formula === "string") return known[formula];
  const [sign, ...parts] = formula;
  const numbers = parts.map((part) => evaluate(part, known));
  if (sign === "+") return numbers.reduce((sum, one) => sum + one, 0);
  if (sign === "*") return numbers.reduce((product, one) => product * one, 1);
  return sign === "^" ? numbers[0] ** numbers[1] : Math.log(numbers[0]);
}

/** What a mechanism costs at length n, under a setting {quantity, dim, heads, options}. */
export function costOf(mechanism, n, { quantity, dim, heads, options = {} }) {
  const width = Math.floor(dim / heads);
  const known = { n, h: heads, d: width, e: width, dim };
  for (const [letter, { option, usual }] of Object.entries(mechanism.letters)) known[letter] = options[option] ?? usual;
  return evaluate(mechanism[quantity], known);
}

/** The power of n with which values grow: least squares on the logarithms. */
export function slope(lengths, values) {
  const [x, y] = [lengths.map(Math.log), values.map(Math.log)];
  const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;
  const [mx, my] = [mean(x), mean(y)];
  const across = x.reduce((sum, one) => sum + (one - mx) ** 2, 0);
  return x.reduce((sum, one, at) => sum + (one - mx) * (y[at] - my), 0) / across;
}

/** Those over which exponents are taken: the last is n. */
export const lengthsTo = (n, lengths, window) => lengths.filter((one) => one >= n / 2 ** (window - 1) && one <= n);

/** The length from which on `own` costs less than `base`: 0 = always, null = never up to 2^24. */
export function crossover(own, base) {
  const ratio = (power) => own(2 ** power) / base(2 ** power);
  let above = null;
  for (let step = 8; step <= 192; step += 1) if (ratio(step / 8) >= 1) above = step;
  if (above === null) return 0;
  if (above === 192) return null;
  let [low, high] = [above / 8, (above + 1) / 8];
  for (let round = 0; round < 40; round += 1) {
    const middle = (low + high) / 2;
    if (ratio(middle) >= 1) low = middle;
    else high = middle;
  }
  return 2 ** high;
}

/** The claim whose growth from the first to the last length is nearest to a slope. */
export function nearest(found, lengths) {
  const away = (name) => Math.abs(slope(lengths, lengths.map(GROWTHS[name])) - found);
  return Object.keys(GROWTHS).reduce((best, name) => (away(name) < away(best) ? name : best));
}

const pairs = (options) => Object.entries(options).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => `${name}=${value}`).join(",");

/** The setting of a measurement, and that of a count. */
export const key = ({ mechanism, n, dim, heads, backward, options }) => `${mechanism} ${n} ${dim} ${heads} ${backward ? "both" : "forward"} ${pairs(options)}`;
export const countKey = ({ mechanism, dim, heads, options }) => `${mechanism} ${dim} ${heads} ${pairs(options)}`;

/** Seconds in three digits: 1.23 ms. */
export function seconds(value) {
  const [by, unit] = value < 1e-3 ? [1e6, "µs"] : value < 1 ? [1e3, "ms"] : [1, "s"];
  return `${Number((value * by).toPrecision(3))} ${unit}`;
}
