// DepthView: how does each token come to its final state, and where does it stop?
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./depth_view.css";
import { bar } from "#parts/bar.js";
import { curvesPanel } from "./curves.js";
import { gridPanel } from "./grid.js";
import { Study } from "./study.js";
import { tablesPanel } from "./tables.js";
import { choice, el, slider } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { player } from "#parts/player.js";

const TRAITS = ["token", "step", "colour", "order"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `Every row is a token, and every column a layer, or a step of a layer that runs again and again. The state of the token is a vector; its distance to the state with which it leaves is divided by the length of that state.

A token that has left is no longer computed: its row is hatched from the bar on. The bars above count the tokens that are still on the way.

Colour by the change to see what each step does, or by the probability to see how sure the model would be if it had to answer there; the words in the cells are those answers. Play goes from step to step. A solver of an equilibrium repeats one layer until its residual is small; the dashed line is this residual.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const { depth } = study;
  const view = viewOf("attnlab-depth", "Depth", "depth-view");
  const { root } = view;
  view.point = (at) => {
    if (String(at) === String(study.at)) return;
    study.at = at;
    view.later(drawPointed);
  };
  const last = () => depth.s - 1;
  const play = player({ at: () => study.state.step, last, go: (step) => study.set({ step }), pause: () => Math.max(120, Math.min(800, 6000 / depth.s)) });
  const steps = slider(depth.what, "step", { min: 0, max: last(), step: 1 }, (value) => {
    play.stop();
    study.set({ step: value });
  });
  const colours = [["distance", "distance to the end"], ["change", "change by the step"], ...(depth.guesses ? [["probability", "probability of the answer"]] : [])];
  const colour = choice("colour", "colour", colours, (value) => study.set({ colour: value }));
  const order = choice("rows", "order", [["text", "as in the text"], ["left", "first out first"]], (value) => study.set({ order: value }));
  order.node.hidden = !study.early;
  const controls = bar({ frequent: [play.node, steps.node, colour.node, order.node], help: HELP });
  const summary = el("p", { class: "av-summary dv-said", "data-testid": "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const parts = { grid: gridPanel(study, view), curves: curvesPanel(study, view), tables: tablesPanel(study, view) };
  const panels = el("div", { class: "av-panels dv-panels" }, parts.grid.node, parts.curves.node);
  root.append(el("style", { text: base + barStyle + style }), el("header", { class: "av-top" }, controls.node, summary), panels, parts.tables.node, spoken);
  host.replaceChildren(root);

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  function drawPointed() {
    const wide = root.dataset.wide === "two";
    parts.grid.draw(parts.grid.node.clientWidth, wide ? 470 : 360);
    parts.curves.draw(parts.curves.node.clientWidth, wide ? 250 : 170);
  }

  function draw() {
    study.read();
    const { state } = study;
    steps.input.value = state.step;
    steps.output.textContent = `${depth.steps[state.step]} of ${depth.steps.at(-1)}`;
    steps.input.setAttribute("aria-valuetext", steps.output.textContent);
    colour.select.value = state.colour;
    order.select.value = state.order;
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    drawPointed();
    parts.tables.draw();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["wide", { two: 760, one: 0 }] });
  return () => {
    stop();
    play.stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
