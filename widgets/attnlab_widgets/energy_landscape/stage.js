// The landscape: the energy as bands of colour, stored patterns and the query to drag, and the path.
import { parse } from "#lib/colours.js";
import { bands } from "./landscape.js";
import { two } from "#lib/plane.js";
import { bitmap, el } from "#parts/dom.js";
import { board, diamond, grip, pressedBeside, tell } from "#parts/board.js";
import { drawn } from "#parts/svg.js";

const CELLS = 200; // of the landscape, along a side

export function stagePanel(study, view) {
  const it = board("landscape", "The energy of every state, the stored patterns and the query");
  const map = el("canvas", { class: "qp-map", "aria-hidden": "true" });
  const [low, high] = [el("span", {}), el("span", {})];
  const scale = el("canvas", { class: "el-scale", "aria-hidden": "true" });
  const legend = el("p", { class: "el-legend av-quiet" }, "energy ", low, scale, high);
  const node = el("section", { class: "av-panel el-stage", "aria-label": "Landscape" },
    el("h3", {}, el("span", { class: "el-ink-query", text: "● Query" }), " among ", el("span", { class: "el-ink-pattern", text: "◆ stored patterns" })),
    el("div", { class: "qp-stage" }, map, it.node), legend);
  const query = grip(it, {
    label: "query: arrow keys move it, with Shift in larger steps", testid: "query",
    at: () => study.state.query, move: (point) => study.set({ query: point }),
  });
  query.append(drawn("circle", { class: "qp-dot", r: 8.5 }), drawn("text", { class: "el-name", text: "query" }), drawn("circle", { class: "qp-reach", r: 17 }));
  pressedBeside(it, (point) => study.set({ query: point }));
  let patterns = [];
  let shown = "";

  function build() {
    const { names } = study.state;
    if (JSON.stringify(names) === shown) return;
    shown = JSON.stringify(names);
    patterns = names.map((name, j) => {
      const one = grip(it, {
        label: `pattern ${name}: arrow keys move it`, testid: `pattern-${j}`,
        at: () => study.state.patterns[j], move: (point) => study.movePattern(j, point),
      });
      one.classList.add("el-pattern");
      one.append(drawn("path", { class: "qp-dot", d: diamond(9) }), drawn("text", { class: "el-name" }), drawn("circle", { class: "qp-reach", r: 15 }));
      return one;
    });
    it.over.replaceChildren(...patterns, query);
  }

  function paint(side) {
    const [paper, ink] = ["--av-paper", "--av-series-0"].map((name) => parse(view.colour(name)));
    const { of, count, low: least, high: most } = bands(study.state, it.half, CELLS);
    const colours = Uint32Array.from({ length: count }, (_, band) => {
      const share = 0.7 * (1 - band / (count - 1)); // valleys are blue
      const [r, g, b] = paper.map((value, at) => Math.round(value + (ink[at] - value) * share));
      return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    });
    const put = (canvas, pixels, wide, tall) => {
      [canvas.width, canvas.height] = [wide, tall];
      canvas.getContext("2d").drawImage(bitmap(pixels, wide, tall), 0, 0);
    };
    put(map, Uint32Array.from(of, (band) => colours[band]), CELLS, CELLS);
    map.style.width = map.style.height = `${side}px`;
    put(scale, colours, count, 1);
    [low.textContent, high.textContent] = [two(least), two(most)];
  }

  function path() {
    const points = study.found.path;
    const line = points.map((point) => `${it.x(point)},${it.y(point)}`).join(" ");
    const dots = points.slice(1).map((point, at) => drawn("circle", { class: study.at === at + 1 ? "el-step el-at" : "el-step", cx: it.x(point), cy: it.y(point), r: study.at === at + 1 ? 6 : 4 }));
    return [drawn("polyline", { class: "el-path", points: line, "data-testid": "path" }), ...dots];
  }

  function draw(side) {
    build();
    it.size(side, study.half);
    paint(side);
    it.under.replaceChildren(...it.axes(), ...path());
    const { state, found } = study;
    state.patterns.forEach((pattern, j) => {
      const [dot, name, reach] = patterns[j].children;
      [dot, reach].forEach((mark) => mark.setAttribute("transform", `translate(${it.x(pattern)} ${it.y(pattern)})`));
      const share = two(found.weights[j]);
      name.textContent = `${state.names[j]} ${share}`;
      it.label(name, pattern, 9, name.textContent);
      tell(patterns[j], it, pattern, `, weight ${share} at the end`);
    });
    const [dot, name, reach] = query.children;
    [dot, reach].forEach((mark) => mark.setAttribute("transform", `translate(${it.x(state.query)} ${it.y(state.query)})`));
    it.label(name, state.query, 7, "query", it.y(state.query) > side - 40 ? -12 : 12);
    tell(query, it, state.query, `, energy ${two(found.energies[0])}`);
    query.setAttribute("aria-description", study.sentence);
  }

  return { node, draw };
}
