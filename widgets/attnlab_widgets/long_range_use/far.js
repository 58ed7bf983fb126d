// What far_context has measured: single tokens in steps of a thousandth of a nat, and means by class.

export const CLASSES = ["all", "frequent", "rare", "near", "far", "new"];
const STEP = 1e-3;

const bytesOf = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
const list = (view, size, read) => Array.from({ length: view.byteLength / size }, (_, i) => read(size * i));

export const whole = (view) => list(view, 2, (at) => view.getUint16(at, true));
export const nats = (view) => list(view, 2, (at) => view.getInt16(at, true) * STEP);
export const floats = (view) => list(view, 4, (at) => view.getFloat32(at, true));
export const bits = (view) => Array.from(bytesOf(view));

/** Where an element stands in a flat array with these sizes of axes. */
export const place = (sizes, at) => at.reduce((sum, one, axis) => sum * sizes[axis] + one, 0);

/** The names of the classes whose bit is set. */
export const classesOf = (mask) => CLASSES.filter((_, at) => (mask >> at) & 1);

/** A number with its sign, in three places behind the point. */
export const signed = (value) => (Number.isNaN(value) ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`);

/** A step of 1, 2 or 5 times a power of ten that divides a range into at most `most` parts. */
export function tickStep(range, most) {
  const power = 10 ** Math.floor(Math.log10(range / most));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => range / step <= most);
}
