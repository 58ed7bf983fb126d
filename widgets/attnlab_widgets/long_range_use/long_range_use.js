// LongRangeUse: the far context is changed; whose loss changes?
import barStyle from "#parts/bar.css";
import base from "#parts/base.css";
import style from "./long_range_use.css";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { chartPanel, columnsOf, rowsOf } from "./chart.js";
import { stripPanel } from "./strip.js";
import { NAMED, Study } from "./study.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { headed } from "#parts/table.js";
import { CLASSES } from "./far.js";

const HELP = `The model predicts the tokens at the end of the text, each from all before it. Then the text that stands farther than a distance before them (tinted) is changed, and the loss of the same tokens is measured again. A measured token is orange where its loss grew, so that the far part had helped, and blue where it fell. Underlined tokens stand in the far part and not in the near part: they can be copied from far away alone.

Cut: the far part is left out. Shuffle: its tokens stand in a random order. Replace: another text stands in its place. Random: tokens drawn at random stand there.

The curves show the mean change in nats over all texts, with its standard error, against the distance. A model that cannot reach beyond a distance has a change of zero from there on. "near", "far" and "new" are other tokens at another distance.`;
const WAYS = { cut: "left out", shuffle: "shuffled", replace: "another text", random: "random tokens" };

function render({ model, el: host }) {
  const study = new Study(model);
  const view = viewOf("attnlab-far", "Use of the far context", "long-range-use");
  const { root } = view;
  const own = (names) => names.map((name) => [name, name]);
  const several = study.models.length > 1;
  const fields = {
    perturbation: choice("far part", "perturbation", study.perturbations.map((way) => [way, WAYS[way]]), (perturbation) => study.set({ perturbation })),
    model: choice("model", "model", own(study.models), (name) => study.set({ model: name })),
    lines: choice("compare", "lines", own(["classes", "models"]), (lines) => study.set({ lines })),
    token_class: choice("class", "token-class", own(CLASSES), (name) => study.set({ token_class: name })),
  };
  const distance = slider("beyond", "distance", { min: 0, max: study.distances.length - 1, step: 1 }, (at) => study.set({ distance: study.distances[at] }));
  const text = slider("text", "text-number", { min: 0, max: study.texts - 1, step: 1 }, (at) => study.set({ text: at }));
  const controls = bar({
    frequent: [fields.perturbation.node, distance.node, ...(several ? [fields.model.node, fields.lines.node, fields.token_class.node] : []), ...(study.texts > 1 ? [text.node] : [])],
    help: HELP,
  });
  const summary = el("p", { class: "av-summary lr-said", "aria-live": "polite", testid: "summary" });
  const parts = { strip: stripPanel(study, view), chart: chartPanel(study) };
  const legend = el("div", { class: "lr-legend" }, ...[["lr-far", "far part, changed"], ["lr-more", "loss grew"], ["lr-less", "loss fell"], ["lr-copied", "copied from far"]].map(([name, said]) => el("span", {}, el("i", { class: name }), said)));
  parts.strip.node.append(legend);
  const tables = el("div", { class: "av-tables" });
  const details = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "All distances as a table" }), tables);
  details.addEventListener("toggle", () => view.changed());
  root.append(
    el("style", { text: base + barStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "lr-panels" }, parts.strip.node, parts.chart.node),
    details,
  );
  host.replaceChildren(root);

  function draw() {
    study.read();
    const { state } = study;
    for (const [name, { select }] of Object.entries(fields)) select.value = state[name];
    fields.token_class.select.disabled = state.lines !== "models";
    distance.input.value = study.at.distance;
    distance.input.setAttribute("aria-valuetext", `${state.distance} tokens`);
    distance.output.textContent = `${state.distance} tokens`;
    text.input.value = state.text;
    text.output.textContent = state.text;
    if (summary.textContent !== study.sentence) summary.textContent = study.sentence;
    const wide = root.clientWidth - 26;
    const two = root.dataset.wide === "two";
    parts.chart.draw(two ? 400 : wide, two ? 270 : 240);
    parts.strip.draw(two ? 400 : 190);
    if (details.open) tables.replaceChildren(headed("Change of the loss (nats)", columnsOf(study), rowsOf(study), "all-distances"));
  }

  return live({ model, view, traits: NAMED, draw, sizes: ["wide", { two: 820, one: 0 }] });
}

export default { render, page: (document) => mountPage({ render }, document) };
