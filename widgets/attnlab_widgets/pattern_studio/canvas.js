// The mask as a canvas, to point at and to paint on; under its columns the weights of one row.
import { blocksOf, keysOf, MOST, percent, runs } from "./mask.js";
import { moved } from "#lib/keys.js";
import { labelStep } from "#lib/window.js";
import { weight } from "#lib/words.js";
import { choice, el, labelled, sized, slider } from "#parts/dom.js";

const LEFT = 44;
const TOP = 24;
const BARS = 92;

export function maskPanel(study, view) {
  const canvas = el("canvas", { class: "ps-canvas", "aria-hidden": "true" });
  const stage = el("div", { class: "ps-mask", role: "application", tabindex: "0", "aria-roledescription": "mask", "data-testid": "mask" }, canvas);
  const readout = el("p", { class: "av-readout ps-readout", "data-testid": "readout" });
  const button = (text, testid, act, title) => el("button", { type: "button", class: "av-button", text, title, "data-testid": testid, onclick: () => (act(), view.changed()) });
  const undo = button("Undo", "undo", () => study.undo(), "Undo the last change (Ctrl+Z)");
  const redo = button("Redo", "redo", () => study.redo(), "Redo the change (Ctrl+Y)");
  const wipe = button("Wipe painting", "wipe", () => study.wipe(), "Remove all painted cells");
  const sizes = [0, 2, 4, 8, 16, 32].map((size) => [size, size ? String(size) : "none"]);
  const blocks = choice("Blocks of", "block", sizes, (value) => study.set({ block: Number(value) }));
  const bars = el("canvas", { class: "ps-canvas", "aria-hidden": "true" });
  const row = slider("Row", "row", { min: 0, step: 1 }, (value) => study.set({ row: value }));
  const scores = choice("Scores", "scores", [["sharp", "sharp"], ["flat", "flat"], ["equal", "equal"], ["given", "given"]], (value) => study.set({ scores: value }));
  const said = el("p", { class: "ps-row-said", "data-testid": "row-said", role: "status" });
  const legend = el("p", { class: "av-quiet av-hint", "data-testid": "legend" });
  const node = el(
    "section", { class: "av-panel ps-mask-panel", "aria-label": "The mask" },
    readout, stage, legend,
    el("div", { class: "av-row" }, row.node, scores.node),
    said, el("div", { class: "ps-bars", "data-testid": "bars", role: "img" }, bars),
  );
  let side = 4; // pixels of a cell
  let cursor = null; // [i, j] of the keyboard
  let hovered = null; // [i, j] of the pointer, from its move to the next key
  let stroke = null;

  // ---- drawing

  function draw() {
    const { n } = study;
    const room = Math.max(160, Math.min(stage.clientWidth || 400, 380) - LEFT - 6);
    side = Math.max(1, room / n) >= 2 ? Math.floor(room / n) : room / n;
    side = Math.min(side, 40);
    if (cursor && document.activeElement !== stage) cursor = [study.row, cursor[1]];
    if (cursor) cursor = cursor.map((at) => Math.min(at, n - 1));
    paintMask();
    paintBars();
    undo.disabled = !study.past.length;
    redo.disabled = !study.future.length;
    wipe.disabled = !study.cells.size;
    blocks.select.value = String(study.get("block"));
    if (blocks.select.selectedIndex < 0) {
      blocks.select.append(el("option", { value: study.get("block"), text: String(study.get("block")) }));
      blocks.select.value = String(study.get("block"));
    }
    row.input.max = n - 1;
    row.input.value = study.row;
    row.output.textContent = study.row;
    scores.select.value = study.get("scores");
    scores.select.options[3].hidden = scores.select.options[3].disabled = !study.get("_side");
    stage.setAttribute("aria-label", `The mask: ${n} queries down, ${n} keys across, ${study.pairs} pairs may be attended to. Arrow keys move, space allows or forbids, shift and arrows paint, control Z takes back.`);
    legend.textContent = ["Filled: may be attended to", ...(study.get("block") ? ["framed: full block", "hatched: empty block"] : []), ...(study.byHand ? ["dot: painted by hand"] : []), ...(study.fullyMasked.length ? ["∅: this row attends to nothing"] : []), "click or drag to paint"].join(" · ");
    sayRow();
    hover();
  }

  function paintMask() {
    const { n, mask } = study;
    const wide = LEFT + n * side + 4;
    const high = TOP + n * side + 4;
    stage.style.height = `${high}px`;
    const pen = sized(canvas, wide, high);
    pen.globalAlpha = 1;
    pen.fillStyle = view.colour("--av-panel");
    pen.fillRect(LEFT, TOP, n * side, n * side);
    const size = study.get("block");
    const kinds = size ? blocksOf(mask, n, size) : null;
    if (kinds) hatch(pen, kinds, size);
    pen.fillStyle = view.colour("--av-accent");
    const gap = side >= 7 ? 1 : 0;
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < n; j += 1) {
        if (mask[i * n + j]) pen.fillRect(LEFT + j * side + gap / 2, TOP + i * side + gap / 2, side - gap, side - gap);
      }
    }
    if (kinds) frames(pen, kinds, size);
    byHand(pen);
    labels(pen);
    pen.strokeStyle = view.colour("--av-quiet");
    pen.lineWidth = 1;
    pen.strokeRect(LEFT - 0.5, TOP - 0.5, n * side + 1, n * side + 1);
    pen.strokeStyle = view.colour("--av-ink");
    pen.lineWidth = side < 6 ? 1 : 2;
    pen.strokeRect(LEFT - 1, TOP + study.row * side - 0.5, n * side + 2, side + 1);
    const cell = hovered ?? (document.activeElement === stage ? cursor : null);
    if (cell) frame(pen, cell);
  }

  function frame(pen, [i, j]) {
    for (const [colour, width] of [["--av-paper", 5], ["--av-ink", 2]]) {
      pen.strokeStyle = view.colour(colour);
      pen.lineWidth = width;
      pen.strokeRect(LEFT + j * side - 1, TOP + i * side - 1, side + 2, side + 2);
    }
  }

  function hatch(pen, { across, kinds }, size) {
    pen.save();
    pen.beginPath();
    kinds.forEach((kind, at) => {
      if (kind === "empty") pen.rect(...box(at, across, size));
    });
    pen.clip();
    pen.strokeStyle = view.colour("--av-line");
    pen.lineWidth = 1;
    pen.beginPath();
    const whole = study.n * side;
    for (let at = -whole; at < whole; at += 7) {
      pen.moveTo(LEFT + at, TOP + whole);
      pen.lineTo(LEFT + at + whole, TOP);
    }
    pen.stroke();
    pen.restore();
  }

  function frames(pen, { across, kinds }, size) {
    pen.strokeStyle = view.colour("--av-quiet");
    pen.lineWidth = 1;
    pen.globalAlpha = size * side < 16 ? 0.3 : 0.6;
    pen.beginPath();
    const whole = study.n * side;
    for (let at = size * side; at < whole; at += size * side) {
      const place = Math.round(at) - 0.5;
      pen.moveTo(LEFT + place, TOP);
      pen.lineTo(LEFT + place, TOP + whole);
      pen.moveTo(LEFT, TOP + place);
      pen.lineTo(LEFT + whole, TOP + place);
    }
    pen.stroke();
    pen.globalAlpha = 1;
    pen.strokeStyle = view.colour("--av-paper");
    pen.lineWidth = 1.5;
    kinds.forEach((kind, at) => {
      const [x, y, w, h] = box(at, across, size);
      if (kind === "full" && Math.min(w, h) > 9) pen.strokeRect(x + 3.5, y + 3.5, w - 7, h - 7);
    });
  }

  function box(at, across, size) {
    const [top, left] = [Math.floor(at / across) * size, (at % across) * size];
    const [high, wide] = [Math.min(size, study.n - top), Math.min(size, study.n - left)];
    return [LEFT + left * side, TOP + top * side, wide * side, high * side];
  }

  /** Cells that are not what the expression says: a dot, light on filled ones, dark on the others. */
  function byHand(pen) {
    const { n, base, mask } = study;
    for (const place of study.cells.keys()) {
      const [i, j] = [Math.floor(place / MOST), place % MOST];
      if (i >= n || j >= n || base[i * n + j] === mask[i * n + j]) continue;
      pen.fillStyle = view.colour(mask[i * n + j] ? "--av-paper" : "--av-ink");
      pen.beginPath();
      pen.arc(LEFT + (j + 0.5) * side, TOP + (i + 0.5) * side, Math.max(1, side / 6), 0, 7);
      pen.fill();
    }
  }

  function labels(pen) {
    const { n } = study;
    pen.font = view.font;
    pen.textBaseline = "middle";
    const step = labelStep(side, 14);
    const across = labelStep(side, 24);
    const masked = new Set(study.fullyMasked);
    for (let i = 0; i < n; i += 1) {
      const own = i === study.row;
      pen.textAlign = "right";
      pen.fillStyle = view.colour(own ? "--av-ink" : "--av-quiet");
      const near = Math.abs(i - study.row) * side < 14 && !own;
      if (own || (i % step === 0 && !near)) pen.fillText(String(i), LEFT - 6, TOP + (i + 0.5) * side);
      if (masked.has(i)) {
        pen.textAlign = "left";
        pen.fillStyle = view.colour("--av-series-1");
        if (side >= 9 || own || (i % step === 0 && !near)) pen.fillText("∅", 2, TOP + (i + 0.5) * side);
      }
      pen.textAlign = "center";
      pen.fillStyle = view.colour("--av-quiet");
      if (i % across === 0) pen.fillText(String(i), LEFT + (i + 0.5) * side, TOP - 11);
    }
  }

  function paintBars() {
    const { n } = study;
    const weights = study.weights(study.row);
    const largest = Math.max(...weights);
    const pen = sized(bars, LEFT + n * side + 4, BARS + 18);
    pen.fillStyle = view.colour("--av-panel");
    pen.fillRect(LEFT, 4, n * side, BARS - 4);
    pen.font = view.font;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    pen.fillStyle = view.colour("--av-quiet");
    pen.fillText(largest ? weight(largest) : "", LEFT - 6, 10);
    pen.fillText("0", LEFT - 6, BARS - 2);
    const across = labelStep(side, 24);
    pen.textAlign = "center";
    for (let j = 0; j < n; j += across) pen.fillText(String(j), LEFT + (j + 0.5) * side, BARS + 10);
    pen.fillStyle = view.colour("--av-accent");
    const gap = side >= 5 ? 1 : 0;
    weights.forEach((value, j) => {
      const high = largest ? ((BARS - 8) * value) / largest : 0;
      if (value > 0) pen.fillRect(LEFT + j * side + gap / 2, BARS - Math.max(1, high), side - gap, Math.max(1, high));
    });
    pen.strokeStyle = view.colour("--av-quiet");
    pen.lineWidth = 1;
    pen.strokeRect(LEFT - 0.5, 3.5, n * side + 1, BARS - 3);
    if (!largest) {
      pen.fillStyle = view.colour("--av-ink");
      pen.fillText("∅ no key: zero", LEFT + (n * side) / 2, BARS / 2);
    }
  }

  function sayRow() {
    const { n, row: i, mask } = study;
    const keys = keysOf(mask, n, i);
    const weights = study.weights(i);
    const best = weights.indexOf(Math.max(...weights));
    const text = keys.length
      ? `Row ${i} attends to ${keys.length} of ${n} keys: ${runs(keys)}. Its largest weight is ${weight(weights[best])}, on key ${best}.`
      : `Row ${i} attends to nothing: its output is zero.`;
    if (said.textContent !== text) said.textContent = text;
    bars.parentNode.setAttribute("aria-label", text);
  }

  /** The cell under the keyboard or the pointer, in words. */
  function hover() {
    const cell = hovered ?? cursor;
    if (!cell) {
      readout.textContent = `${study.pairs.toLocaleString("en")} of ${(study.n ** 2).toLocaleString("en")} pairs may be attended to (${percent(study.pairs / study.n ** 2)}).`;
      return;
    }
    readout.textContent = cellWords(...cell);
  }

  function cellWords(i, j) {
    const seen = study.allowed(i, j);
    const hand = study.base[i * study.n + j] === seen ? "" : " · painted";
    const share = seen ? ` · weight ${weight(study.weights(i)[j])}` : "";
    return `query ${i} → key ${j}: ${seen ? "may attend" : "may not attend"}${share}${hand}`;
  }

  // ---- the pointer

  function cellAt(event) {
    const place = canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - place.left - LEFT) / side);
    const i = Math.floor((event.clientY - place.top - TOP) / side);
    return { i, j, inside: i >= 0 && j >= 0 && i < study.n && j < study.n };
  }

  canvas.addEventListener("pointerdown", (event) => {
    const { i, j, inside } = cellAt(event);
    if (event.button !== 0) return;
    if (!inside) {
      if (j < 0 && i >= 0 && i < study.n) study.set({ row: i });
      return;
    }
    canvas.setPointerCapture(event.pointerId);
    stroke = { allowed: 1 - study.allowed(i, j), at: [i, j] };
    cursor = [i, j];
    study.hold();
    study.paint([[i, j]], stroke.allowed);
    study.model.set("row", i);
  });
  canvas.addEventListener("pointermove", (event) => {
    const { i, j, inside } = cellAt(event);
    hovered = inside ? [i, j] : null;
    if (stroke && inside) {
      study.paint(between(stroke.at, [i, j]), stroke.allowed, "going on");
      if (i !== stroke.at[0]) study.model.set("row", i);
      stroke.at = cursor = [i, j];
    }
    view.later(hoverAgain);
  });
  const ended = () => {
    if (stroke) study.save();
    stroke = null;
  };
  canvas.addEventListener("pointerup", ended);
  canvas.addEventListener("pointercancel", ended);
  canvas.addEventListener("pointerleave", () => {
    hovered = null;
    view.later(hoverAgain);
  });
  const hoverAgain = () => {
    paintMask();
    hover();
  };

  // ---- the keyboard

  stage.addEventListener("focus", () => {
    cursor ??= [study.row, study.row];
    hoverAgain();
    view.announce(cellWords(...cursor));
  });
  stage.addEventListener("blur", hoverAgain);
  stage.addEventListener("keydown", (event) => {
    const { n } = study;
    hovered = null;
    if ((event.ctrlKey || event.metaKey) && !event.altKey) {
      const key = event.key.toLowerCase();
      if (key === "z" && !event.shiftKey) study.undo();
      else if (key === "y" || (key === "z" && event.shiftKey)) study.redo();
      else return;
      event.preventDefault();
      view.changed();
      return;
    }
    cursor ??= [study.row, study.row];
    if (event.key === " ") {
      event.preventDefault();
      study.paint([cursor], 1 - study.allowed(...cursor));
      study.save();
      view.announce(cellWords(...cursor));
      return;
    }
    const next = stepped(cursor, event.key, n);
    if (!next) return;
    event.preventDefault();
    if (event.shiftKey && event.key.startsWith("Arrow")) study.paint([next], study.allowed(...cursor), "stroke");
    cursor = next;
    study.set({ row: cursor[0] });
    view.announce(cellWords(...cursor));
    view.later(hoverAgain);
  });

  return { node, draw, controls: [undo, redo, wipe], more: [blocks.node] };
}

function stepped([i, j], key, n) {
  if (key === "Home") return [i, 0];
  if (key === "End") return [i, n - 1];
  const next = moved(i * n + j, n * n, key, n);
  if (next === null) return null;
  if (key === "ArrowLeft") return [i, Math.max(0, j - 1)];
  if (key === "ArrowRight") return [i, Math.min(n - 1, j + 1)];
  return [Math.floor(next / n), key.startsWith("Page") ? j : next % n];
}

/** The cells of a straight line, so that a quick hand leaves no gaps. */
function between([i0, j0], [i1, j1]) {
  const steps = Math.max(Math.abs(i1 - i0), Math.abs(j1 - j0), 1);
  return Array.from({ length: steps }, (_, at) => {
    const share = (at + 1) / steps;
    return [Math.round(i0 + (i1 - i0) * share), Math.round(j0 + (j1 - j0) * share)];
  });
}
