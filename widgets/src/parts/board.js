// A square of the plane around the origin: pixels and points, axes, and points that can be moved.
import { two } from "../lib/plane.js";
import { drawn } from "./svg.js";

const STEPS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const NEAR = 4; // pixels within which a press is a click

export function board(testid, label) {
  const under = drawn("g", {});
  const over = drawn("g", {});
  const node = drawn("svg", { class: "qp-board", role: "group", "aria-label": label, "data-testid": testid }, under, over);
  const it = { node, under, over, side: 0, half: 1, taken: [] };
  it.x = (point) => (it.side / 2) * (1 + point[0] / it.half);
  it.y = (point) => (it.side / 2) * (1 - point[1] / it.half);
  it.size = (side, half) => {
    Object.assign(it, { side, half, taken: [] });
    node.setAttribute("viewBox", `0 0 ${side} ${side}`);
    node.setAttribute("width", side);
    node.setAttribute("height", side);
  };
  it.line = (a, b, look) => drawn("line", { x1: it.x(a), y1: it.y(a), x2: it.x(b), y2: it.y(b), class: look });
  it.text = (point, text, look, [dx, dy] = [0, 0], anchor = "middle") =>
    drawn("text", { class: look, "text-anchor": anchor, text, ...it.inside(it.x(point) + dx, it.y(point) + dy + 4, text, anchor) });
  /** Where a text of about that width stands whole on the board. */
  it.inside = (x, y, text, anchor) => {
    const wide = 7.2 * text.length + 4;
    const [before, after] = { start: [0, wide], middle: [wide / 2, wide / 2], end: [wide, 0] }[anchor];
    return { x: Math.min(Math.max(x, before + 3), it.side - after), y: Math.min(Math.max(y, 14), it.side - 6) };
  };
  /** Beside a point, on the side away from the origin; above or below it where there is no room; below other names. */
  it.label = (node, point, r, text, lower = 0) => {
    const [x, y] = [it.x(point), it.y(point)];
    const wide = 7.6 * text.length + r + 8;
    const side = point[0] >= 0 ? "start" : "end";
    const room = side === "start" ? it.side - x : x;
    const beside = room > wide;
    const slant = point[1] / Math.max(Math.hypot(...point), 1e-9);
    const up = y > it.side / 2 === y < it.side - 36 ? 1 : -1;
    const dx = side === "start" ? r + 5 : -r - 5;
    const spot = beside ? it.inside(x + dx, y - 8 * slant + 5 + lower, text, side) : it.inside(x, y + up * (r + 14) + 4 + lower, text, "middle");
    const anchor = beside ? side : "middle";
    const left = spot.x - { start: 0, middle: wide / 2, end: wide }[anchor];
    const hit = () => it.taken.some((box) => left < box.right && box.left < left + wide && Math.abs(box.y - spot.y) < 16);
    for (let tries = 0; tries < 8 && hit(); tries += 1) spot.y += spot.y > it.side - 24 ? -34 : 17;
    it.taken.push({ left, right: left + wide, y: spot.y });
    for (const [name, value] of Object.entries({ ...spot, "text-anchor": anchor })) node.setAttribute(name, value);
  };
  it.axes = () => [
    it.line([-it.half, 0], [it.half, 0], "qp-axis"),
    it.line([0, -it.half], [0, it.half], "qp-axis"),
  ];
  it.place = ({ clientX, clientY }) => {
    const box = node.getBoundingClientRect();
    return rounded(it, [((clientX - box.left) / box.width) * 2 - 1, 1 - ((clientY - box.top) / box.height) * 2].map((share) => share * it.half));
  };
  return it;
}

function rounded({ half }, point) {
  const unit = half > 20 ? 10 : 100;
  return point.map((x) => Math.round(Math.min(Math.max(x, -half), half) * unit) / unit + 0);
}

/** A point that mouse, finger and arrow keys move: `move(point)`; `tap()` for a click, Space, Enter. */
export function grip(it, { label, testid, at, move, tap = null, point = () => {} }) {
  const node = drawn("g", { class: "qp-grip", tabindex: 0, role: "slider", "aria-label": label, "data-testid": testid, "aria-valuenow": 0 });
  let from = null;
  node.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.stopPropagation();
    node.setPointerCapture(event.pointerId);
    const [place, now] = [it.place(event), at()];
    from = { x: event.clientX, y: event.clientY, moved: false, off: [now[0] - place[0], now[1] - place[1]] };
  });
  node.addEventListener("pointermove", (event) => {
    if (!from || !node.hasPointerCapture(event.pointerId)) return;
    if (!from.moved && Math.hypot(event.clientX - from.x, event.clientY - from.y) < NEAR) return;
    from.moved = true;
    const place = it.place(event);
    move(rounded(it, [place[0] + from.off[0], place[1] + from.off[1]]));
  });
  const free = () => (from = null);
  node.addEventListener("pointerup", () => {
    if (from && !from.moved && tap) tap();
    free();
  });
  node.addEventListener("pointercancel", free);
  node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const by = STEPS[event.key];
    const taps = tap && (event.key === " " || event.key === "Enter");
    if (!by && !taps) return;
    event.preventDefault();
    if (taps) tap();
    else move(rounded(it, at().map((x, axis) => x + by[axis] * (it.half / 30) * (event.shiftKey ? 5 : 1))));
  });
  ["pointerenter", "focus"].forEach((name) => node.addEventListener(name, () => point(true)));
  ["pointerleave", "blur"].forEach((name) => node.addEventListener(name, () => point(false)));
  return node;
}

/** A press beside all points, and a drag from there: `move(point)`. */
export function pressedBeside(it, move) {
  let held = false;
  it.node.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType !== "mouse") return;
    held = true;
    it.node.setPointerCapture(event.pointerId);
    move(it.place(event));
  });
  it.node.addEventListener("pointermove", (event) => held && move(it.place(event)));
  ["pointerup", "pointercancel"].forEach((name) => it.node.addEventListener(name, () => (held = false)));
  it.node.addEventListener("click", (event) => {
    if (event.target === it.node || it.under.contains(event.target)) move(it.place(event));
  });
}

export function tell(node, { half }, [x, y], more = "") {
  node.setAttribute("aria-valuemin", -half);
  node.setAttribute("aria-valuemax", half);
  node.setAttribute("aria-valuenow", x);
  node.setAttribute("aria-valuetext", `at ${two(x)}, ${two(y)}${more}`);
}

export const diamond = (r) => `M0 ${-r}L${r} 0L0 ${r}L${-r} 0Z`;
export const square = (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`;
/** The hatching of what is masked, inside a diamond or a square. */
export const hatchOf = {
  diamond: (r) => [-0.5, 0, 0.5].map((c) => `M${((c + 1) * r) / 2} ${((c - 1) * r) / 2}L${((c - 1) * r) / 2} ${((c + 1) * r) / 2}`).join(""),
  square: (r) => [-1, 0, 1].map((c) => `M${Math.min(r, (c + 1) * r)} ${Math.max(-r, (c - 1) * r)}L${Math.max(-r, (c - 1) * r)} ${Math.min(r, (c + 1) * r)}`).join(""),
};
