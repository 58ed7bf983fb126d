// How a token is drawn, by what became of it: the same in all panels.
import { hatched } from "#lib/hatch.js";
import { HIDDEN, OPEN, REPLACED } from "./study.js";

export function drawCell(context, view, kind, x, y, w, h) {
  context.fillStyle = view.colour("--av-panel");
  context.fillRect(x, y, w, h);
  if (kind === HIDDEN) {
    context.fillStyle = view.colour("--av-hatch-ground");
    context.fillRect(x, y, w, h);
    hatched(context, x, y, w, h, view.colour("--av-hatch"));
  }
  if (kind === OPEN) {
    context.fillStyle = view.series(2);
    context.fillRect(x, y + h - 3, w, 3);
  }
  context.strokeStyle = kind === REPLACED ? view.series(1) : view.colour("--av-line");
  context.lineWidth = kind === REPLACED ? 2 : 1;
  const inner = kind === REPLACED ? 1 : 0.5;
  context.strokeRect(x + inner, y + inner, w - 2 * inner, h - 2 * inner);
}

/** The mark of a token whose answer is scored. */
export function drawPaid(context, view, x, y, radius = 3) {
  context.fillStyle = view.series(0);
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}
