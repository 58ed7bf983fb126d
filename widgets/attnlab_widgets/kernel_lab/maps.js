// The three maps side by side: exact, as the features imply, and the difference; a pair is read in all of them.
import { lookup, painted } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { moved } from "#lib/keys.js";
import { bitmap, el, plain, sized } from "#parts/dom.js";
import { weightLegend } from "#parts/legend.js";
import { seenBy } from "./approximation.js";
import { isSigned, keyName, reach } from "./words.js";

const [NAMES, ABOVE, LARGEST, SMALLEST] = [54, 44, 236, 11]; // pixels
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const short = (word) => (word.length <= 7 ? word : `${word.slice(0, 6)}…`);

export function mapsPanel(study, view) {
  const parts = ["exact softmax", "", "the difference"].map((text) => {
    const title = el("h3", { text });
    const canvas = el("canvas", { "aria-hidden": "true" });
    return { title, canvas, node: el("div", { class: "kl-map" }, title, canvas) };
  });
  const readout = el("p", { class: "kl-pair av-quiet", testid: "pair" });
  const key = el("div", { class: "kl-keys" });
  const stage = el("div", { class: "kl-maps", tabindex: "0", role: "application", "aria-roledescription": "three maps", testid: "maps" }, ...parts.map(({ node }) => node), readout);
  const node = el("section", { class: "av-panel", "aria-label": "The maps" }, stage, key);
  let place = null; // where the cells of the maps lie
  let known = ""; // what the legend was drawn for

  function draw(room, across) {
    const { head, seen } = study;
    const names = across === 3 ? NAMES : 0;
    const side = Math.floor(Math.min(LARGEST, (room - 14 * (across - 1)) / across - names - 2));
    place = { names, above: names ? ABOVE : 4, side };
    const difference = seen.map.map((value, at) => value - seen.exact[at]);
    const signed = isSigned(seen);
    parts[1].title.textContent = study.kinds[study.state.feature];
    const alone = (map) => head.causal && head.n === head.m && Math.abs(map[0] - 1) < 1e-3; // the only key of the first query, with all of its weight
    [[seen.exact, false, alone(seen.exact)], [seen.map, signed, alone(seen.map)], [difference, true, false]].forEach(([values, both, framed], at) => paint(parts[at].canvas, values, both, framed, head));
    drawKey(signed);
    point();
  }

  function paint(canvas, values, both, framed, { n, m, causal }) {
    const { names, above, side } = place;
    const context = sized(canvas, names + side + 2, above + side + 2);
    const [wide, high] = [side / m, side / n];
    if (causal) { // what is not masked is painted over it
      context.fillStyle = view.colour("--av-hatch-ground");
      context.fillRect(names, above, side, side);
      hatched(context, names, above, side, side, view.colour("--av-hatch"));
    }
    const mask = Uint8Array.from({ length: n * m }, (_, at) => Number(at % m >= seenBy(Math.floor(at / m), study.head)));
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(painted(values, 1, both, view.dark, mask), m, n), names, above, side, side);
    if (framed) {
      context.fillStyle = view.colour("--av-paper");
      context.fillRect(names, above, wide, high);
      context.strokeStyle = view.colour("--av-quiet");
      context.strokeRect(names + 0.5, above + 0.5, wide - 1, high - 1);
    }
    context.strokeStyle = view.colour("--av-line");
    context.strokeRect(names - 0.5, above - 0.5, side + 1, side + 1);
    if (names) label(context, wide, high);
  }

  function label(context, wide, high) {
    const { names, above } = place;
    const { head } = study;
    const { n, m } = head;
    context.font = FONT;
    context.fillStyle = view.colour("--av-quiet");
    context.textBaseline = "middle";
    context.textAlign = "right";
    const every = (size) => Math.max(1, Math.ceil(SMALLEST / size));
    for (let i = 0; i < n; i += every(high)) context.fillText(short(head.names[i]), names - 5, above + (i + 0.5) * high);
    context.textAlign = "left";
    for (let j = Math.max(0, m - n); j < m; j += every(wide)) {
      context.save();
      context.translate(names + (j + 0.5) * wide, above - 5);
      context.rotate(-Math.PI / 2);
      context.fillText(short(keyName(head, j)), 0, 0);
      context.restore();
    }
  }

  /** A bar of colours of both signs between two words. */
  function signs(from, to) {
    const canvas = el("canvas", { "aria-hidden": "true" });
    sized(canvas, 60, 10).drawImage(bitmap(Uint32Array.from(lookup(true, view.dark)), 256, 1), 0, 0, 60, 10);
    return el("span", { class: "av-legend-key", title: "The colour goes by the square root" }, el("span", { text: from }), canvas, el("span", { text: to }));
  }

  function drawKey(signed) {
    const { causal, n, m } = study.head;
    const far = signed ? reach(study.seen) : "";
    const wanted = `${view.dark} ${n === m} ${signed} ${far}`;
    if (wanted === known) return;
    known = wanted;
    const legend = weightLegend(view, { masked: causal, alone: causal && n === m });
    legend.append(signs("difference −1: too little", "+1: too much"));
    if (signed) legend.append(signs("weights of both signs: −1", "+1"));
    if (far) legend.append(el("span", { testid: "reach", text: far }));
    key.replaceChildren(legend);
  }

  /** A frame around the pair that is read, in all three. */
  function point() {
    const { head, shownCell: { i, j } } = study;
    const { names, above, side } = place;
    const [wide, high] = [side / head.m, side / head.n];
    parts.forEach(({ node: part }) => {
      let frame = part.querySelector(".kl-frame");
      if (!frame) part.append((frame = el("div", { class: "kl-frame" })));
      const top = part.querySelector("canvas").offsetTop + above + i * high;
      Object.assign(frame.style, { left: `${names + j * wide - 2}px`, top: `${top - 2}px`, width: `${wide + 4}px`, height: `${high + 4}px` });
      frame.classList.toggle("kl-faint", study.cell === null);
    });
    readout.textContent = study.pair;
    stage.setAttribute("aria-label", `Attention maps of ${head.n} queries and ${head.m} keys: exact softmax, ${study.kinds[study.state.feature]}, and their difference. ${study.pair} Arrow keys choose another pair.`);
  }

  parts.forEach(({ canvas }) => {
    canvas.addEventListener("pointermove", (event) => {
      const { n, m } = study.head;
      const { names, above, side } = place;
      const [i, j] = [Math.floor(((event.offsetY - above) / side) * n), Math.floor(((event.offsetX - names) / side) * m)];
      const inside = i >= 0 && i < n && j >= 0 && j < seenBy(i, study.head);
      at(inside ? { i, j } : null);
    });
    canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && at(null));
  });

  function at(cell) {
    if (cell?.i === study.cell?.i && cell?.j === study.cell?.j) return;
    study.cell = cell;
    view.later(point);
  }

  stage.addEventListener("keydown", (event) => {
    const { n, m } = study.head;
    const { i, j } = study.shownCell;
    const next = event.key === "Escape" ? -1 : plain(event) ? moved(i * m + j, n * m, event.key, m) : null;
    if (next === null) return;
    event.preventDefault();
    const [row, column] = [Math.floor(next / m), next % m];
    if (next < 0) study.cell = null;
    else study.cell = { i: row, j: Math.min(column, seenBy(row, study.head) - 1) };
    point();
    view.speak(study.pair);
  });

  return { node, draw };
}
