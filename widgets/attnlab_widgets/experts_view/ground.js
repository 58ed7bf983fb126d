// The ground of a token: a part for each choice, as wide as its gate, hatched where it is dropped.
import { mixed } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { colourOf } from "./study.js";

const TINT = 0.32; // how much of an expert's colour is mixed with the paper behind a word

/** [{expert, lost, waiting, from, to}], from 0 to 1. */
function parts(choices) {
  const gates = choices.map(({ gate }) => Math.max(gate, 1e-3));
  const whole = gates.reduce((a, b) => a + b, 0);
  let from = 0;
  return choices.map((choice, at) => {
    const part = { ...choice, from, to: from + gates[at] / whole };
    from = part.to;
    return part;
  });
}

/** As a CSS background. */
export function background(choices, view) {
  const paper = view.colour("--av-paper");
  const shade = (expert, share) => `rgb(${mixed([paper, colourOf(expert, view.dark)], share).join(" ")})`;
  const run = (colour, { from, to }) => `${colour} ${(100 * from).toFixed(1)}% ${(100 * to).toFixed(1)}%`;
  const all = parts(choices);
  const hatching = `repeating-linear-gradient(-45deg, ${view.colour("--av-hatch")} 0 1px, ${view.colour("--av-hatch-ground")} 1px 5px)`;
  if (!all.length) return hatching;
  const line = all.map((one) => run(one.waiting ? "transparent" : shade(one.expert, 1), one)).join(", ");
  const fill = all.map((one) => run(one.waiting || one.lost ? "transparent" : shade(one.expert, TINT), one)).join(", ");
  const stripes = all.some(({ lost, waiting }) => lost && !waiting)
    ? `, ${hatching}`
    : "";
  const hidden = stripes && all.some(({ lost, waiting }) => !lost || waiting)
    ? `, linear-gradient(90deg, ${all.map((one) => run(one.lost && !one.waiting ? "transparent" : paper, one)).join(", ")})`
    : "";
  return `linear-gradient(90deg, ${line}) bottom / 100% 3px no-repeat, linear-gradient(90deg, ${fill})${hidden}${stripes}`;
}

/** The same on a canvas, in full colour. */
export function ground(context, choices, [x, y, w, h], view) {
  if (!choices.length) hatched(context, x, y, w, h, view.colour("--av-hatch"));
  for (const { expert, lost, waiting, from, to } of parts(choices)) {
    const box = [x + w * from, y, w * (to - from), h];
    context.fillStyle = waiting || lost ? view.colour("--av-hatch-ground") : colourOf(expert, view.dark);
    context.fillRect(...box);
    if (!lost || waiting) continue;
    hatched(context, ...box, view.colour("--av-hatch"));
    context.fillStyle = colourOf(expert, view.dark);
    context.fillRect(box[0], y + h - 3, box[2], 3);
  }
}
