// CacheView: what each layer of a stack keeps of the tokens it has read, and the bill.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./cache_view.css";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountOn } from "#parts/page_model.js";
import { player } from "#parts/player.js";
import { SCOPES } from "./bills.js";
import { growthPanel, stackPanel, tablesPanel } from "./panels.js";
import { Study } from "./study.js";
import { thousands } from "./words.js";

const TRAITS = ["name", "layers", "tokens", "bits", "layer", "scope"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `A row is a layer, the first at the bottom. A text flows from there to the top, and each layer keeps something of every token that it will attend to again. The grey ground is the whole text, from its first token to the newest; what is coloured is kept. The bar at the right is what it costs, in bytes.

Choose a layer, by a click or the arrow keys, and another kind for it. “Layers” says which others change with it: all, every second, or three of four, which leaves the chosen layer as it is, so that one of four keeps its kind.

A window keeps the last tokens alone, a state holds one matrix for each head however long the text is, and a layer that attends to the cache of another keeps nothing. Bits are those of a number of keys and values. Rounded ones need one bit more, for the scales of groups of 32, and the newest 128 tokens stay as they are. Latents and states are not rounded here.

What would be left of a model's quality is not shown: a model must be trained so.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const view = viewOf("attnlab-cache", "Cache view", "cache-view");
  const { root } = view;
  const read = (power) => study.set({ tokens: 2 ** power });
  const power = () => Math.round(Math.log2(model.get("tokens")));
  const play = player({ at: power, last: () => 20, go: read, pause: () => 500 });
  const preset = choice("model", "model", study.models.map(({ name }) => [name, name]), (name) => study.start(name));
  const tokens = slider("tokens", "tokens", { min: 0, max: 20, step: 1 }, (value) => {
    play.stop();
    read(value);
  });
  const scope = choice("layers", "scope", SCOPES.map((name) => [name, name]), (name) => study.set({ scope: name }));
  const kind = choice("keep", "kind", [], (name) => study.switch(name));
  const bits = choice("bits", "bits", [16, 8, 4, 2].map((one) => [String(one), String(one)]), (one) => study.set({ bits: Number(one) }));
  const controls = bar({ frequent: [preset.node, play.node, tokens.node, scope.node, kind.node, bits.node], help: HELP });
  const summary = el("p", { class: "av-summary cv-said", "data-testid": "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const [stack, growth, tables] = [stackPanel(study), growthPanel(study), tablesPanel(study, view)];
  root.append(
    el("style", { text: base + barStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "cv-panels" }, stack.node, growth.node),
    el("p", { class: "cv-try", "data-testid": "try" }, el("strong", { text: "Try: " }), "switch three of four layers to a window, and move the tokens: from where on does the window save anything?"),
    tables.node, spoken,
  );
  host.replaceChildren(root);

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  let listed = "";
  function drawControls() {
    const { state, kinds, names } = study;
    if (listed !== state.name) {
      kind.select.replaceChildren(...names.map((name) => el("option", { value: name, text: kinds[name].title })));
      listed = state.name;
    }
    preset.select.value = state.name;
    scope.select.value = state.scope;
    kind.select.value = study.layers[study.layer];
    bits.select.value = String(state.bits);
    tokens.input.value = power();
    tokens.output.textContent = thousands(state.tokens);
    tokens.input.setAttribute("aria-valuetext", `${thousands(state.tokens)} tokens`);
  }

  function draw() {
    study.read();
    drawControls();
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    const wide = root.clientWidth - 32;
    const one = root.dataset.state === "one";
    stack.draw(one ? wide : Math.floor((wide - 24) * 0.6), 400);
    growth.draw(one ? wide : Math.floor((wide - 24) * 0.4), 260);
    tables.draw();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["state", { two: 660, one: 0 }] });
  return () => {
    stop();
    play.stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountOn(document, { render }) };
