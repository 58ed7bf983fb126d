// All choices at a glance: a bar for each, over the switches that are on.
import { countRight, headName, ordered, silentIn } from "./switches.js";
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";


export function settingsPanel(study) {
  const { board } = study;
  const total = board.coming.length;
  const states = ordered(board.heads.length);
  const rights = states.map((state) => countRight(board, state));
  const chart = drawn("svg", { class: "hs-chart", role: "img", "data-testid": "chart" });
  const node = el("section", { class: "av-panel hs-settings", "aria-label": "All settings" },
    el("h3", { text: `All ${states.length} settings: how many of ${total} ${board.unit}s are right` }), chart);
  const most = Math.max(1, ...rights);
  const name = (state) => (state ? `without ${silentIn(board.heads, state).map(headName).join(", ")}` : "all heads on");

  function draw(wide, high) {
    const dots = board.heads.length <= 5;
    const left = dots ? 62 : 28;
    const rows = dots ? board.heads.length * 13 + 6 : 4;
    const step = (wide - left) / states.length;
    const y = (count) => 16 + high * (1 - count / most);
    chart.setAttribute("viewBox", `0 0 ${wide} ${high + 20 + rows}`);
    chart.setAttribute("width", wide);
    chart.setAttribute("height", high + 20 + rows);
    chart.setAttribute("aria-label", `${states.map((state, at) => `${name(state)}: ${rights[at]}`).slice(0, 16).join("; ")}`);
    const parts = [0, rights[0]].map((count) => drawn("line", { class: count ? "hs-whole" : "hs-base", x1: left, x2: wide, y1: y(count), y2: y(count) }));
    parts.push(...[...new Set([0, rights[0], ...(y(rights[0]) - y(most) < 14 ? [] : [most])])].map((count) => drawn("text", { class: "hs-small", x: left - 6, y: y(count) + 4, "text-anchor": "end", text: count })));
    states.forEach((state, at) => {
      const x = left + step * at;
      const bar = drawn("g", { class: `hs-setting${state === study.state ? " hs-now" : ""}`, "data-testid": `setting-${state}`, onclick: () => study.choose(state) },
        drawn("title", { text: `${name(state)}: ${rights[at]} of ${total}` }),
        drawn("rect", { class: "hs-hit", x, y: 0, width: step, height: high + 20 + rows }),
        drawn("rect", { class: "hs-bar", x: x + step * 0.14, y: Math.min(y(rights[at]), y(0) - 1.5), width: step * 0.72, height: Math.max(1.5, y(0) - y(rights[at])) }));
      if (step > 18) bar.append(drawn("text", { class: "hs-small", x: x + step / 2, y: y(rights[at]) - 4, "text-anchor": "middle", text: rights[at] }));
      if (dots) {
        board.heads.forEach((_, bit) => bar.append(drawn("circle", { class: (state >> bit) & 1 ? "hs-off" : "hs-on", cx: x + step / 2, cy: high + 26 + 13 * bit, r: 4 })));
      }
      parts.push(bar);
    });
    if (dots) board.heads.forEach((head, bit) => parts.push(drawn("text", { class: "hs-small", x: left - 6, y: high + 30 + 13 * bit, "text-anchor": "end", text: `head ${headName(head)}` })));
    chart.replaceChildren(...parts);
  }

  return { node, draw };
}
