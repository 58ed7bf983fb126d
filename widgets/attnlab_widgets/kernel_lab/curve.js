// The error against the number of features, both axes logarithmic, with the settings that were tried.
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { percent } from "./words.js";
import { grouped } from "#lib/wall.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [52, 20, 18, 34];
const [LEAST, MOST] = [0.004, 3]; // shares
const [SMALLEST, LARGEST] = [2, 13]; // powers of two
const REST = 120; // milliseconds without a change after which further points are computed

export function curvePanel(study, view) {
  const stage = el("div", {});
  const node = el("section", { class: "av-panel kl-curve" }, el("h3", { text: "In the wrong place, by features" }), stage);
  let size = { wide: 0, high: 0 };
  let timer = null;

  /** The points of the curve come one after another, so that no drag waits for them. */
  function more(rest) {
    clearTimeout(timer);
    const next = study.curve.find((one) => !study.isKnown(one));
    if (!next || study.state.feature === "softmax") return;
    timer = setTimeout(() => {
      study.error(next);
      view.later(paint);
      more(0);
    }, rest);
  }

  function draw(wide, high) {
    size = { wide, high };
    paint();
    more(REST);
  }

  function paint() {
    const { wide, high } = size;
    const { tried, state, curve } = study;
    const known = state.feature === "softmax" ? [] : curve.filter(study.isKnown).map((one) => [study.countOf(one), study.error(one)]);
    const marked = tried.map((one, at) => ({ number: at + 1, count: study.countOf(one), error: study.error(one), said: study.said(one) })).filter(({ count }) => count !== null);
    const counts = [...known.map(([count]) => count), ...marked.map(({ count }) => count)];
    const last = Math.max(LARGEST, Math.ceil(Math.log2(Math.max(1, ...counts))));
    const x = (count) => LEFT + (wide - LEFT - RIGHT) * Math.max(0, (Math.log2(count) - SMALLEST) / (last - SMALLEST));
    const y = (error) => TOP + ((high - TOP - BOTTOM) * Math.log(MOST / Math.min(MOST, Math.max(LEAST, error)))) / Math.log(MOST / LEAST);
    const chart = drawn("svg", { class: "kl-plot", width: wide, height: high, role: "img", "data-testid": "curve", "aria-label": told(known) });
    for (const [share, name] of [[1, "100 %"], [0.1, "10 %"], [0.01, "1 %"]]) {
      chart.append(drawn("line", { class: "kl-grid", x1: LEFT, x2: wide - RIGHT, y1: y(share), y2: y(share) }), drawn("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end", text: name }));
    }
    for (let power = SMALLEST; power <= last; power += 2) chart.append(drawn("text", { x: x(2 ** power), y: high - BOTTOM + 16, "text-anchor": "middle", text: grouped(2 ** power) }));
    chart.append(drawn("text", { x: (LEFT + wide - RIGHT) / 2, y: high - 3, "text-anchor": "middle", text: "features per token (dashed: like 1/√features)" }));
    const line = (points, name) => drawn("polyline", { class: name, points: points.map(([count, error]) => `${x(count).toFixed(1)},${y(error).toFixed(1)}`).join(" ") });
    const now = state.feature === "softmax" ? null : [study.countOf(state), study.error(state)];
    if (now && study.random) chart.append(guide(now, last, line));
    if (known.length === 1 && curve.length === 1) chart.append(line([[2 ** SMALLEST, known[0][1]], [2 ** last, known[0][1]]], "kl-line"));
    else chart.append(line(known, "kl-line"), ...known.map(([count, error]) => drawn("circle", { class: "kl-dot", cx: x(count), cy: y(error), r: 3 })));
    for (const { number, count, error, said } of marked) {
      const spot = drawn("g", { class: "kl-tried" }, drawn("title", { text: `${number}: ${said}, ${percent(error)}` }), drawn("circle", { cx: x(count), cy: y(error), r: 4 }), drawn("text", { x: x(count) + 6, y: y(error) - 6, text: String(number) }));
      chart.append(spot);
    }
    if (now) chart.append(drawn("circle", { class: "kl-now", cx: x(now[0]), cy: y(now[1]), r: 6.5 }));
    stage.replaceChildren(chart);
  }

  /** Through the present point, falling like one over the root, between the edges. */
  function guide([count, error], last, line) {
    const at = (power) => error * Math.sqrt(count / 2 ** power);
    const inside = Array.from({ length: 4 * (last - SMALLEST) + 1 }, (_, step) => SMALLEST + step / 4).filter((power) => at(power) > LEAST && at(power) < MOST);
    return line(inside.map((power) => [2 ** power, at(power)]), "kl-guide");
  }

  const told = (known) => (known.length ? `Share in the wrong place against features per token, both axes logarithmic: ${known.map(([count, error]) => `${grouped(count)} features ${percent(error)}`).join(", ")}` : "Share in the wrong place against features per token: the exact softmax has none");

  return { node, draw, stop: () => clearTimeout(timer) };
}
