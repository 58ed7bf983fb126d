// SignalLab: what a kernel does to a signal, and what the pole of a state space does to the kernel.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import boardStyle from "#parts/board.css";
import legendStyle from "#parts/legend.css";
import style from "./signal_lab.css";
import { LEAST_TOKENS, RULES, shortStep, typed } from "./signals.js";
import { bar } from "#parts/bar.js";
import { button, choice, el, labelled, slider } from "#parts/dom.js";
import { labelledSaying } from "#parts/legend.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountOn } from "#parts/page_model.js";
import { panelsOf } from "./panels.js";
import { Study } from "./study.js";

const TRAITS = ["signal", "poles", "weights", "step", "rule", "skip", "taps", "token"];
const [GAP, LOW] = [18, 130]; // pixels between panels, and of the height of those below
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `A pole A of a state space is a mode that fades (to the left: sooner) and turns (up: faster). Only one of each pair of conjugates can be dragged; the other, drawn hollow, mirrors it. Tokens come with a step of time between them, in which A becomes Ā: the zero-order hold is e^(step · A), the bilinear rule a quotient that never turns by more than half a circle. After every token the state is Ā times what it was, plus the new input.

The impulse response is the kernel: what the token itself, the one before it, … add to the output. The map holds it in every row, moved by one token: a lower triangular Toeplitz matrix. Blue is below 0, orange above; colours grow with the root.

Draw the signal with the mouse, or choose the chart and use the arrow keys: left and right choose a token, up and down change it, with Shift in larger steps. The line over the signal is the row of the map of the chosen token: what it takes of each token. Two of the signals are recorded and come with scikit-learn: a digit of 8 × 8 pixels, and the brightness along a row of the photograph china.jpg.

A kernel of taps ends after a few tokens; its state is the newest inputs themselves. Its taps are drawn like the signal. Under “More” numbers can be typed, and poles added.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const view = viewOf("attnlab-signal", "Signal lab", "signal-lab");
  const { root } = view;
  const names = (list) => [["", "changed by you"], ...list.map(({ name }) => [name, name])];
  const signals = choice("signal", "signal-preset", names(study.signals), (name) => name && study.startSignal(name));
  const kernels = choice("kernel", "kernel-preset", names(study.kernels), (name) => name && study.startKernel(name));
  const rule = choice("rule", "rule", Object.entries(RULES), (value) => study.set({ rule: value }));
  const step = slider("step", "step", { min: -4, max: 1, step: 0.01 }, (power) => study.set({ step: Number((10 ** power).toPrecision(4)) }));
  const add = button({ text: "Add a pole", testid: "add-pole", onclick: () => study.addPole() });
  const signalText = numbersField("signal", "signal-text", LEAST_TOKENS, (signal) => study.setSignal(signal));
  const tapsText = numbersField("taps, the newest token's first", "taps-text", 1, (taps) => study.set({ taps }));
  const controls = bar({ frequent: [signals.node, kernels.node, rule.node, step.node], more: [signalText.node, tapsText.node, add], help: HELP });
  const summary = el("p", { class: "av-summary sl-said", "data-testid": "summary" });
  const tries = el("p", { class: "sl-try", "data-testid": "try" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });

  const parts = panelsOf(study, view);
  const left = el("div", { class: "sl-cell" }, parts.poles.node, parts.taps.node);
  const middle = el("div", { class: "sl-cell" }, parts.kernel.node, parts.spectrum.node);
  root.append(
    el("style", { text: base + barStyle + boardStyle + legendStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "sl-upper" }, left, parts.circle.node, middle, parts.map.node),
    el("div", { class: "sl-lower" }, parts.signal.node, parts.state.node, parts.output.node),
    tries, parts.tables.node, spoken,
  );
  host.replaceChildren(root);

  /** A line for typed numbers; what is wrong with them is said in the place of what to try. */
  function numbersField(text, testid, least, accept) {
    const input = el("input", { type: "text", class: "sl-numbers", testid, spellcheck: "false" });
    input.addEventListener("change", () => {
      const { numbers, error } = typed(input.value, least);
      if (error) study.refused = error;
      else accept(numbers);
      view.changed();
    });
    return { node: labelled(text, input), input };
  }

  let [reading, heard] = [null, ""];
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.refused || study.sentence), QUIET);
  }

  /** Four panels in the upper row where there is room for the unit circle, three, or one below the other. */
  function drawPanels() {
    const wide = root.clientWidth - 32;
    const taps = study.state.taps.length > 0;
    const room = root.dataset.signal;
    const columns = room === "one" ? 1 : room === "three" || taps ? 3 : 4;
    root.style.setProperty("--upper", columns);
    const side = Math.min(300, Math.floor((wide - GAP * (columns - 1)) / columns));
    const lower = room === "one" ? wide : Math.floor((wide - 2 * GAP) / 3);
    parts.poles.node.hidden = taps;
    parts.taps.node.hidden = !taps;
    parts.circle.node.hidden = columns < 4;
    if (taps) parts.taps.draw(side, side);
    else parts.poles.draw(side - 2);
    if (columns === 4) parts.circle.draw(side - 2);
    parts.kernel.draw(side, Math.floor(side / 2) - 26);
    parts.spectrum.draw(side, Math.ceil(side / 2) - 26);
    parts.map.draw(side, side);
    for (const panel of [parts.signal, parts.state, parts.output]) panel.draw(lower, LOW);
    parts.tables.draw();
  }

  function draw() {
    study.read();
    const { state, kernel, drawn } = study;
    for (const [list, found] of [[signals, drawn], [kernels, kernel]]) {
      list.select.value = found?.name ?? "";
      list.select.options[0].hidden = Boolean(found);
    }
    rule.select.value = state.rule;
    step.input.value = Math.log10(state.step);
    step.output.textContent = shortStep(state.step);
    step.input.setAttribute("aria-valuetext", shortStep(state.step));
    rule.select.disabled = step.input.disabled = Boolean(state.taps.length);
    for (const [field, values] of [[signalText, state.signal], [tapsText, state.taps]]) {
      if (!field.input.matches(":focus")) field.input.value = values.map((x) => Number(x.toPrecision(4))).join(" ");
    }
    const said = study.refused || study.sentence;
    if (said !== heard) readOut();
    heard = said;
    summary.replaceChildren(...labelledSaying(study.sentence, study.untrained));
    tries.classList.toggle("sl-refused", Boolean(study.refused));
    tries.replaceChildren(...(study.refused ? [study.refused] : [el("strong", { text: "Try: " }), study.last.try]));
    drawPanels();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["signal", { wide: 960, four: 860, three: 600, one: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountOn(document, { render }) };
