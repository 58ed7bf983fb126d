// StateView: the state of a linear recurrence, as facts are written into it one by one.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import stripStyle from "#parts/token_strip.css";
import style from "./state_view.css";
import { two } from "#lib/plane.js";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountOn } from "#parts/page_model.js";
import { player } from "#parts/player.js";
import { tokenStrip } from "#parts/token_strip.js";
import { equationPanel, readingsPanel, rulesPanel, spectrumPanel, tablesPanel } from "./panels.js";
import { Study } from "./study.js";

const TRAITS = ["family", "facts", "decay", "step", "overlap", "token"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `A token writes a fact: the key k (Ada) gets the value v (red). The state S is a matrix with a row for each channel of the key and a column for each value. A token multiplies S by its transition A, and adds k vᵀ, times the step b where the rule erases. All rules of the list are this one line; they differ in A alone.

The decay a multiplies what is held. It is a number that is always the same (retention), a number of the token, or a number for each channel. Here a token's number is a to the power f, the “forget” of the token, and the channels have powers from 0 (the first, which holds) to 2 f (the last). Mamba-2 also multiplies what it writes by its step; this is left out.

I − b k kᵀ takes out the part b of what the key reads: with b = 1 all of it, so that the key returns the new value exactly. Its eigenvalue along k is 1 − b, all others are 1. Between −1 and 1 (the shaded band) nothing grows.

“What each key returns” multiplies every key with S. ✓ means that the largest number belongs to the value that was written last to this key. With overlap, any two keys have this dot product, so that each reads a part of what the others wrote.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const view = viewOf("attnlab-state", "State view", "state-view");
  const { root } = view;
  const show = (token) => study.set({ token });
  const play = player({ at: () => model.get("token"), last: () => study.n - 1, go: show, pause: () => 1200 });
  const preset = choice("example", "preset", [["", "changed by you"], ...study.presets.map(({ name }) => [name, name])], (name) => name && study.start(name));
  const rule = choice("rule", "family", study.rules.map(({ name, title }) => [name, title]), (family) => study.set({ family }));
  const token = slider("token", "moment", { min: 1, max: study.n, step: 1 }, (value) => {
    play.stop();
    show(value - 1);
  });
  const decay = slider("a", "decay", { min: 0, max: 1, step: 0.01 }, (value) => study.set({ decay: value }));
  const step = slider("b", "step", { min: 0, max: 2.5, step: 0.05 }, (value) => study.set({ step: value }));
  const overlap = slider("overlap of keys", "overlap", { min: 0, max: 0.9, step: 0.05 }, (value) => study.set({ overlap: value }));
  const named = (text, testid, names, at) => choice(text, testid, names.map((name) => [name, name]), (name) => study.change(at, name));
  const key = named("this token's key", "key", study.names, 0);
  const value = named("its value", "value", study.values, 1);
  const forget = slider("it forgets, f", "forget", { min: 0, max: 20, step: 0.5 }, (power) => study.change(2, power));
  const controls = bar({ frequent: [rule.node, play.node, token.node, decay.node, step.node, preset.node], more: [overlap.node, key.node, value.node, forget.node], help: HELP });
  const summary = el("p", { class: "av-summary sv-said", "data-testid": "summary" });
  const tries = el("p", { class: "sv-try", "data-testid": "try" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const strip = tokenStrip({ tokens: study.state.facts.map(() => ""), label: "The facts. Arrow keys choose the token.", at: () => model.get("token"), choose: show, look });
  const [equation, spectrum, readings, rules, tables] = [equationPanel(study, view), spectrumPanel(study), readingsPanel(study, view), rulesPanel(study), tablesPanel(study, view)];
  root.append(
    el("style", { text: base + barStyle + stripStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary, strip.node),
    equation.node,
    el("div", { class: "sv-lower" }, spectrum.node, readings.node, rules.node),
    tries, tables.node, spoken,
  );
  host.replaceChildren(root);

  const all = () => study.state.facts.every(([, , f]) => f === 1);
  const told = ([name, what, f]) => `${name} → ${what}${all() ? "" : ` (f = ${f})`}`;

  function look(t) {
    return { name: t > study.state.token ? "sv-ahead" : "", share: t === study.state.token ? 0.5 : 0 };
  }

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  function drawPanels() {
    const wide = root.clientWidth - 32;
    const room = root.dataset.state;
    const most = Math.max(study.names.length, study.values.length);
    const across = room === "one" ? Math.min(220, wide / 2 - 40) : wide / 4 - 42;
    equation.draw(Math.floor(Math.min(40, across / most)));
    const [first, second] = { wide: [wide / 3 - 16, wide / 3 - 16], two: [wide - 488, 236], one: [wide, wide] }[room];
    spectrum.draw(first, 190);
    readings.draw(Math.floor(Math.min(38, (second - 124) / study.values.length, 170 / study.names.length)));
    rules.draw();
    tables.draw();
  }

  function put({ input, output }, number, text) {
    input.value = number;
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
  }

  function draw() {
    study.read();
    const { state, rule: now, n } = study;
    const fact = state.facts[state.token];
    preset.select.value = study.preset?.name ?? "";
    preset.select.options[0].hidden = Boolean(study.preset);
    rule.select.value = state.family;
    put(token, state.token + 1, `${state.token + 1} of ${n}`);
    put(decay, state.decay, two(state.decay));
    put(step, state.step, two(state.step));
    put(overlap, state.overlap, two(state.overlap));
    put(forget, fact[2], String(fact[2]));
    [key.select.value, value.select.value] = fact;
    decay.input.disabled = now.decays === "none";
    step.input.disabled = now.erases === "none";
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    strip.draw();
    strip.nodes.forEach((one, t) => (one.textContent = told(state.facts[t])));
    tries.replaceChildren(el("strong", { text: "Try: " }), study.last.try);
    drawPanels();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["state", { wide: 860, two: 660, one: 0 }] });
  return () => {
    stop();
    play.stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountOn(document, { render }) };
