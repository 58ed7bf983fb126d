// The change of the loss against the distance, a line for each class or model, and its numbers.
import { signed, tickStep } from "./far.js";
import { grouped } from "#lib/wall.js";
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [50, 14, 12, 38];

export function chartPanel(study) {
  const title = el("h3", {});
  const stage = el("div", { testid: "chart" });
  const head = el("tr", {});
  const body = el("tbody", {});
  const table = el("table", { class: "lr-table", testid: "table" }, el("thead", {}, head), body);
  const node = el("section", { class: "av-panel lr-chart" }, title, stage, table);

  function draw(wide, high) {
    const { curves, distances, state } = study;
    title.textContent = state.lines === "classes" ? `Change of the loss of ${state.model}` : `Change of the loss on “${state.token_class}” tokens`;
    const values = curves.flatMap(({ points }) => points.flatMap(({ mean, error }) => (Number.isNaN(mean) ? [] : [mean + (error || 0), mean - (error || 0)])));
    const [least, most] = [Math.min(0, ...values), Math.max(0, ...values)];
    const step = tickStep(most - least || 1, 5);
    const [low, top] = [Math.floor(least / step) * step, Math.max(Math.ceil(most / step), 1) * step];
    const [first, end] = [Math.log2(distances[0]), Math.log2(distances.at(-1))];
    const x = (distance) => LEFT + 8 + (wide - LEFT - RIGHT - 16) * ((Math.log2(distance) - first) / (end - first || 1));
    const y = (value) => high - BOTTOM - (high - TOP - BOTTOM) * ((value - low) / (top - low));
    const svg = drawn("svg", { class: "lr-plot", width: wide, height: high, role: "img", "aria-label": "Change of the loss in nats against the distance; the tables have the numbers" });
    const places = Math.max(0, -Math.floor(Math.log10(step)));
    for (let value = low; value < top + step / 2; value += step) {
      const zero = Math.abs(value) < step / 2;
      svg.append(drawn("line", { class: zero ? "lr-zero" : "lr-grid", x1: LEFT, x2: wide - RIGHT, y1: y(value), y2: y(value) }), drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end", text: zero ? "0" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(places)}` }));
    }
    distances.forEach((distance) => {
      svg.append(drawn("text", { x: x(distance), y: high - BOTTOM + 15, "text-anchor": "middle", text: grouped(distance) }));
    });
    svg.append(
      drawn("text", { x: (LEFT + wide - RIGHT) / 2, y: high - 5, "text-anchor": "middle", text: "distance beyond which the text is changed (tokens)" }),
      drawn("line", { class: "lr-here", x1: x(state.distance), x2: x(state.distance), y1: TOP, y2: high - BOTTOM }),
    );
    curves.forEach(({ points, name }, at) => {
      const known = points.filter(({ mean }) => !Number.isNaN(mean));
      svg.append(drawn("polyline", { class: `lr-line lr-${at}`, points: known.map(({ distance, mean }) => `${x(distance)},${y(mean)}`).join(" ") }));
      for (const { distance, mean, error } of known) {
        if (!Number.isNaN(error)) svg.append(drawn("line", { class: `lr-bar lr-${at}`, x1: x(distance), x2: x(distance), y1: y(mean - error), y2: y(mean + error) }));
        svg.append(drawn("circle", { class: `lr-dot lr-${at}`, cx: x(distance), cy: y(mean), r: 3.5, onclick: () => study.set({ distance }) }, drawn("title", { text: `${name}, ${distance} tokens: ${signed(mean)}` })));
      }
    });
    stage.replaceChildren(svg);
    head.replaceChildren(...["", `beyond ${grouped(state.distance)}`, "±", "tokens"].map((text) => el("th", { scope: "col", text })));
    body.replaceChildren(...curves.map(({ name, meaning, points }, at) => {
      const { mean, error, count } = points[study.at.distance];
      const key = drawn("svg", { width: 26, height: 10, "aria-hidden": "true" }, drawn("line", { class: `lr-line lr-${at}`, x1: 0, x2: 26, y1: 5, y2: 5 }));
      return el("tr", {}, el("th", { scope: "row", title: meaning }, key, ` ${name}`), el("td", { text: signed(mean) }), el("td", { text: Number.isNaN(error) ? "–" : error.toFixed(3) }), el("td", { text: grouped(count) }));
    }));
  }

  return { node, draw };
}

/** The same for every distance. */
export const columnsOf = (study) => ["", ...study.distances.map((distance) => `beyond ${grouped(distance)}`)];
export const rowsOf = (study) => study.curves.map(({ name, points }) => [name, ...points.map((point) => study.said(point))]);
