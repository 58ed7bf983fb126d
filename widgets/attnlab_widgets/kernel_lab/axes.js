// What the curve is drawn between: features as powers of two, and shares; both logarithmic. picture.py has the same.

const [LEAST, MOST] = [0.004, 3]; // shares; the axis grows to those beyond
const LOWEST = 1e-6; // shares below it count as none: they stand at the lower end
const [SMALLEST, LARGEST] = [2, 13]; // powers of two; it grows likewise
const LINES = 6;

/** Axes that hold all of these [count, error], and never less than is usual. */
export function axesAround(points) {
  const counts = points.map(([count]) => Math.log2(count));
  const errors = points.map(([, error]) => error);
  const smallest = Math.floor(Math.min(SMALLEST, ...counts));
  const least = Math.min(LEAST, ...errors.filter((error) => error >= LOWEST));
  const most = Math.max(MOST, ...errors);
  return {
    smallest: smallest - (((smallest % 2) + 2) % 2),
    largest: Math.ceil(Math.max(LARGEST, ...counts)),
    least: least === LEAST ? LEAST : 10 ** Math.floor(Math.log10(least)),
    most: most === MOST ? MOST : 10 ** Math.ceil(Math.log10(most)),
  };
}

/** Where a point stands, from 0 to 1 across and down. */
export function placeOf({ smallest, largest, least, most }, count, error) {
  return [(Math.log2(count) - smallest) / (largest - smallest), Math.log(most / Math.max(error, least)) / Math.log(most / least)];
}

/** Powers of ten that get a line: six at most. */
export function sharesOf({ least, most }) {
  const [first, last] = [Math.ceil(Math.log10(least) - 1e-9), Math.floor(Math.log10(most) + 1e-9)];
  const step = Math.ceil((last - first + 1) / LINES);
  const powers = Array.from({ length: last - first + 1 }, (_, at) => first + at);
  return powers.filter((power) => power % step === 0).map((power) => 10 ** power);
}

/** A power of ten as a percentage at the axis. */
export function shareSaid(share) {
  const power = Math.round(Math.log10(share)) + 2;
  return power < 5 ? `${(10 ** power).toLocaleString("en", { maximumFractionDigits: 9 })} %` : `10^${power} %`;
}
