// The image, and a map of one query over its patches.
import { lookup } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { boxOf } from "#lib/patches.js";
import { bitmap, sized } from "#parts/dom.js";
import { MASKED } from "./words.js";

/** The image, with the frame of the chosen patch. */
export function imageCanvas(canvas, picture, grid, patch, size, view) {
  const context = sized(canvas, ...size);
  context.imageSmoothingEnabled = picture.naturalWidth > size[0];
  if (picture.complete && picture.naturalWidth) context.drawImage(picture, 0, 0, ...size);
  framed(context, boxOf(grid, patch, ...size), view);
}

/** The bytes of one query, a cell for each patch, in colours up to that of the byte `largest`. */
export function mapCanvas(canvas, row, { grid, largest }, size, view, patch) {
  const colours = lookup(false, view.dark);
  const pixels = Uint32Array.from(row, (code) => colours[code === MASKED ? 0 : Math.round((255 * code) / largest)]);
  const context = sized(canvas, ...size);
  context.imageSmoothingEnabled = false;
  context.drawImage(bitmap(pixels, grid.columns, grid.rows), 0, 0, ...size);
  row.forEach((code, at) => {
    if (code === MASKED) hatched(context, ...boxOf(grid, at, ...size), view.colour("--av-hatch"));
  });
  framed(context, boxOf(grid, patch, ...size), view);
}

function framed(context, box, view) {
  if (!box) return;
  const [x, y, wide, high] = box;
  context.lineWidth = 3;
  context.strokeStyle = view.series(1);
  context.strokeRect(x + 1.5, y + 1.5, wide - 3, high - 3);
}
