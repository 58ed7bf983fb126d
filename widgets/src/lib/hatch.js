// Hatching: masked. It is drawn the same wherever a pair may not attend; a weight of zero is not
// hatched but has the lowest colour of the scale.

const PITCH = 6; // pixels from line to line, along the side of the box

/** Diagonal lines of a colour over a box of a canvas. */
export function hatched(context, x, y, w, h, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.beginPath();
  // The lines are those of the whole canvas, so that boxes side by side join.
  const from = Math.floor((x + y) / PITCH) * PITCH;
  for (let at = from; at < x + y + w + h; at += PITCH) {
    context.moveTo(at - y, y);
    context.lineTo(at - y - h, y + h);
  }
  context.strokeStyle = colour;
  context.lineWidth = 1.25;
  context.setLineDash([]);
  context.stroke();
  context.restore();
}
