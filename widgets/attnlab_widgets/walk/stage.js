// The numbers of the step as a map, a row for each letter, and those of one letter as bars.
import { css, lookup, painted, parse } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { bitmap, el, plain, sized } from "#parts/dom.js";
import { weightLegend } from "#parts/legend.js";
import { fixed, four, placed } from "./words.js";

const [HIGH, BARS, LABELS, ABOVE, LEAST] = [250, 64, 30, 16, 9]; // pixels
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const amounts = (kind) => kind === "weights" || kind === "chances";

export function stagePanel(study, view) {
  const title = el("h3", { testid: "title" });
  const heads = el("div", { class: "wk-heads-of", role: "group", "aria-label": "Heads of this layer", testid: "heads-of" });
  const canvas = el("canvas", { class: "wk-map", tabindex: "0", role: "application", testid: "map" });
  const legends = { amounts: el("div"), signed: el("div", { class: "av-legend av-quiet", testid: "signed-legend" }) };
  const readout = el("p", { class: "av-readout av-quiet", "aria-live": "polite", testid: "readout" });
  const node = el("section", { class: "av-panel wk-stage", "aria-label": "The numbers of this step" }, el("div", { class: "wk-title" }, title, heads), canvas, readout, legends.amounts, legends.signed);
  let place = null; // where the map was drawn
  let known = ""; // what the legends were drawn for

  function draw(room) {
    const { step, n } = study;
    const square = step.kind === "scores" || step.kind === "weights";
    const map = study.map;
    const row = Math.min(26, HIGH / n);
    const [high, wide] = [row * n, square ? Math.min(row * n, room - LABELS - 2) : room - LABELS - 2];
    place = { row, high, wide, square, map };
    if (study.cell !== null && (study.cell.column >= map.width || study.cell.at >= n)) study.cell = null;
    title.textContent = `${step.part}: ${step.name}`;
    const which = study.layer !== null && step.kind !== "vectors" ? `, head ${study.layer}.${study.head}` : "";
    drawHeads(step);
    const context = sized(canvas, room, ABOVE + HIGH + 10 + BARS);
    context.font = `11px ${FONT}`;
    drawMap(context);
    drawBars(context);
    drawLegends(step, map);
    hover();
    canvas.setAttribute("aria-label", `${title.textContent}${which}: ${n} rows, one for each letter, and ${map.width} columns. Up and down choose a letter, left and right a number. ${readout.textContent}`);
  }

  function drawHeads({ kind }) {
    const count = study.layer === null || kind === "vectors" ? 0 : study.network.heads[study.layer];
    if (heads.contains(heads.getRootNode().activeElement) && [...heads.children].indexOf(heads.getRootNode().activeElement) >= (count < 2 ? 0 : count)) canvas.focus({ preventScroll: true });
    heads.hidden = count < 2;
    while (heads.children.length > count) heads.lastChild.remove();
    for (let head = heads.children.length; head < count; head += 1) {
      heads.append(el("button", { type: "button", class: "wk-name", testid: `look-${head}`, onclick: () => study.set({ head }) }));
    }
    [...heads.children].forEach((one, head) => {
      one.textContent = `head ${study.layer}.${head}`;
      one.setAttribute("aria-current", String(head === study.head));
    });
  }

  /** 1 where a pair is masked. */
  const maskOf = (n) => Uint8Array.from({ length: n * n }, (_, at) => Number(at % n > Math.floor(at / n)));

  function drawMap(context) {
    const { row, high, wide, square, map: { values, width } } = place;
    const { step, n, tokens, network: { shown } } = study;
    const mask = square ? maskOf(n) : null;
    const numbers = mask ? values.map((value, at) => (mask[at] ? 0 : value)) : values;
    place.largest = amounts(step.kind) ? 1 : numbers.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const [left, top] = [LABELS, ABOVE];
    if (square) hatchedUpper(context, left, top, wide / n, row, n);
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(painted(numbers, place.largest, !amounts(step.kind), view.dark, mask), width, n), left, top, wide, high);
    if (step.kind === "weights") alone(context, left, top, wide / n, row);
    context.fillStyle = view.colour("--av-ink");
    context.textBaseline = "middle";
    context.textAlign = "right";
    if (row >= LEAST) {
      tokens.forEach((token, i) => {
        context.font = `${i === study.at ? "bold " : ""}${Math.min(12, Math.floor(row))}px ${FONT}`;
        context.fillText(cut(shown[token]), left - 6, top + (i + 0.5) * row);
      });
    }
    context.textAlign = "center";
    if (square && wide / n >= LEAST) {
      context.font = `${Math.min(12, Math.floor(row))}px ${FONT}`;
      tokens.forEach((token, j) => context.fillText(cut(shown[token]), left + (j + 0.5) * (wide / n), top - 8));
    }
    context.strokeStyle = view.series(1);
    context.lineWidth = 2;
    context.strokeRect(left - 1, top + study.at * row - 1, wide + 2, row + 2);
    if (study.cell === null) return;
    const cell = wide / place.map.width;
    context.strokeRect(left + study.cell.column * cell - 1, top + (study.cell.at ?? study.at) * row - 1, cell + 2, row + 2);
  }

  function hatchedUpper(context, left, top, cell, row, n) {
    for (let i = 0; i + 1 < n; i += 1) {
      context.fillStyle = view.colour("--av-hatch-ground");
      context.fillRect(left + (i + 1) * cell, top + i * row, (n - i - 1) * cell, row);
      hatched(context, left + (i + 1) * cell, top + i * row, (n - i - 1) * cell, row, view.colour("--av-hatch"));
    }
  }

  /** The first letter attends to itself alone: a frame in the place of a colour. */
  function alone(context, left, top, cell, row) {
    context.fillStyle = view.colour("--av-paper");
    context.fillRect(left, top, cell, row);
    context.strokeStyle = view.colour("--av-quiet");
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, top + 0.5, Math.max(1, cell - 1), Math.max(1, row - 1));
  }

  function drawBars(context) {
    const { high, wide, square, map } = place;
    const { step, n, tokens, network: { shown } } = study;
    const row = study.row(study.at, map);
    const seen = square ? study.at + 1 : row.length;
    const finite = row.subarray(0, seen);
    const top = ABOVE + high + 10;
    const names = step.kind === "logits" || step.kind === "chances" ? shown : square ? tokens.map((token) => shown[token]) : null;
    const room = BARS - (names ? 14 : 0);
    const most = amounts(step.kind) ? 1 : Math.max(0, ...finite);
    const least = amounts(step.kind) ? 0 : Math.min(0, ...finite);
    const unit = room / (most - least || 1);
    const zero = top + most * unit;
    const cell = wide / row.length;
    for (let j = 0; j < seen; j += 1) {
      context.fillStyle = css(row[j], amounts(step.kind) ? 1 : place.largest, !amounts(step.kind), view.dark);
      const size = Math.max(0.5, Math.abs(row[j]) * unit);
      const [x, y, w] = [LABELS + j * cell, row[j] > 0 ? zero - size : zero, Math.max(1, cell - (cell > 4 ? 1 : 0))];
      context.fillRect(x, y, w, size);
      context.strokeStyle = view.colour("--av-quiet");
      context.lineWidth = 0.5;
      if (cell > 4) context.strokeRect(x, y, w, size);
    }
    if (square && seen < n) hatched(context, LABELS + seen * cell, top, (n - seen) * cell, room, view.colour("--av-hatch"));
    context.fillStyle = view.colour("--av-quiet");
    context.fillRect(LABELS, zero, wide, 1);
    context.fillStyle = view.colour("--av-ink");
    context.textAlign = "center";
    context.font = `${Math.min(12, Math.max(8, Math.floor(cell)))}px ${FONT}`;
    if (names && cell >= 6) names.forEach((name, j) => context.fillText(cut(name), LABELS + (j + 0.5) * cell, top + BARS - 6));
    context.font = `bold 12px ${FONT}`;
    context.textAlign = "right";
    context.fillText(cut(shown[tokens[study.at]]), LABELS - 6, top + room / 2);
    if (study.cell === null || (study.cell.at ?? study.at) !== study.at) return;
    context.strokeStyle = view.series(1);
    context.lineWidth = 2;
    context.strokeRect(LABELS + study.cell.column * cell - 1, top - 1, cell + 2, room + 2);
  }

  const cut = (name) => [...name].slice(0, 3).join("");

  function drawLegends({ kind }) {
    const signed = !amounts(kind);
    const now = `${kind} ${view.dark} ${place.largest}`;
    legends.amounts.hidden = signed;
    legends.signed.hidden = !signed;
    if (now === known) return;
    known = now;
    if (kind === "weights") legends.amounts.replaceChildren(weightLegend(view));
    else if (kind === "chances") legends.amounts.replaceChildren(el("div", { class: "av-legend av-quiet", testid: "probability-legend" }, colourKey(false, "probability 0", "1")));
    else {
      const masked = kind === "scores" ? [el("span", { text: "hatched: masked" })] : [];
      legends.signed.replaceChildren(colourKey(true, `−${fixed(place.largest)}`, `+${fixed(place.largest)}`), ...masked);
    }
  }

  function colourKey(signed, from, to) {
    const key = el("canvas", { "aria-hidden": "true" });
    const context = sized(key, 120, 10);
    context.drawImage(bitmap(Uint32Array.from(lookup(signed, view.dark)), 256, 1), 0, 0, 120, 10);
    return el("span", { class: "av-legend-key", title: "The colour goes by the square root of the size" }, el("span", { text: from }), key, el("span", { text: to }));
  }

  function hover() {
    const said = study.cell === null ? "Point at a number, or use the arrow keys." : pointed(study.cell.at ?? study.at, study.cell.column);
    readout.setAttribute("aria-live", study.passing ? "off" : "polite");
    if (readout.textContent !== said) readout.textContent = said;
  }

  /** The number of a letter's row, in words. */
  function pointed(at, column) {
    const { step, tokens, network } = study;
    const value = study.row(at, place.map)[column];
    const row = placed(network, tokens, at);
    const number = amounts(step.kind) ? four(value) : fixed(value);
    if (place.square) return `${row} and ${placed(network, tokens, column)}: ${column > at ? "masked" : number}`;
    if (step.kind === "vectors" || step.kind === "heads") return `${row}, number ${column}: ${number}`;
    return `“${network.shown[column]}” after ${row}: ${number}`;
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - LABELS, event.clientY - box.top - ABOVE];
    if (!place || x < 0 || x >= place.wide) return null;
    const column = Math.floor((x / place.wide) * place.map.width);
    return { column, at: y >= 0 && y < place.high ? Math.floor(y / place.row) : null };
  }

  canvas.addEventListener("pointermove", (event) => {
    const found = under(event);
    if (found?.at === study.cell?.at && found?.column === study.cell?.column) return;
    study.cell = found;
    view.changed();
  });
  canvas.addEventListener("pointerleave", () => {
    study.cell = null;
    view.changed();
  });
  canvas.addEventListener("click", (event) => {
    const found = under(event);
    if (found && found.at !== null) study.set({ at: found.at });
  });
  canvas.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    const steps = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1 };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      if (study.cell) study.cell = { ...study.cell, at: null };
      study.set({ at: Math.min(study.n - 1, Math.max(0, study.at + step)) });
    }
    else {
      const from = study.cell?.column ?? -Infinity;
      study.cell = { at: null, column: Math.min(place.map.width - 1, Math.max(0, from + step)) };
      view.changed();
    }
  });

  return { node, draw };
}
