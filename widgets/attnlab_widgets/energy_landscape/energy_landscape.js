// EnergyLandscape: where a modern Hopfield network leads a query, and how its energy falls.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import boardStyle from "#parts/board.css";
import style from "./energy_landscape.css";
import { two } from "#lib/plane.js";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { stagePanel } from "./stage.js";
import { stepsPanel } from "./steps.js";
import { Study } from "./study.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountOn } from "#parts/page_model.js";

const TRAITS = ["patterns", "query", "beta", "steps", "names"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `Every point of the plane is a state, and its colour is the energy: the bluer, the lower. From one band to the next the root of the energy above the lowest rises by the same amount, so that flat valleys show beside high slopes.

A step replaces the state by the mean of the stored patterns, weighed by softmax(β · dot products): attention in which keys and values are the patterns. No step raises the energy. The number beside a pattern is its weight at the last state.

With a large β each pattern has a valley of its own, and one step nearly reaches it. With a small β similar patterns share one, and at last all of them: the mean is retrieved.

Drag the query or a pattern, or press Tab and use the arrow keys. Point at a row of the table to find its state.`;

function render({ model, el: host }) {
  const study = new Study(model);
  const view = viewOf("attnlab-landscape", "Energy landscape", "energy-landscape");
  const { root } = view;
  view.point = (step) => {
    study.at = step;
    view.later(drawPanels);
  };
  const preset = choice("example", "preset", [["", "changed by you"], ...study.presets.map(({ name }) => [name, name])], (name) => name && study.start(name));
  const beta = slider("β", "beta", { min: -4, max: 5, step: 0.05 }, (power) => study.set({ beta: 2 ** power }));
  const steps = slider("steps", "steps", { min: 1, max: 12, step: 1 }, (value) => study.set({ steps: value }));
  const controls = bar({ frequent: [preset.node, beta.node, steps.node], help: HELP });
  const summary = el("p", { class: "av-summary el-said", "data-testid": "summary" });
  const tries = el("p", { class: "el-try", "data-testid": "try" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const [stage, chart] = [stagePanel(study, view), stepsPanel(study, view)];
  root.append(
    el("style", { text: base + barStyle + boardStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "el-panels" }, stage.node, chart.node),
    tries,
    spoken,
  );
  host.replaceChildren(root);

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  function drawPanels() {
    const wide = root.clientWidth - 32;
    const one = root.dataset.landscape === "one";
    const side = one ? Math.min(440, wide - 2) : Math.min(480, wide * 0.5 - 12);
    stage.draw(side);
    chart.draw(one ? wide : wide - side - 26, one || side < 380 ? 150 : 190);
  }

  function draw() {
    study.read();
    preset.select.value = study.preset?.name ?? "";
    preset.select.options[0].hidden = Boolean(study.preset);
    beta.input.value = Math.log2(study.state.beta);
    beta.output.textContent = two(study.state.beta);
    beta.input.setAttribute("aria-valuetext", two(study.state.beta));
    steps.input.value = study.state.steps;
    steps.output.textContent = study.state.steps;
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    tries.replaceChildren(el("strong", { text: "Try: " }), study.last.try);
    drawPanels();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["landscape", { two: 620, one: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountOn(document, { render }) };
