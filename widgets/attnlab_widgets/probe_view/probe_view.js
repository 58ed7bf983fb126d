// ProbeView: what does a model know, and after which layer? Probes with their controls as a band.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./probe_view.css";
import { bar } from "#parts/bar.js";
import { choice, el, plain } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { drawn } from "#parts/svg.js";
import { headed } from "#parts/table.js";
import { across, mean, moved, percent, upwards } from "./rows.js";

const HELP = `Each row is a question. A probe, a small classifier, was trained to answer it from the states of a frozen model: first from the embedding alone, then from the embedding and layer 1, and so on to the right. The line is the share of right answers about new texts, in the mean over the seeds, which are the small dots.

The band is what the better of two controls reaches: the same probe on the model with random weights, and after training on labels in a random order. What stands above the band is the selectivity: it comes from the training of the model. A score within the band says nothing of the model.

The tick below a row is the expected layer: the mean layer, each weighted by what it adds to the score. It is left out where the probe of all layers is at its control.`;

function render({ model, el: host }) {
  const told = model.get("_told");
  const { tasks, layers, low, orders } = told;
  const view = viewOf("attnlab-probes", "Probes and their controls", "probe-view");
  const { root } = view;
  const state = () => ({ task: Math.min(model.get("task"), tasks.length - 1), layer: Math.min(model.get("layer"), layers - 1) });
  const set = (changes) => {
    for (const [name, value] of Object.entries(changes)) model.set(name, value);
    model.save_changes();
  };
  const order = choice("order", "order", Object.keys(orders).map((name) => [name, name]), (name) => set({ order: name }));
  const task = choice("question", "task", tasks.map(({ name }, at) => [String(at), name]), (at) => set({ task: Number(at) }));
  const controls = bar({ frequent: [task.node, order.node], help: HELP });
  const summary = el("p", { class: "av-summary pv-said", "aria-live": "polite", testid: "summary" });
  const stage = el("div", { class: "pv-stage", tabindex: "0", role: "application", "aria-roledescription": "rows of probes", testid: "rows", onkeydown: key });
  const legend = el("p", { class: "pv-legend av-quiet" }, el("i", { class: "pv-key" }), el("span", { text: `control: random weights or shuffled labels, the better of both; rows go from ${Math.round(100 * low)} to 100 % right` }));
  const tables = el("div", { class: "av-tables" });
  const details = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As a table" }), tables);
  details.addEventListener("toggle", () => view.changed());
  root.append(
    el("style", { text: base + barStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    stage, legend,
    el("p", { class: "pv-try av-quiet", testid: "try" }, el("strong", { text: "Try: " }), "go along a row with the arrow keys. Which layer lifts the line off its band?"),
    details,
  );
  host.replaceChildren(root);

  function key(event) {
    const to = plain(event) && moved(state(), event.key, orders[model.get("order")], layers);
    if (!to) return;
    event.preventDefault();
    set(to);
  }

  function row(at, wide, high) {
    const { name, right, control, expected } = tasks[at];
    const now = state();
    const x = (layer) => 6 + across(layer, layers, wide - 12);
    const y = (value) => upwards(value, low, high);
    const path = (values) => values.map((value, layer) => `${x(layer)},${y(value)}`).join(" ");
    const means = control.map((_, layer) => mean(right, layer));
    const svg = drawn("svg", { class: "pv-plot", width: wide, height: high + 5, "aria-hidden": "true" });
    svg.append(
      drawn("rect", { class: "pv-back", x: 0, y: 0, width: wide, height: high }),
      drawn("polygon", { class: "pv-band", points: `${path(control)} ${x(layers - 1)},${high} ${x(0)},${high}` }),
      drawn("polyline", { class: "pv-control", points: path(control) }),
      drawn("polyline", { class: "pv-line", points: path(means) }),
    );
    for (const seed of right) seed.forEach((value, layer) => svg.append(drawn("circle", { class: "pv-seed", cx: x(layer), cy: y(value), r: 1.8 })));
    if (expected !== null && expected >= 0 && expected <= layers - 1) svg.append(drawn("path", { class: "pv-expected", d: `M${x(expected)} ${high - 4}l-4 8h8Z` }));
    if (at === now.task) svg.append(drawn("circle", { class: "pv-now", cx: x(now.layer), cy: y(means[now.layer]), r: 5.5, "data-testid": "now" }));
    const half = layers === 1 ? wide / 2 : (wide - 12) / (layers - 1) / 2;
    for (let layer = 0; layer < layers; layer += 1) {
      svg.append(drawn("rect", { class: "pv-hit", "data-testid": `point-${at}-${layer}`, x: x(layer) - half, y: 0, width: 2 * half, height: high, onclick: () => set({ task: at, layer }) }));
    }
    return el("div", { class: at === now.task ? "pv-row pv-chosen" : "pv-row", "data-testid": "row" }, el("span", { class: "pv-name", text: name, title: name }), svg, el("span", { class: "pv-last", text: percent(means[layers - 1]) }));
  }

  function draw() {
    const now = state();
    const by = model.get("order");
    order.select.value = by;
    task.select.value = String(now.task);
    const said = tasks[now.task].said[now.layer];
    if (summary.textContent !== said) summary.textContent = said;
    stage.setAttribute("aria-label", `${tasks.length} questions to ${layers - 1} layers; arrow keys choose a question and the last layer that its probe reads. ${said}`);
    const narrow = root.dataset.wide === "one";
    const wide = Math.max(120, root.clientWidth - (narrow ? 170 : 260));
    const high = Math.max(24, Math.min(58, Math.floor(440 / tasks.length)));
    const numbers = drawn("svg", { class: "pv-plot", width: wide, height: 18, "aria-hidden": "true" });
    const every = Math.ceil((layers * 22) / wide);
    for (let layer = 0; layer < layers; layer += every) {
      numbers.append(drawn("text", { x: 6 + across(layer, layers, wide - 12), y: 13, "text-anchor": layer === 0 ? "start" : layer === layers - 1 ? "end" : "middle", text: String(layer) }));
    }
    stage.replaceChildren(...orders[by].map((at) => row(at, wide, high)), el("div", { class: "pv-row" }, el("span", { class: "pv-name av-quiet", text: "layers 0 to …" }), numbers, el("span", { class: "pv-last" })));
    if (details.open) {
      const columns = ["question", ...Array.from({ length: layers }, (_, layer) => `to ${layer}`), "expected layer"];
      const cells = orders[by].map((at) => {
        const { name, right, control, expected } = tasks[at];
        return [name, ...control.map((band, layer) => `${percent(mean(right, layer))} / ${percent(band)}`), expected === null ? "–" : expected.toFixed(2)];
      });
      tables.replaceChildren(headed("Right answers / control, by the layers that the probe reads", columns, cells, "probes-table"));
    }
  }

  return live({ model, view, traits: ["task", "layer", "order"], draw, sizes: ["wide", { two: 640, one: 0 }] });
}

export default { render, page: (document) => mountPage({ render }, document) };
