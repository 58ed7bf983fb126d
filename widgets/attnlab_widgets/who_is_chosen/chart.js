// Recall against the pairs that are computed: where the four stand now, and their curves for other settings.
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { grouped } from "#lib/wall.js";
import { WAYS, percent } from "./study.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [40, 14, 10, 34];

export function chartPanel(study) {
  const stage = el("div", {});
  const body = el("tbody", {});
  const head = el("tr", {}, ...["", "found", "pairs", ""].map((text) => el("th", { scope: "col", text })));
  const table = el("table", { class: "wc-table", "data-testid": "table" }, el("thead", {}, head), body);
  const node = el("section", { class: "av-panel wc-chart" }, el("h3", { text: "Weight found against pairs computed" }), stage, table);

  function draw(wide, high) {
    const all = study.allowed.reduce((sum, one) => sum + one, 0);
    const series = WAYS.map((way) => ({ ...way, now: study.found[way.key], curve: study.curve(way.key) }));
    const pairs = series.flatMap(({ now, curve }) => [now.pairs, ...curve.map((point) => point.pairs)]).filter((value) => value > 0);
    const [low, top] = [Math.log2(Math.min(...pairs, all / 8)), Math.log2(Math.max(...pairs))];
    const x = (value) => LEFT + (wide - LEFT - RIGHT) * ((Math.log2(Math.max(value, 1)) - low) / (top - low || 1));
    const y = (share) => TOP + (high - TOP - BOTTOM) * (1 - share);
    const chart = drawn("svg", { class: "wc-plot", width: wide, height: high, role: "img", "aria-label": "Weight found against pairs computed; the table has the numbers" });
    for (const share of [0, 0.5, 1]) {
      chart.append(drawn("line", { class: "wc-grid", x1: LEFT, x2: wide - RIGHT, y1: y(share), y2: y(share) }), drawn("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end", text: `${100 * share} %` }));
    }
    for (const power of [all / 8, all / 4, all / 2, all]) {
      if (x(power) < LEFT - 1) continue;
      chart.append(drawn("line", { class: "wc-grid", x1: x(power), x2: x(power), y1: TOP, y2: high - BOTTOM }), drawn("text", { x: x(power), y: high - BOTTOM + 14, "text-anchor": "middle", text: power === all ? "all pairs" : `1/${all / power}` }));
    }
    chart.append(drawn("text", { x: (LEFT + wide - RIGHT) / 2, y: high - 4, "text-anchor": "middle", text: "pairs whose score is computed" }));
    for (const { colour, curve, now, title } of series) {
      if (curve.length) chart.append(drawn("polyline", { class: "wc-line", style: `stroke:var(${colour})`, points: curve.map((point) => `${x(point.pairs)},${y(point.recall)}`).join(" ") }));
      chart.append(drawn("circle", { class: "wc-now", cx: x(now.pairs), cy: y(now.recall), r: 6, style: `fill:var(${colour})` }, drawn("title", { text: title })));
    }
    stage.replaceChildren(chart);
    const { query } = study.state;
    head.lastChild.textContent = `query ${query}`;
    body.replaceChildren(...series.map(({ title, colour, now }) => el("tr", {},
      el("th", { scope: "row" }, el("span", { class: "wc-spot", style: `background:var(${colour})` }), title),
      el("td", { text: percent(now.recall) }), el("td", { text: grouped(now.pairs) }), el("td", { text: percent(now.each[query]) }))));
  }
  return { node, draw };
}
