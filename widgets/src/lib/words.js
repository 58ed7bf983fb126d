// Numbers and sentences.

/** A weight with the digits that are known: three significant ones, none below the error. */
export function weight(w, error = 0) {
  if (w === 0) return "0";
  const size = Math.abs(w);
  const digits = Math.max(0, 2 - Math.floor(Math.log10(size)));
  const known = error > 0 ? Math.max(0, Math.ceil(-Math.log10(error)) ) : 8;
  return w.toFixed(Math.min(8, digits, Math.max(known, 2)));
}

export const signedWeight = (w, error) => (w > 0 ? "+" : "") + weight(w, error).replace("-", "−");

export function exactly({ w, error, below }, signed = false) {
  if (below !== undefined) return `at most ${weight(below)} (not kept)`;
  const said = signed ? signedWeight(w, error) : weight(w, error);
  return error > 0 ? `${said} ± ${error.toPrecision(1)}` : said;
}

export const headName = (layer, head) => `${layer} · head ${head}`;

/** A layer in few letters: L3, or the side it is on, "enc 0", "cross 1". */
export function shortName(title, layer) {
  const [side, number = ""] = (title ?? "").split(" ");
  const short = { encoder: "enc", decoder: "dec" }[side] ?? side;
  return short ? `${short.slice(0, 6)} ${number}` : `L${layer}`;
}

/** What is done to the weights before they are shown; empty where nothing is. */
export function changes({ hideFirst, weighted }) {
  const said = [];
  if (weighted) said.push("weighted by value norms");
  if (hideFirst) said.push("first token hidden");
  return said.length ? `${said.join(", ")}; rows renormalised to sum to 1` : "";
}
