// WhatIsHidden: what does a model learn from? One text as every objective hands it to a model.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./what_is_hidden.css";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { detailPanel } from "./detail.js";
import { historyPanel } from "./history.js";
import { overviewPanel } from "./overview.js";
import { NAMES, RATES, SEEDS, SPANS, Study } from "./study.js";
import { tablesPanel } from "./tables.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";

const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `Every row is an objective, and every column a token of one text. Hatched tokens are hidden from the model, those with an orange edge are replaced by others, and a dot marks tokens whose answer is scored: these pay. The number at the right says how many do.

Choose an objective to see what goes in, place by place, and below each place the answer that is wanted. Signs such as ⟨1⟩ are tokens that the objective adds. Choose a place to see what a trained model guesses there.

Change the rate, the length of spans, or the seed: an objective without such a choice stays as it is. Where a training is recorded, its losses show which places the model learns from, early and late.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const view = viewOf("attnlab-hidden", "What is hidden", "what-is-hidden");
  const { root } = view;
  const objective = choice("objective", "objective", study.rows.map((row) => [row.name, row.name]), (name) => study.choose(study.rows.findIndex((row) => row.name === name)));
  const stepped = (text, testid, values) => slider(text, testid, { min: 0, max: values.length - 1, step: 1 }, (at) => study.set({ [testid]: values[at] }));
  const rate = stepped("rate", "rate", RATES);
  const span = stepped("span", "span", SPANS);
  const seed = stepped("seed", "seed", [...Array(SEEDS).keys()]);
  const controls = bar({ frequent: [objective.node, rate.node, span.node, seed.node], help: HELP });
  const summary = el("p", { class: "av-summary", "data-testid": "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const parts = { overview: overviewPanel(study, view), detail: detailPanel(study, view), history: historyPanel(study, view), tables: tablesPanel(study, view) };
  const below = el("div", { class: "av-panels wh-below" }, parts.detail.node, parts.history.node);
  root.append(el("style", { text: base + barStyle + style }), el("header", { class: "av-top" }, controls.node, summary), parts.overview.node, below, parts.tables.node, spoken);
  host.replaceChildren(root);

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = `${study.sentence} ${study.readout()}`), QUIET);
  }

  function put({ input, output }, values, value, unit = "") {
    input.value = values.indexOf(value);
    output.textContent = `${value}${unit}`;
    input.setAttribute("aria-valuetext", output.textContent);
  }

  function draw() {
    study.read();
    const { state, row } = study;
    objective.select.value = state.objective;
    put(rate, RATES, state.rate);
    put(span, SPANS, state.span);
    put(seed, [...Array(SEEDS).keys()], state.seed);
    rate.node.classList.toggle("wh-idle", !row.rate);
    span.node.classList.toggle("wh-idle", !row.span);
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    parts.overview.draw(parts.overview.node.clientWidth);
    parts.detail.draw();
    parts.history.draw(parts.history.node.clientWidth);
    parts.tables.draw();
  }
  const stop = live({ model, view, traits: NAMES, draw, sizes: ["wide", { two: 760, one: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
