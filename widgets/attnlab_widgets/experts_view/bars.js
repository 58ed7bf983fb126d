// A row for each expert: the tokens that want it, in the order of placing, the capacity that can be
// dragged, and beside it the router's probabilities of the token that is shown.
import { meanOf } from "./experts.js";
import { hatched } from "#lib/hatch.js";
import { two } from "#lib/plane.js";
import { el, sized } from "#parts/dom.js";
import { colourOf } from "./study.js";

const [LEFT, TOP, SAID, SIDE, GRIP] = [78, 24, 92, 176, 7];
const FONT = '11px system-ui, "DejaVu Sans", sans-serif';

export function barsPanel(study, view) {
  const canvas = el("canvas", { class: "ex-bars", role: "img", "data-testid": "bars" });
  const frame = el("div", { class: "ex-frame" }, canvas);
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": "readout" });
  const node = el("section", { class: "av-panel ex-experts" }, frame, readout);
  let [cell, deep, pointed, dragging] = [1, 20, null, false];
  const side = () => (study.layer.router ? SIDE : 0);
  const edge = () => LEFT + study.state.capacity * cell;

  /** [expert, place in its line] under the pointer. */
  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top - TOP];
    const [expert, place] = [Math.floor(y / deep), Math.floor((x - LEFT) / cell)];
    return { x, expert: y >= 0 && expert < study.layer.experts ? expert : null, place };
  }

  /** The token at a place of an expert's line, or null. */
  function tokenAt({ expert, place }) {
    const { k, chosen, places, queue } = study.layer;
    const found = queue.slice(0, study.state.placed).find(([i, c]) => chosen[i * k + c] === expert && places[i * k + c] === place);
    return found ? found[0] : null;
  }

  const near = ({ x }) => Math.abs(x - edge()) <= GRIP;
  canvas.addEventListener("pointerdown", (event) => {
    const at = under(event);
    if (!near(at)) return;
    dragging = true;
    canvas.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = under(event);
    if (dragging) {
      const capacity = Math.min(study.most, Math.max(1, Math.round((at.x - LEFT) / cell)));
      if (capacity !== study.state.capacity) study.set({ capacity });
      return;
    }
    canvas.style.cursor = near(at) ? "ew-resize" : "pointer";
    pointed = near(at) ? null : tokenAt(at);
    view.point(pointed);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!dragging) {
      const token = tokenAt(under(event));
      if (token !== null) study.set({ token });
    }
    dragging = false;
  });
  canvas.addEventListener("pointercancel", () => (dragging = false));
  canvas.addEventListener("pointerleave", () => view.point(null));

  function draw(wide) {
    const { layer, state, most, shown } = study;
    deep = layer.experts <= 8 ? 22 : layer.experts <= 16 ? 16 : 14;
    const high = TOP + layer.experts * deep + 2;
    const context = sized(canvas, wide, high);
    const reach = Math.max(most, state.capacity <= 1.5 * most ? state.capacity : 0);
    cell = Math.min(26, (wide - LEFT - SAID - side()) / reach);
    context.font = FONT;
    names(context);
    squares(context);
    if (state.capacity <= reach) line(context, high);
    if (layer.router) probabilities(context, wide);
    canvas.setAttribute("aria-label", `What each expert takes. ${study.sentence} The slider moves the capacity; the tables have the numbers.`);
    readout.textContent = said(shown);
  }

  function names(context) {
    const { layer, state } = study;
    for (let expert = 0; expert < layer.experts; expert += 1) {
      const y = TOP + expert * deep;
      const asked = layer.queue.slice(0, state.placed).filter(([i, c]) => layer.chosen[i * layer.k + c] === expert).length;
      const lost = Math.max(0, asked - state.capacity);
      context.fillStyle = colourOf(expert, view.dark);
      context.fillRect(0, y + 4, 10, deep - 8);
      context.fillStyle = view.colour("--av-ink");
      context.textAlign = "left";
      context.fillText(`expert ${expert}`, 16, y + deep / 2 + 4);
      context.fillStyle = view.colour("--av-quiet");
      const end = LEFT + asked * cell;
      const after = edge() >= end && edge() < end + 30 ? edge() : end; // not across the line
      context.fillText(`${asked - lost}${lost ? `, ${lost} dropped` : ""}`, after + 8, y + deep / 2 + 4);
    }
  }

  function squares(context) {
    const { layer, state, shown } = study;
    const box = (place, expert) => [LEFT + place * cell, TOP + expert * deep + 2, Math.max(0.6, cell - (cell > 3 ? 1 : 0)), deep - 4];
    const marked = [];
    layer.queue.slice(0, state.placed).forEach(([i, c]) => {
      const [expert, place] = [layer.chosen[i * layer.k + c], layer.places[i * layer.k + c]];
      const at = box(place, expert);
      if (place < state.capacity) {
        context.fillStyle = colourOf(expert, view.dark);
        context.fillRect(...at);
      } else {
        context.fillStyle = view.colour("--av-hatch-ground");
        context.fillRect(...at);
        hatched(context, ...at, view.colour("--av-hatch"));
      }
      if (i === shown) marked.push(at);
    });
    context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 2;
    for (const [x, y, w, h] of marked) context.strokeRect(x, y, Math.max(w, 3), h);
  }

  function line(context, high) {
    const x = edge() - 0.5;
    context.fillStyle = context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, 15);
    context.lineTo(x, high);
    context.stroke();
    context.beginPath(); // the grip
    context.moveTo(x - 6, 14);
    context.lineTo(x + 6, 14);
    context.lineTo(x, 21);
    context.fill();
    context.textAlign = x < 40 ? "left" : "center";
    context.fillText(`room for ${study.state.capacity}`, x, 10);
  }

  function probabilities(context, wide) {
    const { layer, shown } = study;
    const [left, across] = [wide - SIDE + 14, SIDE - 52];
    context.fillStyle = view.colour("--av-quiet");
    context.textAlign = "left";
    context.fillText(`router, token ${shown}`, left, 10);
    for (let expert = 0; expert < layer.experts; expert += 1) {
      const [p, mean] = [layer.router[shown * layer.experts + expert], meanOf(layer, expert)];
      const y = TOP + expert * deep;
      context.fillStyle = colourOf(expert, view.dark);
      context.fillRect(left, y + 4, Math.max(1, across * p), deep - 8);
      context.fillStyle = view.colour("--av-ink");
      context.fillRect(left + across * mean - 0.75, y + 2, 1.5, deep - 4);
      context.fillStyle = view.colour("--av-quiet");
      context.fillText(two(p), left + across * Math.max(p, mean) + 6, y + deep / 2 + 4);
    }
  }

  function said(i) {
    const { layer, tokens } = study;
    const parts = study.choices(i).map(({ expert, place, lost, waiting }) => {
      if (waiting) return `expert ${expert}, not placed yet`;
      return lost ? `expert ${expert}, full: dropped` : `expert ${expert}, place ${place + 1}`;
    });
    const tick = layer.router ? " A tick on the router's bars is the mean of all tokens." : "";
    return `Token ${i} “${tokens[i]}”: ${parts.join("; ") || "no expert"}.${tick}`;
  }

  return { node, draw };
}
