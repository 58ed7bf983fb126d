// Colours as tables of 256 RGBA words. Amounts: cividis, which reads the same to colour-blind eyes;
// signed amounts: blue over a neutral middle to orange.

export const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [12, 4], [4, 4]];
export const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const DIVERGING = {
  light: ["#0b559f", "#6baed6", "#f7f7f5", "#fdae6b", "#b84400"],
  dark: ["#8cc8ff", "#2f7fc1", "#22262d", "#c8661a", "#ffbe85"],
};

export function parse(colour) {
  const hex = /^#(..)(..)(..)$/.exec(colour);
  const parts = hex ? hex.slice(1).map((part) => parseInt(part, 16)) : colour.match(/\d+/g).map(Number);
  return parts.slice(0, 3);
}

export function mixed(scale, share) {
  const place = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const left = Math.min(Math.floor(place), scale.length - 2);
  const [a, b] = [parse(scale[left]), parse(scale[left + 1])];
  return a.map((value, at) => Math.round(value + (b[at] - value) * (place - left)));
}

const word = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

const tables = new Map();

export function lookup(signed, dark) {
  const name = `${signed}${dark}`;
  if (!tables.has(name)) {
    const scale = DIVERGING[dark ? "dark" : "light"];
    const at = signed ? (t) => mixed(scale, t) : (t) => mixed(CIVIDIS, t);
    tables.set(name, Uint32Array.from({ length: 256 }, (_, i) => word(at(i / 255))));
  }
  return tables.get(name);
}

/** The place of a weight on the scale, 0 to 255; a square root, so that small weights show. */
export function level(w, largest, signed) {
  if (!(largest > 0)) return signed ? 128 : 0;
  const share = Math.sqrt(Math.min(1, Math.abs(w) / largest));
  return Math.round(signed ? 127.5 + 127.5 * Math.sign(w) * share : 255 * share);
}

/** Weights to pixels. Those that are masked stay transparent: the hatching lies beneath. */
export function painted(values, largest, signed, dark, masked = null) {
  const colours = lookup(signed, dark);
  const out = new Uint32Array(values.length);
  for (let at = 0; at < values.length; at += 1) {
    if (!(masked?.[at] && values[at] === 0)) out[at] = colours[level(values[at], largest, signed)];
  }
  return out;
}

export function css(w, largest, signed, dark) {
  const value = lookup(signed, dark)[level(w, largest, signed)];
  return `rgb(${value & 255}, ${(value >> 8) & 255}, ${(value >> 16) & 255})`;
}
