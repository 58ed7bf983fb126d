// SignalLab: what a kernel does to a signal, and what the pole of a state space does to the kernel.
import base from "./parts/base.css";
import barStyle from "./parts/bar.css";
import boardStyle from "./parts/plane/board.css";
import style from "./signal_lab.css";
import { LEAST_TOKENS, RULES, shortStep, typed } from "./lib/signals.js";
import { two } from "./lib/plane.js";
import { bar } from "./parts/bar.js";
import { button, choice, el, labelled, slider } from "./parts/dom.js";
import { live, viewOf } from "./parts/lifecycle.js";
import { mountOn } from "./parts/page_model.js";
import { gridPanel } from "./parts/signal/grid.js";
import { circlePanel, polesPanel } from "./parts/signal/poles.js";
import { seriesPanel } from "./parts/signal/series.js";
import { spectrumPanel } from "./parts/signal/spectrum.js";
import { Study } from "./parts/signal/study.js";
import { tablesPanel } from "./parts/signal/tables.js";

const TRAITS = ["signal", "poles", "weights", "step", "rule", "skip", "taps", "token"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `A pole A of a state space is a mode that fades (to the left: sooner) and turns (up: faster). Only one of each pair of conjugates can be dragged; the other, drawn hollow, mirrors it. Tokens come with a step of time between them, in which A becomes Ā: the zero-order hold is e^(step · A), the bilinear rule a quotient that never turns by more than half a circle. After every token the state is Ā times what it was, plus the new input.

The impulse response is the kernel: what the token itself, the one before it, … add to the output. The map holds it in every row, moved by one token: a lower triangular Toeplitz matrix. Blue is below 0, orange above; colours grow with the root.

Draw the signal with the mouse, or choose the chart and use the arrow keys: left and right choose a token, up and down change it, with Shift in larger steps. The line over the signal is the row of the map of the chosen token: what it takes of each token.

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

  const token = () => study.state.token;
  const choose = (at) => study.choose(at);
  const series = (given) => seriesPanel({ chosen: token, choose, ...given });
  /** What is read out of the kernel or of the taps is the page's own. */
  function read(which) {
    Object.assign(study, which);
    view.changed();
  }
  const named = (values, what) => (at) => `${what} ${at}: ${two(values()[at], 3)}`;
  const parts = {
    poles: polesPanel(study),
    taps: seriesPanel({
      title: "Taps", testid: "taps", hint: "draw them; the newest token's first", look: "sl-kernel", values: () => study.state.taps, chosen: () => study.tap,
      choose: (at) => read({ tap: at }), pen: (from, to) => study.draw("taps", from, to), read: named(() => study.state.taps, "Tap"),
    }),
    circle: circlePanel(study),
    kernel: seriesPanel({
      title: "Impulse response", testid: "kernel", look: "sl-kernel", values: () => study.found.kernel, chosen: () => study.lag,
      choose: (at) => read({ lag: at }), read: (at) => `${at} tokens before: ${two(study.found.kernel[at], 3)}`,
    }),
    spectrum: spectrumPanel(study),
    map: gridPanel(view, {
      title: () => "The map", testid: "map", hint: "row i: what i takes", shape: () => [study.n, study.n], value: (i, j) => (j > i ? 0 : study.found.kernel[i - j]),
      mark: () => [token(), null], press: (i) => choose(i), keys: (event) => moved(event, { ArrowDown: 1, ArrowUp: -1 }),
      read: (i = token(), j = i) => (j > i ? `Token ${i} does not read token ${j}, which comes later.` : `Token ${i} takes ${two(study.found.kernel[i - j], 3)} of token ${j}.`),
    }),
    signal: series({
      title: "Signal", testid: "signal", hint: "draw it", look: "sl-signal", values: () => study.state.signal, pen: (from, to) => study.draw("signal", from, to),
      over: () => study.state.signal.map((_, j) => study.found.kernel[token() - j] ?? 0), read: named(() => study.state.signal, "Token"),
    }),
    state: gridPanel(view, {
      title: () => (study.state.taps.length ? "State: the newest inputs" : "State: a row for each mode"), testid: "state",
      shape: () => [study.found.states.length, study.n], value: (row, at) => study.found.states[row][at],
      mark: () => [null, token()], press: (_, at) => choose(at), keys: (event) => moved(event, { ArrowRight: 1, ArrowLeft: -1 }),
      read: (row = 0, at = token()) => `${study.state.taps.length ? `${row} tokens before` : `Mode ${row}, real part, after`} token ${at}: ${two(study.found.states[row][at], 3)}`,
    }),
    output: series({ title: "Output", testid: "output", look: "sl-output", values: () => study.found.output, read: named(() => study.found.output, "Token") }),
    tables: tablesPanel(study, view),
  };
  const left = el("div", { class: "sl-cell" }, parts.poles.node, parts.taps.node);
  const middle = el("div", { class: "sl-cell" }, parts.kernel.node, parts.spectrum.node);
  root.append(
    el("style", { text: base + barStyle + boardStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "sl-upper" }, left, parts.circle.node, middle, parts.map.node),
    el("div", { class: "sl-lower" }, parts.signal.node, parts.state.node, parts.output.node),
    tries, parts.tables.node, spoken,
  );
  host.replaceChildren(root);

  function moved(event, keys) {
    const by = keys[event.key];
    if (by) choose(model.get("token") + by);
    return Boolean(by);
  }

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

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.refused || study.sentence), QUIET);
  }

  function drawPanels() {
    const wide = root.clientWidth - 32;
    const sort = root.dataset.signal;
    const circle = sort === "four" && !study.state.taps.length;
    const columns = sort === "one" ? 1 : circle ? 4 : 3;
    root.style.setProperty("--upper", columns);
    const side = Math.min(300, Math.floor((wide - 18 * (columns - 1)) / columns));
    const lower = sort === "one" ? wide : Math.floor((wide - 36) / 3);
    parts.poles.node.hidden = Boolean(study.state.taps.length);
    parts.taps.node.hidden = !study.state.taps.length;
    parts.circle.node.hidden = !circle;
    if (study.state.taps.length) parts.taps.draw(side, side - 22);
    else parts.poles.draw(side - 2);
    if (circle) parts.circle.draw(side - 2);
    parts.kernel.draw(side, Math.floor(side / 2) - 26);
    parts.spectrum.draw(side, Math.ceil(side / 2) - 26);
    parts.map.draw(side, side);
    parts.signal.draw(lower, 130);
    parts.state.draw(lower, 130);
    parts.output.draw(lower, 130);
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
    if (summary.dataset.said !== said) readOut();
    summary.dataset.said = said;
    summary.textContent = study.sentence;
    tries.classList.toggle("sl-refused", Boolean(study.refused));
    tries.replaceChildren(...(study.refused ? [study.refused] : [el("strong", { text: "Try: " }), study.last.try]));
    drawPanels();
    parts.tables.draw();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["signal", { four: 860, three: 600, one: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountOn(document, { render }) };
