// QueryOnAPlane: a query is dragged among keys; scores, weights and the output follow.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import boardStyle from "#parts/board.css";
import style from "./query_on_a_plane.css";
import { two } from "#lib/plane.js";
import { bar } from "#parts/bar.js";
import { choice, el, labelled, slider } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountOn } from "#parts/page_model.js";
import { arrowsPanel } from "./arrows.js";
import { Study } from "./study.js";
import { valuesPanel } from "./values.js";
import { weightsPanel } from "./weights.js";

const TRAITS = ["key_vectors", "value_vectors", "query", "scale", "masked", "names", "shows"];
const ROOT = Math.SQRT1_2; // 1/√d in the plane
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `The query and the keys are arrows from the origin. The score of a key is q·k times the scale: the length of the query, times how far the key reaches along the query's direction, times the scale. All keys on one of the thin lines have the same score.

Softmax raises e to each score and divides by the sum, so only differences of scores count. The output is the mean of the values with these weights: it never leaves the shaded area that the values span.

A large scale (a low temperature, 1 ÷ scale) lets the best key take everything; a small one makes the weights alike. Attention divides by √d; here d = 2.

Drag the query, a key or a value, or press Tab and use the arrow keys. Click a key, or its name in the table, to mask it.`;

function render({ model, el: host }) {
  const study = new Study(model);
  const view = viewOf("attnlab-plane", "Query on a plane", "query-on-a-plane");
  const { root } = view;
  view.point = (j) => {
    study.at = j;
    view.changed();
  };
  const preset = choice("example", "preset", [["", "changed by you"], ...study.presets.map(({ name }) => [name, name])], (name) => name && study.start(name));
  const scale = slider("scale", "scale", { min: -4, max: 6, step: 0.05 }, (power) => study.set({ scale: 2 ** power }));
  const root2 = el("button", { type: "button", class: "av-button", text: "1/√d", title: "Scale by 1/√d = 0.71, or not at all (1)", "data-testid": "root", onclick: () => study.set({ scale: study.get("scale") === ROOT ? 1 : ROOT }) });
  const shows = choice("show", "shows", [["scores", "lines of equal score"], ["projections", "projections on the query"], ["winners", "which key wins, for any query"]], (value) => study.set({ shows: value }));
  const axis = (name, at) => {
    const input = el("input", { type: "number", class: "av-number", step: 0.1, min: -100, max: 100, "data-testid": `query-${name}`, onchange: () => {
      const value = Math.min(100, Math.max(-100, Number(input.value) || 0));
      study.move("query", 0, study.state.query.map((old, i) => (i === at ? value : old)));
    } });
    return { node: labelled(`query, ${name}`, input), input };
  };
  const axes = [axis("right", 0), axis("up", 1)];
  const controls = bar({ frequent: [preset.node, scale.node, root2, shows.node], more: axes.map(({ node }) => node), help: HELP });
  const summary = el("p", { class: "av-summary qp-said", "data-testid": "summary" });
  const tries = el("p", { class: "qp-try", "data-testid": "try" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const parts = { arrows: arrowsPanel(study, view), weights: weightsPanel(study, view), values: valuesPanel(study, view) };
  root.append(
    el("style", { text: base + barStyle + boardStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "qp-panels" }, parts.arrows.node, parts.weights.node, parts.values.node, parts.values.sum),
    tries,
    spoken,
  );
  host.replaceChildren(root);

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  /** The sides of the two squares, from the width and the number of keys. */
  function sides() {
    const wide = root.clientWidth - 32;
    const layout = root.dataset.plane;
    if (layout === "three") return [Math.min(530, wide * 0.37), Math.min(380, wide * 0.25)];
    if (layout === "one") return [Math.min(460, wide - 2), Math.min(320, wide - 2)];
    if (layout === "small") return [wide / 2 - 10, wide / 2 - 10];
    const side = Math.min(474, wide / 2 - 14);
    return [side, Math.min(side * 0.54, Math.max(170, side - 84 - 28 * study.state.keys.length))];
  }

  function draw() {
    study.read();
    const changed = study.preset;
    preset.select.value = changed?.name ?? "";
    preset.select.options[0].hidden = Boolean(changed);
    const now = study.get("scale");
    scale.input.value = Math.log2(now);
    scale.output.textContent = now === ROOT ? "0.71 = 1/√2" : two(now);
    scale.input.setAttribute("aria-valuetext", `${two(now)}, temperature ${two(1 / now)}`);
    root2.setAttribute("aria-pressed", String(now === ROOT));
    shows.select.value = study.get("shows");
    axes.forEach(({ input }, at) => (input.value = study.state.query[at]));
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    tries.replaceChildren(el("strong", { text: "Try: " }), study.last.try);
    const [large, small] = sides();
    root.style.setProperty("--large", `${large + 2}px`);
    root.style.setProperty("--small", `${small + 2}px`);
    parts.arrows.draw(large);
    parts.weights.draw();
    parts.values.draw(small);
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["plane", { three: 1200, two: 860, small: 620, one: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountOn(document, { render }) };
