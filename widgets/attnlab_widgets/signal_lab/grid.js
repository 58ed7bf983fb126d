// Numbers as an image, blue below 0 and orange above: the map of the tokens, and the state.
import { painted } from "#lib/colours.js";
import { bitmap, el, plain, sized } from "#parts/dom.js";

/**
 * `shape()` is [rows, columns], `value(row, column)` a number; `hint()` stands beside the title.
 * `mark()` is the cell, row or column that is framed: [row, column], either of them null.
 * `press(row, column)` for a click, `keys(event)` returns whether a key was for it,
 * `read(row, column)` what is said of a cell (or of none).
 */
export function gridPanel(view, { title, testid, hint, shape, value, mark, press, keys, read }) {
  const canvas = el("canvas", { class: "sl-grid", tabindex: 0, role: "img", "data-testid": testid });
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": `${testid}-readout` });
  const heading = el("h3", {});
  const node = el("section", { class: "av-panel" }, heading, canvas, readout);
  const cell = (event) => {
    const box = canvas.getBoundingClientRect();
    const [rows, columns] = shape();
    const found = [((event.clientY - box.top) / box.height) * rows, ((event.clientX - box.left) / box.width) * columns].map(Math.floor);
    return [Math.min(rows - 1, Math.max(0, found[0])), Math.min(columns - 1, Math.max(0, found[1]))];
  };
  canvas.addEventListener("pointermove", (event) => (readout.textContent = read(...cell(event))));
  canvas.addEventListener("pointerleave", () => (readout.textContent = read()));
  canvas.addEventListener("click", (event) => press(...cell(event)));
  canvas.addEventListener("keydown", (event) => plain(event) && keys(event) && event.preventDefault());

  function draw(wide, high) {
    const [rows, columns] = shape();
    const context = sized(canvas, wide, high);
    const values = Float64Array.from({ length: rows * columns }, (_, at) => value(Math.floor(at / columns), at % columns));
    const largest = values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(painted(values, largest, true, view.dark), columns, rows), 0, 0, wide, high);
    const [row, column] = mark();
    const [tall, across] = [high / rows, wide / columns];
    context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 1.5;
    context.strokeRect(
      column === null ? 0.75 : column * across, row === null ? 0.75 : row * tall,
      column === null ? wide - 1.5 : Math.max(2, across), row === null ? high - 1.5 : Math.max(2, tall),
    );
    heading.replaceChildren(title, " ", el("span", { class: "av-quiet av-hint", text: hint() }));
    readout.textContent = read();
    canvas.setAttribute("aria-label", `${title}, ${hint()}. ${readout.textContent} Arrow keys choose the token.`);
  }

  return { node, draw };
}
