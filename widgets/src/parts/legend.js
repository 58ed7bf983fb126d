// The one legend of maps of weights: what a colour, a hatched cell and a framed one mean.
import { lookup } from "../lib/colours.js";
import { bitmap, el, hatchKey, sized } from "./dom.js";

const LONG = 120; // pixels

/** A bar of colours between two words. */
function colourKey(view, signed, [from, to], long = LONG) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const context = sized(canvas, long, 10);
  context.drawImage(bitmap(Uint32Array.from(lookup(signed, view.dark)), 256, 1), 0, 0, long, 10);
  return el("span", { class: "av-legend-key" }, el("span", { text: from }), canvas, el("span", { text: to }));
}

/** The keys of maps of weights from 0 to 1, or to the `largest`: `masked`, `alone` (the only key of its query), `signed`. */
export function weightLegend(view, { masked = true, alone = true, signed = false, largest = "1" } = {}) {
  const bar = colourKey(view, false, ["weight 0", largest]);
  bar.title = "The colour goes by the square root of the weight, so that small weights show.";
  return el("div", { class: "av-legend av-quiet", testid: "weight-legend" },
    bar,
    ...(signed ? [colourKey(view, true, ["both signs: −largest", "+largest"], LONG / 2)] : []),
    ...(masked ? [hatchKey(view, "masked")] : []),
    ...(alone ? [el("span", { class: "av-legend-key", title: "A query with a single key gives it all of its weight, whatever the model" }, el("span", { class: "av-only-key" }), el("span", { text: "its only key: always 1" }))] : []),
  );
}

/** The label of what is shown with weights that nobody trained: "untrained", or "in part untrained". */
export const untrained = (inPart = false, title = "Nobody trained these weights: they were drawn at random") =>
  el("span", { class: "av-untrained", title, text: inPart ? "in part untrained" : "untrained" });

/** What a widget says, with the label where nobody trained what it speaks of. */
export const labelledSaying = (text, nobody) => (nobody ? [text, " ", untrained()] : [text]);
