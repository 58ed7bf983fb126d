// Small words for making elements. Text always goes in as text.
import { hatched } from "../lib/hatch.js";

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "testid") node.dataset.testid = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export const button = (attributes) => el("button", { type: "button", class: "av-button", ...attributes });

/** A label around its control: no id is needed, so two widgets on one page cannot meet. */
export function labelled(text, control, extra = null) {
  return el("label", { class: "av-field" }, el("span", { text }), control, extra);
}

export function choice(text, testid, options, onchange) {
  const select = el("select", { testid: testid, onchange: () => onchange(select.value) });
  for (const [value, said] of options) select.append(el("option", { value, text: said }));
  return { node: labelled(text, select), select };
}

export function toggle(text, testid, onchange) {
  const box = el("input", { type: "checkbox", testid: testid, onchange: () => onchange(box.checked) });
  return { node: el("label", { class: "av-toggle" }, box, el("span", { text })), box };
}

export function slider(text, testid, range, oninput) {
  const input = el("input", { type: "range", testid: testid, ...range });
  const output = el("output", { class: "av-value" });
  input.addEventListener("input", () => oninput(Number(input.value)));
  return { node: labelled(text, input, output), input, output };
}

/** A key on its own: with Ctrl, Alt or Meta it belongs to the browser (its zoom, its history). */
export const plain = (event) => !event.ctrlKey && !event.altKey && !event.metaKey;

/** Size a canvas for the screen's pixels; its context then counts in CSS pixels. */
export function sized(canvas, wide, high) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(wide * ratio)), Math.max(1, Math.round(high * ratio))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, wide, high);
  return context;
}

/** A piece of hatching with what it means. */
export function hatchKey(view, text) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  hatched(sized(canvas, 22, 10), 0, 0, 22, 10, view.colour("--av-hatch"));
  return el("span", { class: "av-masked-key av-quiet" }, canvas, el("span", { text }));
}

/** Pixels (256-colour words) as a canvas of their own. */
export function bitmap(pixels, wide, high) {
  const canvas = document.createElement("canvas");
  canvas.width = wide;
  canvas.height = high;
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), wide, high);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
