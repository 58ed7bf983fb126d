// Walk: one forward pass of a small language model, which the page computes, step by step.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import legendStyle from "#parts/legend.css";
import lettersStyle from "#parts/letters.css";
import style from "./walk.css";
import { bar } from "#parts/bar.js";
import { el } from "#parts/dom.js";
import { stripPanel } from "#parts/letters.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { answerPanel } from "./answer.js";
import { forward } from "#lib/forward.js";
import { headsPanel } from "./heads.js";
import { PAUSE, railPanel } from "./rail.js";
import { stagePanel } from "./stage.js";
import { Study, TRAITS } from "./study.js";
import { tablesPanel } from "./tables.js";
import { writing } from "./writing.js";

const QUIET = 500; // milliseconds without a change after which the step is read out
const HELP = `A language model reads letters from left to right and says after each what may come next. What it does in between is a chain of steps, and here they are all computed in this page, from the parameters of the model. Drag the slider, press Play, or choose a step by its name.

The picture shows the numbers of one step, a row for each letter. In maps of vectors blue is below 0 and orange above, by the square root of the size. Below it the numbers of one letter stand as bars, from 0 to the largest of them; bars of weights and probabilities go to 1, and their colours, too, by the square root. In maps of weights a row says how a letter shares its attention among itself and the letters before it; hatched pairs are masked. Choose a letter, above or in the picture, and its row becomes the bars; point at a number, and it is read below.

Every head has a switch. A silent head attends as before, but what it gathers is replaced by zeros; all later steps follow, and so does the answer.

Under each letter of the text stands what the model expected there; it is lit where this is right. “Next letter” draws from the answer after the last letter: of the top-k letters, by their logits divided by the temperature. The same seed writes the same letter at the same place.`;

function render({ model, el: host, title }) {
  const study = new Study(model);
  const view = viewOf("attnlab-walk", "One forward pass, step by step", "walk");
  const { root } = view;
  const write = writing(study);
  const [rail, strip, stage, answer, heads, tables] = [railPanel(study), stripPanel(study, view), stagePanel(study, view), answerPanel(study), headsPanel(study, view), tablesPanel(study, view)];
  const controls = bar({ frequent: [write.field, ...write.buttons], more: write.more, help: HELP, label: "The text" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", testid: "live" });
  root.append(
    el("style", { text: base + barStyle + legendStyle + lettersStyle + style }),
    el("header", { class: "wk-text" }, el("div", { class: "wk-head" }, ...(title ? [el("h1", { text: title })] : []), el("p", { class: "wk-about", testid: "about", text: study.network.about })), controls.node, write.refusal, strip.node),
    rail.node,
    el("div", { class: "wk-panels" }, stage.node, el("div", { class: "wk-side" }, answer.node, heads.node)),
    ...(study.network.try ? [el("p", { class: "av-quiet wk-try", testid: "try" }, el("strong", { text: "Try: " }), study.network.try)] : []),
    tables.node, spoken,
  );
  host.replaceChildren(root);
  root.pass = (tokens, silent) => forward(study.network, tokens, silent); // for the tests: the numbers of a pass

  let reading = null;
  let last = null;
  function readOut() {
    const said = `${study.sentence} ${answer.sentence()}`;
    if (said === last) return;
    const first = last === null;
    last = said;
    clearTimeout(reading);
    if (!first) reading = setTimeout(() => (spoken.textContent = said), study.passing ? PAUSE + QUIET : QUIET); // while it plays, only where it rests
  }

  function draw() {
    study.read();
    const two = root.dataset.wide !== "one";
    const room = root.clientWidth - 34;
    const left = two ? Math.floor((room - 28) * 0.6) : room;
    write.draw();
    strip.draw(room);
    rail.draw();
    stage.draw(left);
    answer.draw(two ? room - 28 - left : room);
    heads.draw(two ? room - 28 - left : room);
    tables.draw();
    readOut();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["wide", { wide: 900, two: 660, one: 0 }] });
  return () => {
    stop();
    rail.stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render: (given) => render({ ...given, title: window.parent === window ? document.title : "" }) }, document) };
