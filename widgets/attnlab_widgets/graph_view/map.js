// The same weights as a map: a row for each node that attends, a column for each that it attends to.
import { borders } from "#lib/choices.js";
import { painted, parse } from "#lib/colours.js";
import { isArrow, named } from "./graph.js";
import { two } from "#lib/plane.js";
import { bitmap, el, sized } from "#parts/dom.js";
import { groupColour } from "./stage.js";

const STRIP = 11; // for the colours of the groups, with a gap
const GROUPED = { community: "communities", group: "groups" };

export function mapPanel(study, view) {
  const { graph } = study;
  const canvas = el("canvas", { class: "gv-map", role: "img", tabindex: 0, testid: "map" });
  const readout = el("p", { class: "av-readout av-quiet", testid: "map-readout" });
  const node = el("section", { class: "av-panel gv-matrix" }, canvas, el("p", { class: "gv-legend av-quiet", text: graph.layers.length ? "Rows attend to columns. Brighter is more; empty: no edge." : "Bright where an edge leads to the row from the column." }), readout);
  let [side, shown, map] = [0, "", null];

  const cellOf = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect();
    const [column, row] = [clientX - box.left, clientY - box.top].map((x) => Math.floor(((x - STRIP) / (side - STRIP)) * graph.n));
    return row < 0 || column < 0 || row >= graph.n || column >= graph.n ? null : [study.order[row], study.order[column]];
  };
  canvas.addEventListener("pointermove", (event) => view.pointCell(cellOf(event)));
  canvas.addEventListener("pointerleave", () => view.pointCell(null));
  canvas.addEventListener("click", (event) => {
    const cell = cellOf(event);
    if (cell) study.set({ node: cell[0] });
  });
  canvas.addEventListener("blur", () => view.pointCell(null));
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const enters = event.key === "Enter" || event.key === " ";
    if (!isArrow(event.key) && !enters) return;
    event.preventDefault();
    const { order } = study;
    const [i, j] = study.cell ?? [study.state.node ?? order[0], order[0]];
    if (enters) {
      study.set({ node: i });
      return;
    }
    const within = (place) => order[Math.min(graph.n - 1, Math.max(0, place))];
    const down = { ArrowDown: 1, ArrowUp: -1 }[event.key] ?? 0;
    const across = { ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0;
    view.pointCell([within(order.indexOf(i) + down), within(order.indexOf(j) + across)]);
  });

  function pixels() {
    const { n, targets, sources } = graph;
    const [values, masked] = [new Float32Array(n * n), new Uint8Array(n * n).fill(1)];
    const rank = [];
    study.order.forEach((one, at) => (rank[one] = at));
    targets.forEach((target, at) => {
      const cell = rank[target] * n + rank[sources[at]];
      [values[cell], masked[cell]] = [study.weights[at], 0];
    });
    return bitmap(painted(values, study.largest, false, view.dark, masked), n, n);
  }

  function drawIt() {
    const { n } = graph;
    const { state, order } = study;
    const key = JSON.stringify([state.layer, state.head, state.order, view.dark]);
    if (key !== shown) [shown, map] = [key, pixels()];
    const context = sized(canvas, side, side);
    const across = side - STRIP;
    const cell = across / n;
    context.fillStyle = view.colour("--av-hatch-ground");
    context.fillRect(STRIP, STRIP, across, across);
    context.imageSmoothingEnabled = false;
    context.drawImage(map, STRIP, STRIP, across, across);
    order.forEach((one, at) => {
      context.fillStyle = view.colour(groupColour(study.groups[one]));
      context.fillRect(0, STRIP + at * cell, STRIP - 4, Math.max(1, cell));
      context.fillRect(STRIP + at * cell, 0, Math.max(1, cell), STRIP - 4);
    });
    context.strokeStyle = view.colour("--av-quiet");
    context.lineWidth = 0.75;
    context.beginPath();
    for (const at of GROUPED[state.order] ? borders(state.order === "group" ? study.groups : graph.communities, order) : []) {
      context.moveTo(STRIP + at * cell, STRIP);
      context.lineTo(STRIP + at * cell, side);
      context.moveTo(STRIP, STRIP + at * cell);
      context.lineTo(side, STRIP + at * cell);
    }
    context.stroke();
    const row = study.cell ? study.cell[0] : study.shown;
    if (row !== null) frame(context, [0, n], [order.indexOf(row), 1], cell);
    if (study.cell) frame(context, [order.indexOf(study.cell[1]), 1], [order.indexOf(row), 1], cell);
    canvas.setAttribute("aria-label", `The weights as a map, ordered by ${state.order}. Arrow keys go from pair to pair, Enter chooses the node of the row.`);
    readout.textContent = study.cell ? said(...study.cell) : "";
  }

  function frame(context, [left, columns], [top, rows], cell) {
    const [r, g, b] = parse(view.colour("--av-series-1"));
    context.strokeStyle = `rgb(${r}, ${g}, ${b})`;
    context.lineWidth = 1.5;
    context.strokeRect(STRIP + left * cell, STRIP + top * cell, Math.max(2, columns * cell), Math.max(2, rows * cell));
  }

  function said(i, j) {
    const [query, key] = [i, j].map((one) => named(graph.labels, one));
    const at = graph.index.get(i * graph.n + j);
    if (at === undefined) return `No edge leads to ${query} from ${key}.`;
    if (!graph.layers.length) return `An edge leads to ${query} from ${key}.`;
    return `${query} attends to ${i === j ? "itself" : key}: ${study.weights[at] < 0.005 ? study.weights[at].toPrecision(2) : two(study.weights[at], 3)}`;
  }

  function draw(size) {
    side = size;
    node.style.width = `${side}px`;
    drawIt();
  }

  return { node, draw, hover: drawIt };
}
