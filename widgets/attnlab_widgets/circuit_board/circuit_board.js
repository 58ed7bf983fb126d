// CircuitBoard: the heads of a small language model as chips, and what becomes of the answer if a wire
// between them is cut. The page computes every cut.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import legendStyle from "#parts/legend.css";
import lettersStyle from "#parts/letters.css";
import style from "./circuit_board.css";
import { bar } from "#parts/bar.js";
import { button, choice, el, slider, toggle } from "#parts/dom.js";
import { stripPanel, typedPanel } from "#parts/letters.js";
import { labelledSaying } from "#parts/legend.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { answerPanel } from "./answer.js";
import { boardPanel } from "./board.js";
import { listPanel, tablesPanel } from "./list.js";
import { run } from "./paths.js";
import { INSTEAD, Study, TRAITS } from "./study.js";

const QUIET = 500; // milliseconds without a change after which the answer is read out
const SEEDS = 2 ** 31;
const HELP = `The heads of a language model stand on the board as chips, each with a small map of its attention. Below are the vectors of letters and places, above the logits, which make the answer.

A wire leads from a sender to the query, key or value of a later head, or to the logits. It is as thick as what its cut does to the answer: the pass is computed again with this one path cut, for every wire. Blue wires raise the letter that is watched, which is underlined; orange ones lower it, grey ones do little.

A cut wire carries something else, and the effect depends on what. Of another text all stays that both share, such as the places; the mean is that over many texts and places.

Click a wire, or choose it in the list: it is cut. Several cuts act together. A wire leads through the feed-forward layers on its way, unless you choose the direct way alone.`;

function render({ model, el: host, title }) {
  const study = new Study(model);
  const view = viewOf("attnlab-circuit", "The circuit board of a small model", "circuit-board");
  const { root } = view;
  const typed = typedPanel(study);
  const strip = stripPanel(study);
  const board = boardPanel(study, view);
  const [answer, list, tables] = [answerPanel(study), listPanel(study, board), tablesPanel(study, view)];
  const summary = el("p", { class: "av-summary cb-said", testid: "summary" });
  const instead = choice("a cut wire carries", "instead", INSTEAD.map((name) => [name, name === "the mean" ? `the mean of ${study.network.texts} texts` : name]), (value) => study.set({ instead: value }));
  const measure = choice("thickness by", "measure", [["probability", "probability"], ["logit", "logit"]], (value) => study.set({ measure: value }));
  const least = slider("grey below", "least", { min: 0, max: 0.5, step: 0.01 }, (value) => study.set({ least: value }));
  const through = toggle("wires lead through the feed-forward layers", "through", (value) => study.set({ through: value }));
  const undo = button({ text: "Undo", testid: "undo", onclick: () => study.undo() });
  const all = button({ text: "All wires back", testid: "all-back", onclick: () => study.state.cuts.length && study.change([]) });
  const again = button({ text: "another order", testid: "reorder", onclick: () => study.set({ order: (study.state.order + 1) % SEEDS }) });
  const carried = el("span", { class: "cb-carried", testid: "carried" });
  const controls = bar({ frequent: [typed.field, undo, all], more: [measure.node, through.node], help: HELP, label: "The text, and cuts" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", testid: "live" });
  root.append(
    el("style", { text: base + barStyle + legendStyle + lettersStyle + style }),
    el("header", { class: "cb-top" }, el("div", { class: "cb-head" }, ...(title ? [el("h1", { text: title })] : []), el("p", { class: "av-quiet cb-about", testid: "about", text: study.network.about })), controls.node, typed.refusal, strip.node, summary),
    el("div", { class: "cb-panels" },
      board.node,
      el("div", { class: "cb-side" }, answer.node, list.node, el("section", { class: "av-panel cb-instead", "aria-label": "What a cut wire carries" }, instead.node, el("p", { class: "cb-carries" }, carried, again), least.node))),
    ...(study.network.try ? [el("p", { class: "av-quiet cb-try", testid: "try" }, el("strong", { text: "Try: " }), study.network.try)] : []),
    tables.node, spoken,
  );
  host.replaceChildren(root);
  root.pass = (tokens, cuts, given, way) => run(study.network, tokens, cuts, given, way); // for the tests: the numbers of a pass

  let [reading, last, working] = [null, null, null];
  function readOut() {
    const said = study.sentence;
    if (said === last || !study.complete) return;
    const first = last === null;
    last = said;
    clearTimeout(reading);
    if (!first) reading = setTimeout(() => (spoken.textContent = said), QUIET);
  }

  /** Some wires more, then a drawing, and so on until all are there. */
  function work() {
    working = null;
    const more = study.more();
    root.dataset.whole = String(!more);
    view.changed();
  }

  function draw() {
    study.read();
    const wide = root.dataset.wide !== "one";
    const room = root.clientWidth - 34;
    const { instead: carries, measure: by, least: share, through: way, cuts } = study.state;
    typed.draw();
    strip.draw(room);
    instead.select.value = carries;
    measure.select.value = by;
    least.input.value = String(share);
    least.output.textContent = `${Math.round(100 * share)} % of the thickest`;
    least.input.setAttribute("aria-valuetext", least.output.textContent);
    through.box.checked = way;
    undo.setAttribute("aria-disabled", String(!study.past.length)); // not disabled: it would lose the focus
    all.setAttribute("aria-disabled", String(!cuts.length));
    again.hidden = carries !== "another text";
    const { shown } = study.network;
    const other = carries === "another text" ? study.other.map((token) => shown[token]).join("") : "";
    carried.textContent = carries === "another text" ? `what its sender makes of “${other}”` : carries === "the mean" ? "what its sender adds in the mean, over all their places" : "zeros in the place of what its sender adds";
    summary.replaceChildren(...labelledSaying(study.sentence, model.get("untrained")));
    board.draw(wide ? Math.floor((room - 24) * 0.6) : room);
    answer.draw();
    list.draw();
    tables.draw();
    readOut();
    if (study.complete) root.dataset.whole = "true";
    else if (working === null) working = setTimeout(work, 0);
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["wide", { two: 660, one: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
    clearTimeout(working);
  };
}

export default { render, page: (document) => mountPage({ render: (given) => render({ ...given, title: window.parent === window ? document.title : "" }) }, document) };
