// Saved files of widgets whose state holds bytes: those are packed there.
import { fromText } from "../lib/base85.js";
import { modelOf, mountOn } from "./page_model.js";

async function opened(value) {
  if (value === null || typeof value !== "object" || !("deflated" in value)) return value;
  const inflated = new Blob([fromText(value.deflated)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new DataView(await new Response(inflated).arrayBuffer());
}

async function unpacked(state) {
  const pairs = Object.entries(state).map(async ([name, value]) => [name, await opened(value)]);
  return Object.fromEntries(await Promise.all(pairs));
}

export const pageModel = async (state) => modelOf(await unpacked(state));

/** Mount a widget on a page that save_html wrote. */
export const mountPage = (widget, document) => mountOn(document, widget, unpacked);
