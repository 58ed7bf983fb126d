// One token's attention over the whole text: the zones, its weights, and below those of its segment.
import { FAR, LOST, NEAR, SEGMENT, columnOf, runsOf, segmentOf, weightOf, zoneOf } from "#lib/film.js";
import { hatched } from "#lib/hatch.js";
import { painted } from "#lib/colours.js";
import { two } from "#lib/plane.js";
import { exactly } from "#lib/words.js";
import { bitmap, el, sized } from "#parts/dom.js";

const [LEFT, BAND, GAP] = [46, 24, 8];
export const ZONES = { [SEGMENT]: "--av-series-0", [NEAR]: "--av-series-1", [FAR]: "--av-series-2" };

export function columnsPanel(study, view) {
  const canvas = el("canvas", { class: "mf-columns", role: "img", "data-testid": "columns" });
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": "readout" });
  const node = el("section", { class: "av-panel mf-attention" }, el("h3", {}, "What the token attends to ", el("span", { class: "av-quiet av-hint", text: "below, all queries of the segment: dark 0, yellow 1, by the root of the weight; hatched: out of reach" })), canvas, readout);
  let [wide, bars, rows] = [0, 0, 0];
  let [shown, map] = ["", null]; // the weights of a segment as pixels, which pointing does not change

  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * study.n);
    const row = Math.floor(((event.clientY - box.top - BAND - bars - GAP) / rows) * rowsOf());
    return { j: Math.min(study.n - 1, Math.max(0, j)), row };
  };
  const rowsOf = () => Math.min(study.layer.segment, study.n - firstOf());
  const firstOf = () => segmentOf(study.layer, study.state.query) * study.layer.segment;
  canvas.addEventListener("pointermove", (event) => view.point(placeOf(event).j));
  canvas.addEventListener("pointerleave", () => view.point(null));
  canvas.addEventListener("click", (event) => {
    const { j, row } = placeOf(event);
    study.set({ query: row >= 0 && row < rowsOf() ? firstOf() + row : j });
  });

  function nameOf(zone) {
    const { near, far } = study.layer;
    return { [SEGMENT]: "segment", [NEAR]: near, [FAR]: far, [LOST]: "lost" }[zone] ?? "";
  }

  function draw(width, { bars: high, rows: deep }) {
    [wide, bars, rows] = [width, high, deep];
    const { layer, n, state: { query, head } } = study;
    const context = sized(canvas, wide, BAND + bars + GAP + rows);
    const cell = (wide - LEFT) / n;
    const base = BAND + bars;
    const ink = (name) => view.colour(name);
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    context.textAlign = "center";
    for (const { zone, first, end } of runsOf(layer, query)) {
      const [x, across] = [LEFT + first * cell, (end - first) * cell];
      if (zone === LOST) hatched(context, x, BAND, across, bars, ink("--av-hatch"));
      if (ZONES[zone]) {
        context.fillStyle = ink(ZONES[zone]);
        context.globalAlpha = 0.1;
        context.fillRect(x, BAND, across, bars);
        context.globalAlpha = 1;
        context.fillRect(x, BAND - 5, across, 4);
      }
      context.fillStyle = ink("--av-quiet");
      if (context.measureText(nameOf(zone)).width < across) context.fillText(nameOf(zone), x + across / 2, 12);
    }
    const weights = Array.from({ length: n }, (_, j) => weightOf(layer, head, query, j).w);
    const largest = Math.max(...weights, 1e-9);
    weights.forEach((w, j) => {
      if (w <= 0) return;
      const zone = zoneOf(layer, query, j);
      const covers = zone === FAR ? layer.covers : 1;
      const tall = Math.max(0.5, bars * (w / largest));
      context.fillStyle = ink(ZONES[zone] ?? "--av-series-4");
      context.fillRect(LEFT + j * cell, base - tall, Math.max(1, covers * cell - (cell > 3 ? 1 : 0)), tall);
    });
    context.fillStyle = ink("--av-quiet");
    context.textAlign = "right";
    context.fillText(two(largest), LEFT - 5, BAND + 9);
    context.fillText("0", LEFT - 5, base);
    paintRows(context, cell, base + GAP);
    if (study.at !== null && !Array.isArray(study.at)) {
      context.strokeStyle = ink("--av-ink");
      context.lineWidth = 1;
      context.strokeRect(LEFT + study.at * cell + 0.5, BAND, Math.max(1, cell - 1), bars + GAP + rows - 1);
    }
    canvas.setAttribute("aria-label", study.sentence);
    readout.textContent = study.at === null || Array.isArray(study.at) ? "Point at a column to read its weight; click to go to that token." : said(study.at);
  }

  function pixelsOf(first, count) {
    const { layer, n, state: { head } } = study;
    const values = Float32Array.from({ length: count * n }, (_, at) => {
      const i = first + Math.floor(at / n);
      return weightOf(layer, head, i, columnOf(layer, i, at % n)).w;
    });
    const out = Uint8Array.from(values, (w, at) => Number(!ZONES[zoneOf(layer, first + Math.floor(at / n), at % n)]));
    return bitmap(painted(values, 1, false, view.dark, out), n, count);
  }

  function paintRows(context, cell, top) {
    const { layer, n, state: { query, head } } = study;
    const [first, count] = [firstOf(), rowsOf()];
    const key = JSON.stringify([study.state.layer, head, first, view.dark]);
    if (key !== shown) [shown, map] = [key, pixelsOf(first, count)];
    const deep = rows / count;
    hatched(context, LEFT, top, n * cell, rows, view.colour("--av-hatch")); // the future, and what has fallen out
    context.imageSmoothingEnabled = false;
    context.drawImage(map, LEFT, top, n * cell, rows);
    context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 1.5;
    context.strokeRect(LEFT + 0.75, top + (query - first) * deep, Math.max(2, (query + 1) * cell - 1.5), deep);
    context.fillStyle = view.colour("--av-quiet");
    context.fillText("queries", LEFT - 5, top + rows / 2 + 4);
  }

  function said(j) {
    const { layer, tokens, state: { query, head } } = study;
    const zone = zoneOf(layer, query, j);
    const name = `Token ${j} “${tokens[j]}”`;
    if (j > query) return `${name} is not read yet.`;
    const back = j === query ? "the query itself" : `${query - j} ${query - j === 1 ? "token" : "tokens"} back`;
    if (zone === LOST) return `${name}, ${back}, has fallen out: this layer no longer reaches it.`;
    const column = columnOf(layer, query, j);
    const of = zone === FAR && layer.covers > 1 ? `, in the vector of tokens ${column} to ${column + layer.covers - 1}` : "";
    return `${name}, ${back}, ${nameOf(zone)}${of}: weight ${exactly(weightOf(layer, head, query, column))}.`;
  }

  return { node, draw };
}
