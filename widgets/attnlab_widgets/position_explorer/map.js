// The scores of all pairs of positions, of the chosen scheme and head.
import { lookup } from "#lib/colours.js";
import { scoreOf } from "./distances.js";
import { bitmap, choice, el, sized, slider } from "#parts/dom.js";
import { said } from "./study.js";

const EDGE = 22;

export function mapPanel(study, view) {
  const menu = choice("Of", "scheme", study.names.map((name) => [name, name]), (name) => study.choose(name));
  const head = slider("Head", "head", { min: 0, max: 0, step: 1 }, (value) => study.set({ head: value }));
  const canvas = el("canvas", { "aria-hidden": "true" });
  const map = el("div", { class: "pe-map", role: "img", "data-testid": "map" }, canvas);
  const readout = el("p", { class: "pe-readout av-quiet", "data-testid": "map-readout", role: "status" });
  const node = el("section", { class: "av-panel", "aria-label": "Score of every pair" },
    el("h3", { text: "Score of every pair" }), el("div", { class: "av-row pe-menu" }, menu.node, head.node), map, readout);
  let side = 1;
  let legend = "";
  let at = null; // the pair that is pointed at

  function draw() {
    const { scheme, n } = study;
    menu.select.value = scheme.name;
    head.input.max = scheme.heads - 1;
    head.input.value = study.head(scheme);
    head.input.disabled = scheme.heads === 1;
    head.output.textContent = study.head(scheme);
    const room = Math.min(300, node.clientWidth) - EDGE - 2;
    side = room / n;
    const pen = sized(canvas, room + EDGE + 2, room + EDGE + 2);
    const [pixels, largest] = colours();
    pen.imageSmoothingEnabled = false;
    pen.drawImage(bitmap(pixels, n, n), EDGE, EDGE, room, room);
    hatch(pen, room);
    pen.strokeStyle = view.colour("--av-quiet");
    pen.strokeRect(EDGE - 0.5, EDGE - 0.5, room + 1, room + 1);
    pen.fillStyle = view.colour("--av-quiet");
    pen.font = view.font;
    pen.textBaseline = "middle";
    pen.fillText("key position →", EDGE, EDGE / 2);
    pen.save();
    pen.translate(EDGE / 2, EDGE + room);
    pen.rotate(-Math.PI / 2);
    pen.fillText("query position ↓ (0 at the top)", 0, 0);
    pen.restore();
    ring(pen);
    const scale = largest ? `Blue −${largest.toFixed(1)}, orange +${largest.toFixed(1)}` : "Every score is 0";
    const text = `${scale}; hatched: later keys. Click a pair to turn it below.`;
    map.setAttribute("aria-label", `Scheme ${scheme.name}, head ${study.head(scheme)}. ${text}`);
    legend = text;
    hover();
  }

  function hover() {
    const { scheme } = study;
    readout.textContent = at === null ? legend : `Query ${at[0]}, key ${at[1]}, distance ${at[0] - at[1]}: ${said(scoreOf(scheme, study.head(scheme), ...at))}.`;
  }

  function colours() {
    const { scheme, n } = study;
    const chosen = study.head(scheme);
    const table = lookup(true, view.dark);
    let largest = 0;
    for (let i = 0; i < n; i += 1) for (let j = 0; j < n; j += 1) largest = Math.max(largest, Math.abs(scoreOf(scheme, chosen, i, j)) || 0);
    const pixels = new Uint32Array(n * n);
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < n; j += 1) {
        const score = scoreOf(scheme, chosen, i, j);
        if (Number.isFinite(score)) pixels[i * n + j] = table[Math.round(127.5 + 127.5 * (largest ? score / largest : 0))];
      }
    }
    return [pixels, largest];
  }

  function hatch(pen, room) {
    const { scheme, n } = study;
    if (Number.isFinite(scoreOf(scheme, study.head(scheme), 0, n - 1))) return;
    pen.save();
    pen.beginPath();
    pen.moveTo(EDGE + side, EDGE);
    for (let i = 0; i < n; i += 1) {
      pen.lineTo(EDGE + (i + 1) * side, EDGE + i * side);
      pen.lineTo(EDGE + (i + 1) * side, EDGE + (i + 1) * side);
    }
    pen.lineTo(EDGE + room, EDGE);
    pen.clip();
    pen.fillStyle = view.colour("--av-panel");
    pen.fillRect(EDGE, EDGE, room, room);
    pen.strokeStyle = view.colour("--av-line");
    pen.beginPath();
    for (let at = -room; at < room; at += 8) {
      pen.moveTo(EDGE + at, EDGE + room);
      pen.lineTo(EDGE + at + room, EDGE);
    }
    pen.stroke();
    pen.restore();
  }

  /** The pair of query and key that is turned below. */
  function ring(pen) {
    const [i, j] = [study.get("query"), study.get("key")];
    pen.strokeStyle = view.colour("--av-ink");
    pen.lineWidth = 2;
    pen.strokeRect(EDGE + j * side - 1, EDGE + i * side - 1, side + 2, side + 2);
    pen.lineWidth = 1;
  }

  function pair(event) {
    const box = canvas.getBoundingClientRect();
    const place = (offset) => Math.floor((offset - EDGE) / side);
    const [i, j] = [place(event.clientY - box.top), place(event.clientX - box.left)];
    return Math.min(i, j) >= 0 && Math.max(i, j) < study.n ? [i, j] : null;
  }

  map.addEventListener("pointermove", (event) => {
    at = pair(event);
    view.later(hover);
  });
  map.addEventListener("pointerleave", () => {
    at = null;
    view.later(hover);
  });
  map.addEventListener("click", (event) => {
    const found = pair(event);
    if (found) study.set({ query: found[0], key: found[1] });
  });

  return { node, draw };
}
