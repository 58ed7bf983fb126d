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
  if (map.m > map.n) {
    context.fillStyle = view.colour("--av-paper");
    context.fillRect(x + (wide * map.n) / map.m - 1, y, 2, high);
  }
}

export function paintTile(canvas, map, side, view) {
  const context = sized(canvas, side, side);
  if (map) paintMap(context, map, 0, 0, side, side, view);
}
