// GraphView: attention on the edges of a graph, a node's receptive field, and the map beside it.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./graph_view.css";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { mapPanel } from "./map.js";
import { stagePanel } from "./stage.js";
import { NAMED, Study } from "./study.js";
import { tablesPanel } from "./tables.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { player } from "#parts/player.js";

const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `An arrow leads from a node to one that attends to it, the way in which information flows; the larger the weight, the wider and darker the arrow. A ring above a node is its weight on itself. Point at a node, or choose it, and the arrows to it are orange: whom it attends to.

One layer brings a node what those have to which it attends, and it keeps what it had. After two layers it has heard from those to which these attend. "Layers" colours the receptive field after so many layers, Play lets it grow. Only whether a weight can be above 0 counts for this, not how large it is.

The map has the same weights: a row for each node that attends, a column for each that it attends to. Communities are groups of nodes with many edges inside and few between them (of greatest modularity, found greedily); in their order they are squares along the diagonal.

Click a node to choose it, drag to move it. Arrow keys go to the next node in their direction, with Shift they move the node, Escape chooses none.`;
const OF_PATH = `

The path has a number on each hop. Information travels along one edge in each layer, so the first hop takes place in the first layer, the second in the second. Play shows hop after hop, "hop" any of them; the other arrows and the map change to the layer of the hop.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const { graph } = study;
  const view = viewOf("attnlab-graph", "Graph", "graph-view");
  const { root } = view;
  const pointed = () => {
    parts.stage.hover();
    parts.map.hover();
  };
  view.point = (at) => {
    if (at === study.at || study.moved) return;
    [study.at, study.cell] = [at, null];
    view.later(pointed);
  };
  view.pointCell = (cell) => {
    if (String(cell) === String(study.cell)) return;
    [study.cell, study.at] = [cell, cell ? cell[0] : null];
    view.later(pointed);
  };
  const layers = choice("layer", "layer", graph.layers.map(({ title }, at) => [at, title]), (value) => study.chooseLayer(Number(value)));
  const heads = choice("head", "head", [], (value) => study.set({ head: value === "" ? null : Number(value) }));
  const last = study.path.length;
  const grows = { at: () => model.get("depth"), last: () => graph.deepest, go: (depth) => study.chooseDepth(depth), pause: () => 1100 };
  const play = player(last ? { at: () => model.get("step"), last: () => last, go: (step) => study.chooseStep(step), pause: () => 1600 } : grows);
  const depth = slider("receptive field", "depth", { min: 0, max: graph.deepest, step: 1 }, (value) => {
    play.stop();
    study.chooseDepth(value);
  });
  const step = slider("hop", "step", { min: 0, max: last, step: 1 }, (value) => {
    play.stop();
    study.chooseStep(value);
  });
  const order = choice("order of the map", "order", Object.keys(graph.orders).map((name) => [name, name]), (value) => study.set({ order: value }));
  const controls = bar({ frequent: [layers.node, heads.node, depth.node, step.node, play.node, order.node], help: last ? HELP + OF_PATH : HELP });
  const summary = el("p", { class: "av-summary gv-said", testid: "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", testid: "live" });
  const parts = { stage: stagePanel(study, view), map: mapPanel(study, view), tables: tablesPanel(study, view) };
  root.append(
    el("style", { text: base + barStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "gv-panels" }, parts.stage.node, parts.map.node),
    parts.tables.node, spoken,
  );
  host.replaceChildren(root);
  layers.node.hidden = graph.layers.length < 2;
  depth.node.hidden = !graph.deepest;
  step.node.hidden = !last;
  play.node.hidden = !graph.deepest && !last;

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  function drawHeads() {
    const { h = 0 } = graph.layers[study.state.layer] ?? {};
    heads.node.hidden = h < 2;
    if (heads.select.options.length !== h + 1) {
      heads.select.replaceChildren(el("option", { value: "", text: "mean of all" }), ...Array.from({ length: h }, (_, at) => el("option", { value: at, text: `${at}` })));
    }
    heads.select.value = study.state.head ?? "";
  }

  function draw() {
    study.read();
    const { state } = study;
    layers.select.value = state.layer;
    drawHeads();
    order.select.value = state.order;
    depth.input.value = state.depth;
    depth.output.textContent = state.depth ? `${state.depth} ${state.depth === 1 ? "layer" : "layers"}` : "off";
    depth.input.setAttribute("aria-valuetext", depth.output.textContent);
    step.input.value = state.step;
    step.output.textContent = `${state.step} of ${last}`;
    step.input.setAttribute("aria-valuetext", step.output.textContent);
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    const wide = root.clientWidth - 26;
    const one = root.dataset.graph === "one";
    const side = one ? Math.min(wide, 300) : Math.min(440, Math.round(0.4 * wide));
    parts.stage.draw(one ? wide : wide - side - 20, one ? 330 : Math.min(440, Math.max(320, side + 40)));
    parts.map.draw(side);
    parts.tables.draw();
  }
  const stop = live({ model, view, traits: NAMED, draw, sizes: ["graph", { two: 620, one: 0 }] });
  return () => {
    stop();
    play.stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
