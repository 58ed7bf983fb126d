// The weights by size: what is kept above what is cut, and where the cut is.
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";

const BINS = 41;
const HIGH = 178;
const [LEFT, RIGHT, TOP, BOTTOM] = [8, 8, 6, 34];

/** How many weights of these matrices are kept and cut, from -top to top in BINS bins. */
export function counted(network, names, masks) {
  const all = names.map((name) => [network.values(name), masks.get(name)]);
  let top = 0;
  for (const [values] of all) for (let at = 0; at < values.length; at += 1) if (Math.abs(values[at]) > top) top = Math.abs(values[at]);
  const [kept, gone] = [new Array(BINS).fill(0), new Array(BINS).fill(0)];
  for (const [values, mask] of all) {
    for (let at = 0; at < values.length; at += 1) {
      const bin = Math.min(BINS - 1, Math.max(0, Math.floor(((values[at] / (top || 1) + 1) / 2) * BINS)));
      (mask && !mask[at] ? gone : kept)[bin] += 1;
    }
  }
  return { top, kept, gone };
}

export function histogramPanel(study, view) {
  const title = el("h3");
  const svg = drawn("svg", { role: "img", class: "cp-histogram" });
  const legend = el("div", { class: "cp-legend" }, key("kept", "kept"), key("gone", "cut"));
  const node = el("section", { class: "av-panel cp-weights", "data-testid": "histogram" }, title, svg, legend);

  function key(kind, text) {
    return el("span", {}, el("span", { class: `cp-key cp-key-${kind}`, "aria-hidden": "true" }), text);
  }

  function draw(wide, room) {
    const { state, network, masks } = study;
    const together = state.cut === "all weights";
    const names = together ? network.told.matrices : [state.matrix];
    const { top, kept, gone } = counted(network, names, masks);
    const least = network.threshold(state, state.matrix);
    const across = room === "one" ? wide : Math.floor((wide - 40) * (room === "three" ? 0.3 : 0.48));
    const most = Math.max(1, ...kept.map((each, at) => each + gone[at]));
    const [inner, high] = [across - LEFT - RIGHT, HIGH - TOP - BOTTOM];
    const up = (value) => (high * value) / most;
    const x = (value) => LEFT + ((value / (top || 1) + 1) / 2) * inner;
    title.textContent = together ? "The weights of all matrices" : "The weights of this matrix";
    const parts = [];
    const width = inner / BINS;
    kept.forEach((each, at) => {
      const left = LEFT + at * width;
      const box = (y, tall, kind) => parts.push(drawn("rect", { x: left + 0.5, y, width: Math.max(0.5, width - 1), height: tall, class: `cp-${kind}` }));
      if (gone[at]) box(TOP + high - up(gone[at]), up(gone[at]), "gone");
      if (each) box(TOP + high - up(gone[at] + each), up(each), "kept");
    });
    parts.push(drawn("line", { x1: LEFT, x2: across - RIGHT, y1: TOP + high, y2: TOP + high, class: "cp-axis" }));
    for (const value of [-top, 0, top]) {
      parts.push(drawn("text", { x: x(value), y: HIGH - 18, "text-anchor": value < 0 ? "start" : value ? "end" : "middle", class: "cp-tick", text: value.toFixed(2) }));
    }
    if (least !== null && Number.isFinite(least)) {
      for (const side of [-1, 1]) parts.push(drawn("line", { x1: x(side * least), x2: x(side * least), y1: TOP, y2: TOP + high, class: "cp-cut" }));
      parts.push(drawn("text", { x: LEFT + inner / 2, y: HIGH - 4, "text-anchor": "middle", class: "cp-tick cp-cut-text", text: `cut between −${least.toFixed(3)} and ${least.toFixed(3)}` }));
    }
    const [left, lost] = [kept, gone].map((list) => list.reduce((sum, each) => sum + each, 0));
    svg.setAttribute("width", across);
    svg.setAttribute("height", HIGH);
    svg.setAttribute("viewBox", `0 0 ${across} ${HIGH}`);
    svg.setAttribute("aria-label", `Histogram of ${left + lost} weights from ${(-top).toFixed(2)} to ${top.toFixed(2)}: ${left} are kept, ${lost} are cut${least === null ? "" : `, those between −${least.toFixed(3)} and ${least.toFixed(3)}`}.`);
    svg.replaceChildren(...parts);
  }

  return { node, draw };
}
