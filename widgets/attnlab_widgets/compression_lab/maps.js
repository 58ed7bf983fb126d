// The attention map of a head before and after, and their difference.
import { painted } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { bitmap, choice, el, plain, sized } from "#parts/dom.js";

const KEYS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
const WORDS = { before: "before", after: "after", difference: "difference" };
const NONE = "This model has no attention weights that could be shown.";
const OLD = "These maps are of an earlier setting: Python computes those of this model, and it is not running here, or still at work.";

export function mapsPanel(study, view) {
  const number = (text, name) => choice(text, name, [], (value) => study.set({ [name]: Number(value) }));
  const [example, layer, head] = [number("Example", "example"), number("Layer", "layer"), number("Head", "head")];
  const shown = Object.keys(WORDS).map((kind) => {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const frame = el("div", { class: "cp-map", tabindex: "0", role: "img", "data-testid": `map-${kind}` }, canvas);
    frame.addEventListener("keydown", (event) => {
      const by = plain(event) && KEYS[event.key];
      if (!by) return;
      event.preventDefault();
      point(study.cell.map((at, axis) => at + by[axis]));
    });
    for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, (event) => {
      const box = canvas.getBoundingClientRect();
      point([event.clientY - box.top, event.clientX - box.left].map((at) => Math.floor((at / box.width) * study.n)));
    });
    return { kind, canvas, frame, node: el("div", { class: "cp-one" }, el("span", { class: "cp-caption", text: WORDS[kind] }), frame) };
  });
  const picture = el("canvas", { role: "img", class: "cp-image" });
  const image = el("div", { class: "cp-one cp-example" }, el("span", { class: "cp-caption", text: "example" }), picture);
  const readout = el("p", { class: "av-readout", "data-testid": "readout" });
  const note = el("p", { class: "av-status", "data-testid": "note", hidden: true });
  const row = el("div", { class: "cp-maps" }, image, ...shown.map((each) => each.node));
  const node = el("section", { class: "av-panel cp-attention", "data-testid": "maps" },
    el("div", { class: "av-row" }, el("h3", { text: "Attention" }), example.node, layer.node, head.node, readout), note, row);

  function point(cell) {
    const next = cell.map((at) => Math.max(0, Math.min(study.n - 1, at)));
    if (String(next) === String(study.cell)) return;
    study.cell = next;
    view.changed();
  }

  function list({ select, node: field }, values, now) {
    if (select.dataset.of !== values.join("\n")) {
      select.replaceChildren(...values.map((text, value) => el("option", { value, text })));
      select.dataset.of = values.join("\n");
    }
    select.value = now;
    field.hidden = values.length < 2;
  }

  function draw(wide, room) {
    const { state, lab, heads, n } = study;
    list(example, lab.examples.map(({ name }) => name), lab.examples.indexOf(study.example));
    list(layer, heads.map((_, at) => String(at)), state.layer);
    list(head, Array.from({ length: heads[state.layer] ?? 1 }, (_, at) => String(at)), state.head);
    const [before, after] = [study.map("before"), study.map("after")];
    note.hidden = Boolean(before) && !study.old;
    note.textContent = before ? OLD : NONE;
    row.hidden = readout.hidden = !before;
    if (!before) return;
    const count = lab.image ? 4 : 3;
    const side = room === "one" ? Math.min(214, Math.floor((wide - 14) / 2)) : Math.min(214, Math.floor((wide - 16 * (count - 1)) / count));
    const difference = after.map((w, at) => w - before[at]);
    for (const { kind, canvas, frame } of shown) {
      const values = { before, after, difference }[kind];
      paint(canvas, values, side, kind === "difference");
      frame.setAttribute("aria-label", `Attention ${WORDS[kind]} of layer ${state.layer}, head ${state.head}: ${n} queries by ${n} keys. ${said(before, after, difference)}`);
    }
    image.hidden = !lab.image;
    if (lab.image) drawImage(side);
    const text = said(before, after, difference);
    if (readout.textContent !== text) readout.textContent = text;
  }

  function said(before, after, difference) {
    const [i, j] = study.cell;
    const at = i * study.n + j;
    const { tokens } = study.example;
    if (study.causal && j > i) return `${tokens[i]} does not see ${tokens[j]}, which comes later`;
    const change = difference[at];
    return `${tokens[i]} → ${tokens[j]}: ${before[at].toFixed(3)} before, ${after[at].toFixed(3)} after (${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(3)})`;
  }

  function paint(canvas, values, side, signed) {
    const { n, causal, cell: [i, j] } = study;
    const context = sized(canvas, side, side);
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(painted(values, 1, signed, view.dark), n, n), 0, 0, side, side);
    const cell = side / n;
    if (causal) {
      for (let row = 0; row + 1 < n; row += 1) {
        const [left, wide] = [(row + 1) * cell, side - (row + 1) * cell];
        context.fillStyle = view.colour("--av-hatch-ground");
        context.fillRect(left, row * cell, wide, cell + 0.5);
        hatched(context, left, row * cell, wide, cell, view.colour("--av-hatch"));
      }
    }
    context.strokeStyle = view.colour("--av-series-1");
    context.lineWidth = 2;
    context.strokeRect(j * cell - 1, i * cell - 1, cell + 2, cell + 2);
  }

  /** The image, with the query and the key that are read out. */
  function drawImage(side) {
    const { lab: { image: across }, example: { inputs, name }, cell } = study;
    const context = sized(picture, side, side);
    const step = side / across;
    inputs.forEach((value, at) => {
      const grey = Math.round(255 * value);
      context.fillStyle = `rgb(${grey}, ${grey}, ${grey})`;
      context.fillRect((at % across) * step, Math.floor(at / across) * step, step + 0.5, step + 0.5);
    });
    context.lineWidth = 3;
    cell.forEach((at, which) => {
      context.strokeStyle = view.colour(which ? "--av-series-1" : "--av-series-0");
      const inset = which ? 5 : 2;
      context.strokeRect((at % across) * step + inset, Math.floor(at / across) * step + inset, step - 2 * inset, step - 2 * inset);
    });
    picture.setAttribute("aria-label", `The example, ${name}, ${across} by ${across} pixels; framed in blue the query, in orange the key.`);
  }

  return { node, draw };
}
