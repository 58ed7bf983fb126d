// Saved files of widgets whose state holds bytes: those are packed there.
import { unzlibSync } from "fflate";
import { fromText } from "../lib/base85.js";
import { modelOf, mountOn } from "./page_model.js";

function opened(value) {
  if (value === null || typeof value !== "object" || !("deflated" in value)) return value;
  const bytes = unzlibSync(fromText(value.deflated));
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export const pageModel = (state) => modelOf(state, opened);

/** Mount a widget on a page that save_html wrote. */
export const mountPage = (widget, document) => mountOn(document, widget, opened);
