// HeadMap: which heads attend alike, and to what?
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import stripStyle from "#parts/token_strip.css";
import style from "./head_map.css";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { tokenStrip } from "#parts/token_strip.js";
import { matrixPanel } from "./matrix.js";
import { planePanel } from "./plane.js";
import { Study, weightOf } from "./study.js";
import { tablesPanel } from "./tables.js";

const TRAITS = ["layer", "head", "query", "near", "colour"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `A point is a head. The distance of two heads is the Jensen–Shannon divergence of their rows, in the mean over all queries: 0 where both attend to the same keys with the same weights, 0.69 nats where they never attend to the same key. The plane shows the square roots of these distances as well as two dimensions can; the stress says how much is lost. Trust the numbers beside the nearest heads, which are the distances themselves.

Colour and shape say the kind of a head, by the rule of find_heads; “mixed” is all that the rule does not name. Where importance was given, a larger point is a head that the model needs more.

Choose a head by a click or the arrow keys. Its map stands beside the plane: a row for each query. Choose a query there, or in the text below; the text is shaded by the weights of that query.

A kind is a statement about weights. It does not say what the model makes of them.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const { found } = study;
  const view = viewOf("attnlab-head-map", "Map of heads", "head-map");
  const { root } = view;
  const heads = choice("head", "head", found.heads.map(([layer, head], at) => [String(at), `${layer}.${head} ${found.looks[found.kinds[at]]}`]), (at) => study.choose(Number(at)));
  const near = slider("lines to the nearest", "near", { min: 0, max: Math.min(6, found.count - 1), step: 1 }, (value) => study.set({ near: value }));
  const colour = choice("colour", "colour", [["kind", "kind"], ["layer", "layer"]], (value) => study.set({ colour: value }));
  const controls = bar({ frequent: [heads.node, near.node, colour.node], help: HELP });
  const summary = el("p", { class: "av-summary hm-said", "data-testid": "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const look = (i) => {
    const w = weightOf(study.code(study.state.query, i));
    return { name: "", share: Math.sqrt(w), label: `${found.tokens[i]}, ${i === study.state.query ? "the query, " : ""}weight ${w.toFixed(2)}` };
  };
  const strip = tokenStrip({ tokens: found.tokens, label: "The text, shaded by the weights of the chosen query. Arrow keys choose the query.", at: () => model.get("query"), choose: (query) => study.chooseQuery(query), look });
  const [plane, matrix, tables] = [planePanel(study), matrixPanel(study, view), tablesPanel(study, view)];
  root.append(
    el("style", { text: base + barStyle + stripStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "av-panels hm-panels" }, plane.node, matrix.node),
    strip.node,
    el("p", { class: "hm-try av-quiet", "data-testid": "try" }, el("strong", { text: "Try: " }), "choose two heads that lie near each other, then two that lie far apart: in what do their maps differ?"),
    tables.node, spoken,
  );
  host.replaceChildren(root);

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  function draw() {
    study.read();
    heads.select.value = String(study.at);
    near.input.value = study.state.near;
    near.output.textContent = study.state.near;
    colour.select.value = study.state.colour;
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    const two = root.dataset.wide === "two";
    const wide = root.clientWidth - 32;
    const each = two ? Math.floor((wide - 24) / 2) : wide;
    plane.draw(each, two ? Math.min(360, each) : 240);
    matrix.draw(each, two ? 390 : 330);
    strip.draw();
    tables.draw();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["wide", { two: 640, one: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
