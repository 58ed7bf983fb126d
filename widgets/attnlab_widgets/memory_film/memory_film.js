// MemoryFilm: what a memory keeps of a text, and what is lost, while the text passes.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import legendStyle from "#parts/legend.css";
import stripStyle from "#parts/token_strip.css";
import style from "./memory_film.css";
import { FAR, LOST, NEAR, SEGMENT, columnOf, weightOf, zoneOf } from "#lib/film.js";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { columnsPanel } from "./columns.js";
import { sharesPanel } from "./shares.js";
import { statePanel } from "./state.js";
import { Study } from "./study.js";
import { tablesPanel } from "./tables.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { labelledSaying } from "#parts/legend.js";
import { mountPage } from "#parts/page.js";
import { player } from "#parts/player.js";
import { tokenStrip } from "#parts/token_strip.js";

const TRAITS = ["query", "layer", "head", "channel", "vector", "order"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `A text is read from left to right. A layer with a memory attends to the tokens of its segment and to what it has kept of the segments before; what is hatched has fallen out, and this layer no longer reaches it (what layers below have carried on may still contain some of it). Play goes from segment to segment.

The bars are the weights of the chosen token, in the colour of the place: its segment, the memory, the compressed or searched memory. A compressed vector stands for several tokens, and its bar is as wide as they are. In a Memorizing Transformer a token of the cache may be fetched from the searched memory as well; both weights stand together. Below the bars are the weights of all tokens of the segment.

A recurrent layer keeps a state of constant size. Its image has a row for each channel and a column for each token, blue below 0 and orange above; what is pale has not been read yet. The bars beside it say how long a channel holds, on a logarithmic scale: its half-life, where the layer's parameters alone decide it, otherwise by how much it changes from one state to the next.`;
const CLASSES = { [SEGMENT]: "mf-segment", [NEAR]: "mf-near", [FAR]: "mf-far", [LOST]: "mf-lost" };

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const view = viewOf("attnlab-film", "Memory film", "memory-film");
  const { root } = view;
  view.point = (at) => {
    if (String(at) === String(study.at)) return;
    study.at = at;
    view.later(drawChosen);
  };
  const play = player({ at: () => study.moment, last: () => study.moments - 1, go: (moment) => study.show(moment), pause: () => (study.attends ? 1200 : 250) });
  const moments = slider("segment", "moment", { min: 0, step: 1 }, (value) => {
    play.stop();
    study.show(value);
  });
  const layers = choice("layer", "layer", study.layers.map(({ title }, at) => [at, title]), (value) => study.chooseLayer(Number(value)));
  const heads = choice("head", "head", [], (value) => study.set({ head: value === "" ? null : Number(value) }));
  const vectors = choice("state vector", "vector", [], (value) => study.set({ vector: Number(value) }));
  const order = choice("channels", "order", [["number", "by number"], ["holds", "longest first"]], (value) => study.set({ order: value }));
  const controls = bar({ frequent: [play.node, moments.node, layers.node, heads.node, vectors.node, order.node], help: HELP });
  const summary = el("p", { class: "av-summary mf-said", "data-testid": "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const strip = tokenStrip({ tokens: study.tokens, label: "The text. Arrow keys choose the token.", at: () => model.get("query"), choose: (query) => study.set({ query }), look });
  const parts = { columns: columnsPanel(study, view), shares: sharesPanel(study, view), state: statePanel(study, view), tables: tablesPanel(study, view) };
  root.append(
    el("style", { text: base + barStyle + legendStyle + stripStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary, strip.node),
    parts.columns.node, parts.shares.node, parts.state.node, parts.tables.node, spoken,
  );
  host.replaceChildren(root);

  function look(i) {
    const { query, head } = study.state;
    if (!study.attends) return { name: i > query ? "mf-ahead" : "", share: 0 };
    const zone = zoneOf(study.layer, query, i);
    const share = ZONED.has(zone) ? Math.sqrt(weightOf(study.layer, head, query, columnOf(study.layer, query, i)).w) : 0;
    return { name: CLASSES[zone] ?? "mf-ahead", share };
  }

  let [reading, said] = [null, null];
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  /** Options of a list that depends on the layer; hidden where there is nothing to choose. */
  function options({ node, select }, texts, value, first = null) {
    const all = [...(first ? [["", first]] : []), ...texts.map((text, at) => [String(at), text])];
    if (select.options.length !== all.length) select.replaceChildren(...all.map(([one, text]) => el("option", { value: one, text })));
    node.hidden = texts.length < 2;
    select.value = value === null ? "" : String(value);
  }

  const across = () => root.clientWidth - 32;

  /** What shows the chosen token, and what is pointed at. */
  function drawChosen() {
    const { attends, layer, n } = study;
    if (attends) parts.columns.draw(across(), { bars: 104, rows: Math.min(112, Math.max(56, 9 * Math.min(layer.segment, n))) });
    else parts.state.draw(across(), Math.min(380, Math.max(160, 9 * layer.dim)));
  }

  function draw() {
    study.read();
    const { layer, attends, state } = study;
    root.dataset.kind = layer.kind;
    parts.columns.node.hidden = parts.shares.node.hidden = !attends;
    parts.state.node.hidden = attends;
    moments.node.querySelector("span").textContent = attends ? "segment" : "token";
    moments.input.max = study.moments - 1;
    moments.input.value = study.moment;
    moments.output.textContent = attends ? `${study.moment + 1} of ${study.moments}` : study.moment;
    moments.input.setAttribute("aria-valuetext", moments.output.textContent);
    options(layers, study.layers.map(({ title }) => title), state.layer);
    options(heads, Array.from({ length: attends ? layer.h : 0 }, (_, at) => `head ${at}`), state.head, "mean of all");
    options(vectors, Array.from({ length: attends ? 0 : layer.r }, (_, at) => `${at}`), state.vector);
    order.node.hidden = attends;
    order.select.value = state.order;
    if (said !== study.sentence) readOut();
    said = study.sentence;
    summary.replaceChildren(...labelledSaying(said, model.get("untrained")));
    strip.draw();
    drawChosen();
    if (attends) parts.shares.draw(across(), root.clientWidth < 620 ? 60 : 72);
    parts.tables.draw();
  }
  const stop = live({ model, view, traits: TRAITS, draw });
  return () => {
    stop();
    play.stop();
    clearTimeout(reading);
  };
}

const ZONED = new Set([SEGMENT, NEAR, FAR]);

export default { render, page: (document) => mountPage({ render }, document) };
