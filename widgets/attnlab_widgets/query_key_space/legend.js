// What shapes and colours mean.
import { el, sized } from "#parts/dom.js";
import { shape } from "./flat.js";

export function legendPanel(study, view) {
  const node = el("ul", { class: "qk-legend", "data-testid": "legend", "aria-label": "Legend" });

  function mark(side, colour) {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const pen = sized(canvas, 12, 12);
    pen.fillStyle = colour;
    shape(pen, 6, 6, 5, side === "key");
    return canvas;
  }

  function ramp(colours) {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const pen = sized(canvas, 70, 10);
    const fill = pen.createLinearGradient(0, 0, 70, 0);
    colours.forEach((colour, at) => fill.addColorStop(at / (colours.length - 1), colour));
    pen.fillStyle = fill;
    pen.fillRect(0, 0, 70, 10);
    return canvas;
  }

  function swatch(colour) {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const pen = sized(canvas, 12, 12);
    pen.fillStyle = colour;
    pen.fillRect(0, 1, 11, 11);
    return canvas;
  }

  const item = (...parts) => el("li", {}, ...parts.map((part) => (typeof part === "string" ? el("bdi", { text: part }) : part)));

  function draw() {
    const { few, ramps, unit } = study.legend(view.dark);
    const ink = view.colour("--av-ink");
    const shapes = ["query", "key"].map((side) => item(mark(side, ink), side));
    if (ramps) {
      const bars = ramps.map(({ side, ends, colours }) => item(mark(side, colours[1]), ends[0], ramp(colours), `${ends[1]}${ramps.length === 1 || side === "key" ? ` ${unit}` : ""}`));
      node.replaceChildren(...(ramps.length === 1 ? [shapes[0], ...bars] : bars));
      return;
    }
    const sides = study.get("colour") === "side";
    const colours = few.map(({ name, colour }) => item(sides ? mark(name, colour) : swatch(colour), name));
    node.replaceChildren(...(sides ? [] : shapes), ...colours);
  }

  return { node, draw };
}
