// The heads as points of a plane: a click or an arrow key chooses one.
import { CIVIDIS, mixed } from "#lib/colours.js";
import { el, plain } from "#parts/dom.js";
import { outline } from "#parts/marks.js";
import { drawn } from "#parts/svg.js";
import { placed, towards } from "./study.js";
import { called, counted } from "./words.js";

const EDGE = 34;
const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function planePanel(study) {
  const { found } = study;
  const stage = el("div", { class: "hm-stage", tabindex: "0", role: "application", "aria-roledescription": "plane of heads", "data-testid": "plane", onkeydown: key });
  const legend = el("ul", { class: "hm-legend", "data-testid": "legend" });
  const node = el("section", { class: "av-panel", "aria-label": "The heads" }, el("h3", { text: "Heads that attend alike lie near each other" }), stage, legend);
  const layers = found.heads[found.count - 1][0];

  function key(event) {
    if (!plain(event)) return;
    const at = study.now();
    const points = placed(found.points, 400, 400, EDGE);
    const step = { PageDown: 1, PageUp: -1 }[event.key];
    const way = WAYS[event.key];
    const back = event.key === "ArrowLeft" || event.key === "ArrowUp";
    const to = event.key === "Home" ? 0 : event.key === "End" ? found.count - 1 : step ? at + step : way ? towards(points, at, way) ?? at + (back ? -1 : 1) : null;
    if (to === null) return;
    event.preventDefault();
    study.choose(to);
  }

  const colourOf = (at) => {
    if (study.state.colour === "kind") return `var(--av-series-${found.kinds[at] % 5})`;
    return `rgb(${mixed(CIVIDIS, found.heads[at][0] / Math.max(1, layers)).join(" ")})`;
  };

  function draw(wide, high) {
    const points = placed(found.points, wide, high, EDGE);
    const svg = drawn("svg", { class: "hm-plot", width: wide, height: high, "aria-hidden": "true" });
    const [x, y] = points[study.at];
    for (const other of study.shown) svg.append(drawn("line", { class: "hm-line", x1: x, y1: y, x2: points[other][0], y2: points[other][1] }));
    points.forEach(([a, b], at) => {
      const now = at === study.at;
      const r = study.radius(at);
      const group = drawn("g", { class: now ? "hm-head hm-now" : "hm-head", transform: `translate(${a} ${b})`, "data-testid": `head-${found.heads[at].join("-")}`, onclick: () => study.choose(at) });
      group.append(drawn("circle", { class: "hm-hit", r: Math.max(12, r) }));
      if (now) group.append(drawn("path", { class: "hm-ring", d: outline(found.kinds[at], r + 3.5) }));
      group.append(drawn("path", { class: "hm-point", d: outline(found.kinds[at], r), style: `fill: ${colourOf(at)}` }));
      const near = study.shown.includes(at);
      const number = near ? ` (${found.divergence[study.at * found.count + at].toFixed(2)})` : "";
      if (found.count <= 24 || now || near) group.append(drawn("text", { class: near ? "hm-number" : "", x: r + 4, y: -r + 3, text: `${found.heads[at].join(".")}${number}` }));
      const kind = found.looks[found.kinds[at]];
      group.append(drawn("title", { text: `${called(found.heads[at])}: ${kind}` }));
      svg.append(group);
    });
    stage.replaceChildren(svg);
    const near = study.shown.length ? ` Its nearest: ${study.shown.map((other) => called(found.heads[other])).join(", ")}.` : "";
    stage.setAttribute("aria-label", `${found.count} heads as points. ${called(found.heads[study.at])} is chosen.${near} Arrow keys choose another.`);
    drawLegend();
  }

  function drawLegend() {
    const byKind = study.state.colour === "kind";
    const items = counted(found).map(([kind, count]) => {
      const mark = drawn("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" }, drawn("path", { d: outline(kind, 4.6), style: `fill: ${byKind ? `var(--av-series-${kind % 5})` : "var(--av-quiet)"}` }));
      return el("li", {}, mark, el("span", { text: `${found.looks[kind]} (${count})` }));
    });
    if (!byKind) items.push(el("li", {}, el("span", { text: "layer 0" }), el("i", { class: "hm-strip", style: `background: linear-gradient(90deg, ${CIVIDIS.join(", ")})` }), el("span", { text: `layer ${layers}` })));
    items.push(el("li", { class: "av-quiet", text: `names: layer.head (divergence)${found.importance ? ", size is importance" : ""}` }));
    legend.replaceChildren(...items);
  }
  return { node, draw };
}
