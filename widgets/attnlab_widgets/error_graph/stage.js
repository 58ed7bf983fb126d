// The graph from left to right: a click or an arrow key chooses a step.
import { el, plain } from "#parts/dom.js";
import { outline } from "#parts/marks.js";
import { drawn } from "#parts/svg.js";
import { LOOKS } from "./words.js";

const [EDGE, RADIUS, NAMED, VALUED] = [34, 8, 58, 26];
const STEP = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };

/** The step to which a key goes; null where it goes nowhere. */
export function stepped(key, node, count) {
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return key in STEP ? Math.min(count - 1, Math.max(0, node + STEP[key])) : null;
}

/** Places from 0 to 1 in a field of that size. */
export const spread = (places, wide, high) => places.map(([x, y]) => [EDGE + x * (wide - 2 * EDGE), EDGE + y * (high - 2 * EDGE)]);

export function stagePanel({ nodes, places, columns }, at, choose) {
  const stage = el("div", { class: "eg-stage", tabindex: "0", role: "application", "aria-roledescription": "graph of steps", testid: "stage", onkeydown: key });
  const present = LOOKS.map((look, kind) => [look, kind, nodes.filter((node) => node.kind === kind).length]).filter(([, , count]) => count);
  const legend = el("ul", { class: "eg-legend", testid: "legend" }, ...present.map(([look, kind, count]) => {
    const mark = drawn("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" }, drawn("path", { d: outline(kind, 4.6), style: `fill: var(--av-series-${kind})` }));
    return el("li", {}, mark, el("span", { text: `${look} (${count})` }));
  }));
  const node = el("section", { class: "av-panel", "aria-label": "The steps" }, stage, legend);

  function key(event) {
    if (!plain(event)) return;
    const to = stepped(event.key, at(), nodes.length);
    if (to === null) return;
    event.preventDefault();
    choose(to);
  }

  function draw(wide, high) {
    const points = spread(places, wide, high);
    const apart = (wide - 2 * EDGE) / Math.max(1, columns - 1);
    const svg = drawn("svg", { class: "eg-plot", width: wide, height: high, "aria-hidden": "true" });
    nodes.forEach(({ parents }, child) => {
      for (const parent of parents) {
        const own = child === at() ? " eg-own" : "";
        const wrong = nodes[parent].wrong ? " eg-wrong" : "";
        svg.append(drawn("line", { class: `eg-edge${own}${wrong}`, x1: points[parent][0], y1: points[parent][1], x2: points[child][0], y2: points[child][1] }));
      }
    });
    points.forEach(([x, y], one) => {
      const { name, kind, stated } = nodes[one];
      const now = one === at();
      const group = drawn("g", { class: now ? "eg-node eg-now" : "eg-node", transform: `translate(${x} ${y})`, "data-testid": `node-${one}`, onclick: () => choose(one) });
      group.append(drawn("circle", { class: "eg-hit", r: 13 }));
      if (now) group.append(drawn("path", { class: "eg-ring", d: outline(kind, RADIUS + 3.5) }));
      group.append(drawn("path", { class: "eg-point", d: outline(kind, RADIUS), style: `fill: var(--av-series-${kind})` }));
      if (apart >= VALUED || now) group.append(drawn("text", { class: "eg-value", y: RADIUS + 15, text: stated }));
      if (apart >= NAMED || now) group.append(drawn("text", { class: "eg-name", y: -RADIUS - 6, text: name }));
      group.append(drawn("title", { text: `${name}: ${stated}, ${LOOKS[kind]}` }));
      svg.append(group);
    });
    stage.replaceChildren(svg);
    stage.setAttribute("aria-label", `${nodes.length} values as points. ${nodes[at()].said} Arrow keys choose another.`);
  }
  return { node, draw };
}
