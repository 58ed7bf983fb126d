// The panels as they stand, as SVG or PNG: their canvases as images, their words as text.
import { printable } from "../lib/printable.js";
import { button, el } from "./dom.js";

const PANELS = ".av-panel-heads, .av-panel-lines, .av-panel-matrix, .av-summary, .av-status, .av-reading";
const WORDS = "h3, .av-summary, .av-status, .av-head-label, .av-layer-label, .av-head-name, .av-head-value, .av-token-number, .av-token-text, .av-token-weight, .av-columns-title span, .av-legend span, .av-legend li, .av-ticks span, .av-readout, .av-scale .av-quiet, .av-hint";

/** The lines in which a text stands on the page, each with its range. */
function linesOf(node) {
  const text = node.firstChild;
  const whole = document.createRange();
  whole.selectNodeContents(node);
  if (node.childNodes.length > 1 || whole.getClientRects().length < 2) return [{ range: whole, text: node.textContent }];
  const lines = [];
  for (const { index, 0: word } of text.data.matchAll(/\S+/g)) {
    const range = document.createRange();
    range.setStart(text, index);
    range.setEnd(text, index + word.length);
    const { top } = range.getBoundingClientRect();
    const last = lines.at(-1);
    if (last && Math.abs(last.top - top) < 4) {
      last.range.setEnd(text, index + word.length);
      last.text += ` ${word}`;
    } else {
      lines.push({ range, top, text: word });
    }
  }
  return lines;
}

/** Panels and words of the attention view; other widgets name their own. */
const LOOK = { panels: PANELS, words: WORDS };

/** What is seen, in places relative to the widget; what is scrolled out of a list is left out. */
function seen(root, { panels, words: leaves }) {
  const frame = root.getBoundingClientRect();
  const parts = [];
  const place = (node) => {
    const box = node.getBoundingClientRect();
    return { x: box.left - frame.left, y: box.top - frame.top, wide: box.width, high: box.height };
  };
  const hidden = (node) => {
    const list = node.closest(".av-scroll, .av-heads");
    if (!list) return false;
    const [box, limits] = [node.getBoundingClientRect(), list.getBoundingClientRect()];
    return box.bottom > limits.bottom + 2 || box.top < limits.top - 2;
  };
  for (const panel of root.querySelectorAll(panels)) {
    for (const canvas of panel.querySelectorAll("canvas")) {
      if (canvas.width < 2 || hidden(canvas) || !canvas.checkVisibility()) continue;
      parts.push({ ...place(canvas), canvas, opacity: Number(getComputedStyle(canvas).opacity) });
    }
    for (const node of panel.querySelectorAll(".av-chosen")) {
      if (!hidden(node)) parts.push({ ...place(node), frame: getComputedStyle(node).outlineColor });
    }
    const words = [...(panel.matches(leaves) ? [panel] : []), ...panel.querySelectorAll(leaves)];
    for (const node of words) {
      const leaf = [...node.childNodes].every((child) => child.nodeType === Node.TEXT_NODE);
      if (!leaf || !node.textContent.trim() || hidden(node) || !node.checkVisibility()) continue;
      const { color, fontSize, fontWeight } = getComputedStyle(node);
      const look = { color, size: parseFloat(fontSize), weight: fontWeight };
      for (const line of linesOf(node)) parts.push({ ...place(line.range), text: line.text, ...look });
    }
  }
  return { parts, wide: Math.ceil(frame.width), high: Math.ceil(frame.height) };
}

const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

function asSvg(root, paper, look = LOOK) {
  const { parts, wide, high } = seen(root, look);
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const add = (name, attributes) => {
    const node = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    svg.append(node);
    return node;
  };
  svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  svg.setAttribute("width", wide);
  svg.setAttribute("height", high);
  svg.setAttribute("font-family", FONT);
  add("rect", { width: wide, height: high, fill: paper });
  for (const part of parts) {
    const box = { x: part.x.toFixed(1), y: part.y.toFixed(1) };
    if (part.canvas) {
      const href = part.canvas.toDataURL("image/png");
      add("image", { ...box, width: part.wide, height: part.high, opacity: part.opacity, href, style: "image-rendering: pixelated" });
    } else if (part.frame) {
      add("rect", { ...box, width: part.wide, height: part.high, fill: "none", stroke: part.frame, "stroke-width": 3 });
    } else {
      const look = { "font-size": part.size, "font-weight": part.weight, fill: part.color, "dominant-baseline": "central" };
      add("text", { ...box, y: (part.y + part.high / 2).toFixed(1), ...look }).textContent = printable(part.text);
    }
  }
  return new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
}

/** The same as pixels, two per unit. */
async function asPng(root, paper, look = LOOK) {
  const image = new Image();
  image.src = URL.createObjectURL(asSvg(root, paper, look));
  await image.decode();
  URL.revokeObjectURL(image.src);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Buttons that save what is seen as `name`.png and `name`.svg. */
export function savers(view, name, look = LOOK) {
  const saver = (text, act) =>
    button({ text, title: `Save what is seen as ${text}`,
      "aria-label": `Save as ${text}`, testid: `save-${text.toLowerCase()}`,
      onclick: async () => {
        const file = `${name}.${text.toLowerCase()}`;
        view.fresh?.(); // all points, where they come one after another
        download(await act(view.root, view.colour("--av-paper"), look), file);
        view.announce(`saved as ${file}`);
      },
    });
  return el("span", { class: "av-row av-zoom av-save" }, saver("PNG", asPng), saver("SVG", asSvg));
}
