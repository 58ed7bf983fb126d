// The energy after each step: a chart, and the same numbers as a table.
import { place } from "./landscape.js";
import { two } from "#lib/plane.js";
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [44, 14, 10, 34];

/** The axis of energies is cut to those of the path, so that a small fall shows; at least a hundredth long. */
export function axisOf(energies) {
  const top = Math.max(...energies);
  const low = Math.min(...energies, top - 0.01);
  return { low, top, digits: top - low < 0.1 ? 3 : 2 };
}

export function stepsPanel(study, view) {
  const stage = el("div", {});
  const body = el("tbody", {});
  const columns = ["step", "state", "energy", "fall", "heaviest"];
  const head = el("tr", {}, ...columns.map((text) => el("th", { scope: "col", text })));
  const table = el("table", { class: "el-table", "data-testid": "table" }, el("thead", {}, head), body);
  const node = el("section", { class: "av-panel el-steps" }, el("h3", {}, "The energy after each step ", el("span", { class: "av-quiet av-hint", text: "the axis is cut to the path" })), stage, table);

  function draw(wide, high) {
    const { found: { path, energies }, state } = study;
    const { low, top, digits } = axisOf(energies);
    const x = (step) => LEFT + ((wide - LEFT - RIGHT) * step) / state.steps;
    const y = (energy) => TOP + (high - TOP - BOTTOM) * (1 - (energy - low) / (top - low));
    const chart = drawn("svg", { class: "el-plot", width: wide, height: high, role: "img", "aria-label": "Energy after each step; the table has the numbers" });
    for (const energy of [low, (low + top) / 2, top]) {
      chart.append(drawn("line", { class: "el-grid", x1: LEFT, x2: wide - RIGHT, y1: y(energy), y2: y(energy) }), drawn("text", { x: LEFT - 6, y: y(energy) + 4, "text-anchor": "end", text: two(energy, digits) }));
    }
    path.forEach((_, step) => chart.append(drawn("text", { x: x(step), y: high - BOTTOM + 15, "text-anchor": "middle", text: String(step) })));
    chart.append(drawn("text", { x: (LEFT + wide - RIGHT) / 2, y: high - 4, "text-anchor": "middle", text: "step" }));
    chart.append(drawn("polyline", { class: "el-path", points: energies.map((energy, step) => `${x(step)},${y(energy)}`).join(" ") }));
    energies.forEach((energy, step) => chart.append(drawn("circle", { class: study.at === step ? "el-step el-at" : "el-step", cx: x(step), cy: y(energy), r: study.at === step ? 6 : 4 })));
    stage.replaceChildren(chart);
    body.replaceChildren(...path.map((point, step) => row(point, step)));
  }

  function row(point, step) {
    const { energies } = study.found;
    const cells = [
      place(point), two(energies[step], 3), step ? two(energies[step - 1] - energies[step], 3) : "–", study.heaviestAt(point),
    ];
    return el("tr", { class: study.at === step ? "el-at" : "", onpointerenter: () => view.point(step), onpointerleave: () => view.point(null) },
      el("th", { scope: "row", text: step ? String(step) : "query" }), ...cells.map((text) => el("td", { text })));
  }

  return { node, draw };
}
