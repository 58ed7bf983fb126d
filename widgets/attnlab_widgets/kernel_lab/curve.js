// The error against the number of features, both axes logarithmic, with the settings that were tried.
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { axesAround, placeOf, sharesOf, shareSaid } from "./axes.js";
import { percent } from "./words.js";
import { grouped } from "#lib/wall.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [52, 20, 18, 34];
const REST = 120; // milliseconds without a change after which further points are computed

export function curvePanel(study, view) {
  const stage = el("div", {});
  const seed = el("span", { class: "av-quiet av-hint" });
  const node = el("section", { class: "av-panel kl-curve" }, el("h3", {}, "In the wrong place, by features ", seed), stage);
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
    const now = state.feature === "softmax" ? null : [study.countOf(state), study.error(state)];
    const axes = axesAround([...known, ...marked.map(({ count, error }) => [count, error]), ...(now ? [now] : [])]);
    const x = (count) => LEFT + (wide - LEFT - RIGHT) * placeOf(axes, count, axes.most)[0];
    const y = (error) => TOP + (high - TOP - BOTTOM) * placeOf(axes, 1, error)[1];
    const chart = drawn("svg", { class: "kl-plot", width: wide, height: high, role: "img", "data-testid": "curve", "aria-label": told(known) });
    for (const share of sharesOf(axes)) {
      chart.append(drawn("line", { class: "kl-grid", x1: LEFT, x2: wide - RIGHT, y1: y(share), y2: y(share) }), drawn("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end", text: shareSaid(share) }));
    }
    for (let power = axes.smallest; power <= axes.largest; power += 2) chart.append(drawn("text", { x: x(2 ** power), y: high - BOTTOM + 16, "text-anchor": "middle", text: grouped(2 ** power) }));
    chart.append(drawn("text", { x: (LEFT + wide - RIGHT) / 2, y: high - 3, "text-anchor": "middle", text: `features per token${study.random ? " (dashed: like 1/√features)" : ""}` }));
    const line = (points, name) => drawn("polyline", { class: name, points: points.map(([count, error]) => `${x(count).toFixed(1)},${y(error).toFixed(1)}`).join(" ") });
    if (now && study.random) chart.append(guide(now, axes, line));
    if (known.length === 1 && curve.length === 1) chart.append(line([[2 ** axes.smallest, known[0][1]], [2 ** axes.largest, known[0][1]]], "kl-line"));
    else chart.append(line(known, "kl-line"), ...known.map(([count, error]) => drawn("circle", { class: "kl-dot", cx: x(count), cy: y(error), r: 3 })));
    for (const { number, count, error, said } of marked) {
      const spot = drawn("g", { class: "kl-tried" }, drawn("title", { text: `${number}: ${said}, ${percent(error)}` }), drawn("circle", { cx: x(count), cy: y(error), r: 4 }), drawn("text", { x: x(count) + 6, y: y(error) - 6, text: String(number) }));
      chart.append(spot);
    }
    if (now) chart.append(drawn("circle", { class: "kl-now", cx: x(now[0]), cy: y(now[1]), r: 6.5 }));
    seed.textContent = study.random ? `one draw each, seed ${state.seed}` : "";
    stage.replaceChildren(chart);
  }

  /** Through the present point, falling like one over the root, between the edges. */
  function guide([count, error], { smallest, largest, least, most }, line) {
    const at = (power) => error * Math.sqrt(count / 2 ** power);
    const inside = Array.from({ length: 4 * (largest - smallest) + 1 }, (_, step) => smallest + step / 4).filter((power) => at(power) > least && at(power) < most);
    return line(inside.map((power) => [2 ** power, at(power)]), "kl-guide");
  }

  const told = (known) => (known.length ? `Share in the wrong place against features per token, both axes logarithmic: ${known.map(([count, error]) => `${grouped(count)} feature${count === 1 ? "" : "s"} ${percent(error)}`).join(", ")}` : "Share in the wrong place against features per token: the exact softmax has none");

  return { node, draw, stop: () => clearTimeout(timer) };
}
