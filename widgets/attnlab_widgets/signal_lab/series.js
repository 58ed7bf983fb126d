// Numbers along the tokens as bars; of some a pen, or the arrow keys, can change them.
import { two } from "#lib/plane.js";
import { el, plain } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";

const [LEFT, EDGE] = [36, 5];

/**
 * `values()` are drawn in a colour of the style sheet, `look`; `over()` another series, as a line on
 * its own scale; `hint()` is said beside the title, `first()` beside the first bar. `choose(at)` and `chosen()` are of the bar that
 * `read(at)` reads out; with
 * `pen(from, to)` the numbers can be drawn, from place and value to place and value. Keys may come
 * faster than pictures: `values` and `chosen` tell what is, not what was drawn last.
 */
export function seriesPanel({ title, testid, hint = () => "", look, values, chosen, choose, over = () => [], first = () => "", pen = null, read }) {
  const chart = drawn("svg", { class: `sl-series ${look}`, "data-testid": testid, tabindex: 0, role: "slider", "aria-label": pen ? `${title}: left and right choose, up and down change` : `${title}: left and right choose` });
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": `${testid}-readout` });
  const hinted = el("span", { class: "av-quiet av-hint" });
  const heading = el("h3", {}, el("span", { class: `sl-ink ${look}`, text: title }), " ", hinted);
  const node = el("section", { class: "av-panel" }, heading, chart, readout);
  let [wide, high, low, top] = [0, 0, 0, 1];
  let from = null;

  const x = (at) => LEFT + ((wide - LEFT) * at) / values().length;
  const y = (value) => EDGE + ((high - 2 * EDGE) * (top - value)) / (top - low);
  const place = (event) => {
    const box = chart.getBoundingClientRect();
    const count = values().length;
    const at = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * count);
    const value = top - ((event.clientY - box.top - EDGE) / (high - 2 * EDGE)) * (top - low);
    return { at: Math.min(count - 1, Math.max(0, at)), value: Math.min(top, Math.max(low, value)) };
  };
  chart.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    from = place(event);
    chart.setPointerCapture(event.pointerId);
    if (pen) pen(from, from);
    choose(from.at);
  });
  chart.addEventListener("pointermove", (event) => {
    if (!from) return;
    const to = place(event);
    if (pen) pen(from, to);
    from = to;
    choose(to.at);
  });
  ["pointerup", "pointercancel"].forEach((name) => chart.addEventListener(name, () => (from = null)));
  chart.addEventListener("keydown", (event) => {
    const across = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const up = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!plain(event) || (!across && !(up && pen))) return;
    event.preventDefault();
    const at = chosen();
    if (across) choose(Math.min(values().length - 1, Math.max(0, at + across)));
    else {
      const value = values()[at] + (up * (event.shiftKey ? 5 : 1)) / 10;
      pen({ at, value }, { at, value });
    }
  });

  /** The pen's chart keeps its scale while it is held, and shows at least −1 to 1. */
  function scale(numbers) {
    if (from && pen) return;
    const least = pen ? 1.25 : 0;
    low = Math.min(-least, ...numbers);
    top = Math.max(least, ...numbers);
    if (top - low < 1e-12) [low, top] = [-1, 1];
  }

  function draw(width, height) {
    [wide, high] = [width, height];
    const numbers = values();
    scale(numbers);
    const [across, now] = [(wide - LEFT) / numbers.length, chosen()];
    chart.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    chart.setAttribute("width", wide);
    chart.setAttribute("height", high);
    const line = over();
    const most = Math.max(1e-12, ...line.map(Math.abs));
    const half = (high - 2 * EDGE) / 2;
    chart.replaceChildren(
      drawn("rect", { class: "sl-ground", x: LEFT, y: 0, width: wide - LEFT, height: high }),
      drawn("rect", { class: "sl-now", x: x(now), y: 0, width: across, height: high }),
      drawn("line", { class: "sl-zero", x1: LEFT, x2: wide, y1: y(0), y2: y(0) }),
      ...numbers.map((value, at) => drawn("rect", { class: "sl-bar", x: x(at) + 0.1 * across, width: 0.8 * across, y: y(Math.max(0, value)), height: Math.max(0.5, Math.abs(y(value) - y(0))) })),
      ...(line.length ? [drawn("polyline", { class: "sl-over", points: line.map((value, at) => `${x(at) + across / 2},${EDGE + half * (1 - value / most)}`).join(" ") })] : []),
      ...[low, top].filter(Boolean).map((value) => drawn("text", { x: LEFT - 4, y: value === low ? high - 2 : 11, "text-anchor": "end", text: two(value, Math.abs(value) < 10 ? 2 : 0) })),
      drawn("text", { class: "sl-first", x: x(1) + 4, y: numbers[0] < 0 ? high - 4 : 12, text: first() }),
    );
    hinted.textContent = hint();
    readout.textContent = read(now);
    chart.setAttribute("aria-valuemin", 0);
    chart.setAttribute("aria-valuemax", numbers.length - 1);
    chart.setAttribute("aria-valuenow", now);
    chart.setAttribute("aria-valuetext", readout.textContent);
  }

  return { node, draw };
}
