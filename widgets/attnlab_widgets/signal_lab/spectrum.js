// The spectra of the kernel and of the signal, from waves that stand still to half a turn per token.
import { two } from "#lib/plane.js";
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";

const [LEFT, TOP, BOTTOM] = [36, 4, 16];
const TICKS = [[0, "0", "start"], [1, "½ turn per token", "end"]];

export function spectrumPanel(study) {
  const chart = drawn("svg", { class: "sl-series", role: "img", "aria-label": "Spectra of kernel and signal; the tables have the numbers", "data-testid": "spectrum" });
  const heading = el("h3", {}, "Spectra: ", el("span", { class: "sl-ink sl-kernel", text: "kernel" }), ", ", el("span", { class: "sl-ink sl-signal", text: "signal" }));
  const node = el("section", { class: "av-panel" }, heading, chart);

  function draw(wide, high) {
    const x = (share) => LEFT + (wide - LEFT) * share;
    const curve = (values, look) => {
      const largest = Math.max(...values, 1e-12);
      const points = values.map((value, at) => `${x(at / (values.length - 1))},${TOP + (high - TOP - BOTTOM) * (1 - value / largest)}`);
      return drawn("polyline", { class: look, points: points.join(" ") });
    };
    chart.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    chart.setAttribute("width", wide);
    chart.setAttribute("height", high);
    chart.replaceChildren(
      drawn("rect", { class: "sl-ground", x: LEFT, y: 0, width: wide - LEFT, height: high - BOTTOM }),
      curve(study.spectra[1], "sl-line sl-signal"),
      curve(study.spectra[0], "sl-line sl-kernel"),
      ...TICKS.map(([share, text, anchor]) => drawn("text", { x: x(share), y: high - 3, "text-anchor": anchor, text })),
      drawn("text", { x: LEFT - 4, y: 12, "text-anchor": "end", text: two(Math.max(...study.spectra[0])) }),
    );
  }

  return { node, draw };
}
