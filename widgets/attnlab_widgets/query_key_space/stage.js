// The square where the maps are drawn: the canvas of the points, the canvas above it for lines and
// labels, and what mouse and fingers do there. Away from the window it gives its context back.
import { el } from "#parts/dom.js";
import { renderer } from "./points.js";

const CLICK = 5; // pixels within which a press is a click

export function stage(acts) {
  const below = el("div", { class: "qk-below" });
  const above = el("canvas", { class: "qk-layer", "aria-hidden": "true" });
  const node = el("div", { class: "qk-stage", tabindex: "0", "data-testid": "stage" }, below, above);
  let points = null;
  let made = null;

  /** A new canvas where there is none: one that lost its context draws nothing any more. */
  function ready() {
    if (points && !points.lost()) return points;
    made?.remove();
    made = el("canvas", { class: "qk-layer", "aria-hidden": "true" });
    above.before(made);
    points = renderer(made);
    node.dataset.renderer = points.kind;
    return points;
  }

  function free() {
    points?.free();
    made?.remove();
    [points, made] = [null, null];
  }

  let press = null;
  // Asking where the stage is makes the browser lay out the page: once for a drag is enough.
  const at = (event) => {
    const box = press?.box ?? node.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  node.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const [x, y] = at(event);
    press = { x, y, start: [x, y], moved: false, box: node.getBoundingClientRect() };
  });
  node.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!press) {
      acts.point(x, y);
      return;
    }
    if (!press.moved && Math.hypot(x - press.start[0], y - press.start[1]) < CLICK) return;
    if (!press.moved) node.setPointerCapture(event.pointerId);
    press.moved = true;
    acts.drag(x, y, x - press.x, y - press.y, event.shiftKey);
    [press.x, press.y] = [x, y];
  });
  node.addEventListener("pointerup", (event) => {
    if (!press) return;
    const { moved } = press;
    press = null;
    if (moved) acts.dropped();
    else acts.click(...at(event));
  });
  node.addEventListener("pointercancel", () => (press = null));
  node.addEventListener("pointerleave", () => acts.point(null, null));
  node.addEventListener("wheel", (event) => {
    event.preventDefault();
    acts.wheel(...at(event), Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)));
  }, { passive: false });

  return { node, below, above, ready, free };
}
