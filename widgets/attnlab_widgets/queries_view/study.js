// What the parts share: the bytes, the state, and what follows from both.
import { asBuffer } from "#lib/quantization.js";
import { announcement } from "./words.js";

const NAMES = ["moment", "layer", "head", "query", "patch"];

/** What study.py wrote. */
export function opened(data, told) {
  const { rows, columns } = told.grid;
  const [bytes, patches] = [new Uint8Array(asBuffer(data)), rows * columns];
  const codes = bytes.subarray(0, (bytes.length / (patches + 1)) * patches);
  return { ...told, patches, codes, aside: bytes.subarray(codes.length) };
}

/** The number of one query's row among all rows. */
const rowNumber = ({ layers, heads, queries }, { moment, layer, head }, query) => ((moment * layers.length + layer) * (1 + heads) + head + 1) * queries + query;

/** The bytes of one query (patches,); head -1 is the mean over heads. */
export function rowOf(found, shown, query) {
  const at = rowNumber(found, shown, query) * found.patches;
  return found.codes.subarray(at, at + found.patches);
}

/** The byte of what one query gives to the keys before the patches. */
export const asideOf = (found, shown, query) => found.aside[rowNumber(found, shown, query)];

/** How many maps stand beside each other. */
export const columnsFor = (queries) => (queries <= 6 ? 2 : queries <= 24 ? 4 : 8);

/** Where a key leads in a list of maps, `across` of them in a row; null for another key. */
export function moved(at, key, count, across) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, Home: -count, End: count }[key];
  if (step === undefined) return null;
  const to = at + step;
  if (Math.abs(step) === across && across > 1) return to < 0 || to >= count ? at : to;
  return Math.max(0, Math.min(count - 1, to));
}

export class Study {
  constructor(model) {
    this.model = model;
    this.found = opened(model.get("_data"), model.get("_told"));
    this.pointed = {}; // a query or a patch under the pointer
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing; what is pointed at stands for what is chosen. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    this.shown = { ...this.state, ...this.pointed };
    this.sentence = announcement(this.found, this.shown);
  }

  row(query) {
    return rowOf(this.found, this.shown, query);
  }
}
