// A map on a canvas: masked cells hatched, the others by their weight.
import { bitmap, sized } from "#parts/dom.js";
import { lookup } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";

/** Fill the box of a context with the map; cells are whole, columns beyond n stand apart. */
export function paintMap(context, map, x, y, wide, high, view) {
  const colours = lookup(map.signed, view.dark);
  const pixels = Uint32Array.from(map.levels, (level, at) => (map.masked[at] ? 0 : colours[level]));
  context.fillStyle = view.colour("--av-panel");
  context.fillRect(x, y, wide, high);
  hatched(context, x, y, wide, high, view.colour("--wl-hatch"));
  context.imageSmoothingEnabled = false;
  context.drawImage(bitmap(pixels, map.m, map.n), x, y, wide, high);
  outline(context, map, x, y, wide, high, view);
  if (map.m > map.n) {
    context.fillStyle = view.colour("--av-paper");
    context.fillRect(x + (wide * map.n) / map.m - 1, y, 2, high);
  }
}

/** The only key of a query has a frame in place of a colour. */
function outline(context, map, x, y, wide, high, view) {
  const [across, down] = [wide / map.m, high / map.n];
  context.strokeStyle = view.colour("--av-quiet");
  context.lineWidth = 1;
  for (const at of map.alone) {
    const [left, top] = [x + (at % map.m) * across, y + Math.floor(at / map.m) * down];
    context.fillStyle = view.colour("--av-paper");
    context.fillRect(left, top, across, down);
    context.strokeRect(left + 0.5, top + 0.5, Math.max(1, across - 1), Math.max(1, down - 1));
  }
}

export function paintTile(canvas, map, side, view) {
  const context = sized(canvas, side, side);
  if (map) paintMap(context, map, 0, 0, side, side, view);
}
