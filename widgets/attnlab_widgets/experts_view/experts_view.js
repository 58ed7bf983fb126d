// ExpertsView: which expert takes which token, and who finds the expert full?
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import stripStyle from "#parts/token_strip.css";
import style from "./experts_view.css";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { barsPanel } from "./bars.js";
import { background } from "./ground.js";
import { patchesPanel } from "./patches.js";
import { Study } from "./study.js";
import { tablesPanel } from "./tables.js";
import { trainingPanel } from "./training.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { player } from "#parts/player.js";
import { tokenStrip } from "#parts/token_strip.js";

const TRAITS = ["token", "layer", "capacity", "placed"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `A router gives each token a probability for every expert and sends it to the most probable one, or to several. A token has the colour of its expert; where it has several, each part of it is as wide as that expert's gate. The small number is the expert with the largest gate.

Each expert has room for a number of tokens, its capacity. Its bar fills in the order in which choices are placed: all first choices in the order of the text, then all second ones. A choice that finds its expert full is dropped and hatched. A token without any expert is not lost: the layer adds nothing to it, and it goes on in the stream as it was.

Drag the line of the capacity, or move the slider, and see who is dropped. Play places one choice after the other. Beside the bars are the router's probabilities of the token you point at or have chosen; the tick is their mean over all tokens.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const view = viewOf("attnlab-experts", "Experts", "experts-view");
  const { root } = view;
  view.point = (at) => {
    if (at === study.at) return;
    study.at = at;
    view.later(drawPointed);
  };
  const total = () => study.layer.queue.length;
  const play = player({ at: () => study.state.placed, last: total, go: (count) => study.place(count), pause: () => Math.max(60, Math.min(300, 9000 / total())) });
  const capacity = slider("capacity", "capacity", { min: 1, step: 1 }, (value) => study.set({ capacity: value }));
  const placed = slider("placed", "placed", { min: 0, step: 1 }, (value) => {
    play.stop();
    study.place(value);
  });
  const layers = choice("layer", "layer", study.layers.map(({ title }, at) => [at, title || `layer ${at}`]), (value) => study.chooseLayer(Number(value)));
  layers.node.hidden = study.layers.length < 2;
  const controls = bar({ frequent: [capacity.node, play.node, placed.node, layers.node], help: HELP });
  const summary = el("p", { class: "av-summary ex-said", "data-testid": "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const strip = tokenStrip({ tokens: study.tokens, label: "The text. Arrow keys choose the token.", at: () => model.get("token"), choose: (token) => study.set({ token }), look, point: view.point });
  strip.node.hidden = study.image !== null;
  const parts = { patches: patchesPanel(study, view), bars: barsPanel(study, view), training: trainingPanel(study, view), tables: tablesPanel(study, view) };
  root.append(
    el("style", { text: base + barStyle + stripStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary, strip.node, parts.patches.node),
    parts.bars.node, parts.training.node, parts.tables.node, spoken,
  );
  host.replaceChildren(root);

  function look(i) {
    const choices = study.choices(i);
    const first = choices.reduce((best, one) => (best && best.gate >= one.gate ? best : one), null);
    const parts = choices.map(({ expert, lost, waiting }) => `expert ${expert}${waiting ? ", not placed yet" : lost ? ", dropped" : ""}`);
    return { name: choices.length && choices.every(({ waiting }) => waiting) ? "ex-waiting" : "", ground: background(choices, view), mark: first ? String(first.expert) : "–", label: `token ${i} ${study.tokens[i]}: ${parts.join("; ") || "no expert"}` };
  }

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  const across = () => root.clientWidth - 32;
  function drawPointed() {
    parts.bars.draw(across());
    parts.patches.draw(across(), 250);
  }

  function draw() {
    study.read();
    const { state } = study;
    capacity.input.max = Math.max(study.most, study.layer.capacity);
    capacity.input.value = state.capacity;
    capacity.output.textContent = `${state.capacity}`;
    placed.input.max = total();
    placed.input.value = state.placed;
    placed.output.textContent = `${state.placed} of ${total()}`;
    placed.input.setAttribute("aria-valuetext", placed.output.textContent);
    layers.select.value = state.layer;
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    if (!strip.node.hidden) strip.draw();
    drawPointed();
    parts.training.draw(across(), 96);
    parts.tables.draw();
  }
  const stop = live({ model, view, traits: TRAITS, draw });
  return () => {
    stop();
    play.stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
