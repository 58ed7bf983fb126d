// LayerChoices: which keys did a layer choose, by what scores, and what of full attention does it keep?
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import stripStyle from "#parts/token_strip.css";
import style from "./layer_choices.css";
import { bar } from "#parts/bar.js";
import { branchesPanel } from "./branches.js";
import { mapPanel } from "./map.js";
import { Study } from "./study.js";
import { unitsPanel } from "./units.js";
import { choice, el, hatchKey, slider } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { tokenStrip } from "#parts/token_strip.js";

const TRAITS = ["layer", "head", "branch", "query"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `The map shows the weights that softmax attention over all earlier keys has on the queries and keys of this head. Where the layer reads a key, they have the colours of the scale, from dark (little) to yellow; where it does not, they are orange: that attention is lost. Hatched pairs may not attend. Lines separate blocks.

The bars are the scores by which the units were chosen for one query: in MoBA the product with the mean key of each block, in NSA what the compressed branch gave each block, added over the heads that choose together, in DeepSeek's sparse attention the numbers of the indexer, the same for all heads. A dot marks a block that is always read. Below it is full attention on the same units: a good choice has its tall bars filled.

NSA has three branches. The compressed one reads means of stretches, so it sees what it covers without telling its keys apart. Each branch is a softmax of its own, and a gate multiplies what it gives.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const view = viewOf("attnlab-choices", "Layer choices", "layer-choices");
  const { root } = view;
  view.point = (pair) => {
    if (String(pair) === String(study.pointed)) return;
    study.pointed = pair;
    view.later(drawPanels);
  };
  view.unit = (unit) => {
    if (unit === study.unitAt) return;
    study.unitAt = unit;
    view.later(drawPanels);
  };
  const layers = choice("layer", "layer", study.layers.map(({ name }, at) => [at, name]), (value) => study.choose(Number(value)));
  layers.node.hidden = study.layers.length < 2;
  const head = slider("head", "head", { min: 0, step: 1 }, (value) => study.set({ head: value }));
  const branch = choice("branch", "branch", [], (name) => study.set({ branch: name }));
  const query = slider("query", "query", { min: study.m - study.n, max: study.m - 1, step: 1 }, (value) => study.ask(value));
  const controls = bar({ frequent: [layers.node, head.node, branch.node, query.node], help: HELP });
  const summary = el("p", { class: "av-summary lc-said", "data-testid": "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const strip = tokenStrip({ tokens: study.tokens, label: "Keys. Arrow keys choose the query.", at: () => model.get("query"), choose: (token) => study.ask(token), look });
  const masked = el("span", {});
  const legend = el("div", { class: "lc-legends" }, key("lc-found", "read, by weight"), key("lc-lost", "lost, by weight"), masked);
  const parts = { map: mapPanel(study, view, legend), units: unitsPanel(study, view), branches: branchesPanel(study) };
  root.append(
    el("style", { text: base + barStyle + stripStyle + style }),
    el("header", { class: "av-top" }, controls.node, strip.node, summary),
    el("div", { class: "lc-panels" }, parts.map.node, el("div", { class: "lc-side" }, parts.branches.node, parts.units.node)),
    spoken,
  );
  host.replaceChildren(root);

  function look(i) {
    const read = study.part.read[(study.head * study.n + study.row) * study.m + i];
    return { name: read ? "lc-chosen" : "", share: Math.sqrt(study.weight(study.layer.full, study.row, i)) };
  }

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  /** The sides of the map and of the bars. */
  function sizes() {
    const wide = root.clientWidth - 26;
    const width = root.dataset.width;
    if (width === "tiny") return { map: Math.min(440, wide), units: [wide, 190] };
    const map = width === "narrow" ? 300 : width === "wide" ? 470 : 410;
    return { map, units: [wide - map - 24, width === "wide" ? 230 : 190] };
  }

  function drawPanels() {
    const { map, units } = sizes();
    parts.map.draw(map);
    parts.units.draw(...units);
  }

  function draw() {
    study.read();
    const { layer, state } = study;
    study.unitAt = study.unitAt !== null && study.unitAt >= layer.u ? null : study.unitAt;
    layers.select.value = state.layer;
    head.input.max = layer.h - 1;
    head.input.value = study.head;
    head.output.textContent = study.head;
    head.node.hidden = layer.h < 2;
    branch.node.hidden = layer.branches.length < 2;
    branch.select.replaceChildren(...layer.branches.map((name) => el("option", { value: name, text: name })));
    branch.select.value = study.branch;
    query.input.value = state.query;
    query.output.textContent = state.query;
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    masked.replaceChildren(...(layer.allowed.includes(0) ? [hatchKey(view, "may not attend")] : []));
    strip.draw();
    parts.branches.draw();
    drawPanels();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["width", { wide: 1280, usual: 860, narrow: 600, tiny: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

const key = (name, text) => el("span", { class: "lc-legend" }, el("i", { class: name }), text);

export default { render, page: (document) => mountPage({ render }, document) };
