// QueriesView: what does each query read of an image, and when does it learn to?
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import legendStyle from "#parts/legend.css";
import style from "./queries_view.css";
import { bar } from "#parts/bar.js";
import { choice, el, plain, slider } from "#parts/dom.js";
import { weightLegend } from "#parts/legend.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { player } from "#parts/player.js";
import { neighbour, tokenAt } from "#lib/patches.js";
import { imageCanvas, mapCanvas } from "./maps.js";
import { columnsFor, moved, Study } from "./study.js";
import { tablesPanel } from "./tables.js";
import { place, readers, weight } from "./words.js";

const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `A few learned queries attend to the patches of an image. Each small map is one query: a cell for each patch, in the colour of its weight. The colour goes by the square root of the weight, from 0 to the largest weight that any query gives a patch, after any update, in any layer and head: one scale for all maps. The weights of a query add up to 1 over all patches; where a class token stands before the patches it takes a part of the 1, and what it takes has no cell, but is said.

Point at a query, and its map is drawn large below the image. Point at a patch, in the image or in the large map, and under each query stands the weight that it gives this patch. A click keeps the choice; a second click on a patch, or Escape, lets it go.

The slider goes through the updates after which the queries were looked at. A weight says what a query reads, not what the model makes of it.`;

function render({ model, el: host }) {
  const study = new Study(model);
  study.read();
  const { found } = study;
  const { steps, grid, queries } = found;
  const across = columnsFor(queries);
  const view = viewOf("attnlab-queries", "Queries over an image", "queries-view");
  const { root } = view;
  const last = steps.length - 1;
  const scale = `√weight, 0 to ${weight(found.largest)}`;
  const moment = slider("update", "moment", { min: 0, max: last, step: 1 }, (value) => study.set({ moment: value }));
  const film = player({ at: () => model.get("moment"), last: () => last, go: (to) => study.set({ moment: to }), pause: () => 700 });
  const layer = choice("layer", "layer", found.layers.map((name, at) => [String(at), name]), (at) => study.set({ layer: Number(at) }));
  const heads = [["-1", found.heads === 1 ? "its only one" : "mean of all"], ...Array.from({ length: found.heads === 1 ? 0 : found.heads }, (_, head) => [String(head), String(head)])];
  const head = choice("head", "head", heads, (at) => study.set({ head: Number(at) }));
  moment.node.hidden = film.node.hidden = last === 0;
  const controls = bar({ frequent: [film.node, moment.node, layer.node, head.node], help: HELP });
  const summary = el("p", { class: "av-summary qv-said", testid: "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", testid: "live" });
  const picture = new Image();
  picture.addEventListener("load", () => view.changed());
  picture.src = found.image.url;

  const stage = el("canvas", { class: "qv-stage", role: "application", tabindex: "0", "aria-roledescription": "image", testid: "image" });
  const large = el("canvas", { class: "qv-stage", "aria-hidden": "true", testid: "map" });
  const title = el("h3", {});
  const tiles = Array.from({ length: queries }, (_, query) => {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const name = el("span", { class: "qv-name" });
    const node = el("div", { class: "qv-tile", testid: `query-${query}`, onclick: () => study.set({ query }), onpointerenter: () => point({ query }), onpointerleave: () => point({}) }, canvas, name);
    return { node, canvas, name };
  });
  const list = el("div", { class: "qv-tiles", role: "application", tabindex: "0", "aria-roledescription": "list of maps", testid: "queries", onkeydown: (event) => go(event, "query", moved(model.get("query"), event.key, queries, across)) }, ...tiles.map(({ node }) => node));
  const tables = tablesPanel(study, view);
  root.append(
    el("style", { text: base + barStyle + legendStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "av-panels qv-panels" },
      el("section", { class: "qv-pair", "aria-label": "Image" }, el("div", {}, el("h3", { text: "The image" }), stage), el("div", {}, title, large)),
      el("section", { class: "av-panel", "aria-label": "All queries" }, el("h3", { text: `All queries: ${scale}` }), list),
    ),
    weightLegend(view, { masked: found.codes.includes(255), alone: false, largest: weight(found.largest) }),
    el("p", { class: "qv-try av-quiet", testid: "try" }, el("strong", { text: "Try: " }), last ? "go back to the first update, and forth. Which query changes most, and where does it look in the end?" : "point at a patch that holds much of the drawing. Which queries read it?"),
    tables.node, spoken,
  );
  host.replaceChildren(root);

  function point(pointed) {
    if (JSON.stringify(pointed) === JSON.stringify(study.pointed)) return;
    study.pointed = pointed;
    view.changed();
  }

  function go(event, name, to) {
    if (!plain(event) || to === null) return;
    event.preventDefault();
    study.pointed = {};
    study.set({ [name]: to });
  }

  const under = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return tokenAt(grid, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  for (const each of [stage, large]) {
    each.addEventListener("pointermove", (event) => {
      const patch = under(event);
      point(patch === null ? {} : { patch });
    });
    each.addEventListener("pointerleave", () => point({}));
    each.addEventListener("click", (event) => {
      const patch = under(event);
      if (patch === null) return;
      study.pointed = {};
      study.set({ patch: patch === model.get("patch") ? -1 : patch });
    });
  }
  stage.addEventListener("keydown", (event) => {
    const now = model.get("patch");
    if (event.key === "Escape") go(event, "patch", -1);
    else go(event, "patch", now < 0 && event.key.startsWith("Arrow") ? 0 : neighbour(grid, now, event.key));
  });

  let reading = null;
  function readOut() {
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = study.sentence), QUIET);
  }

  function draw() {
    study.read();
    const { state, shown } = study;
    moment.input.value = state.moment;
    moment.output.textContent = String(steps[state.moment]);
    layer.select.value = String(state.layer);
    head.select.value = found.heads === 1 ? "-1" : String(state.head);
    if (summary.textContent !== study.sentence) readOut();
    summary.textContent = study.sentence;
    const two = root.dataset.wide === "two";
    const room = root.clientWidth - 34;
    const form = found.image.height / found.image.width;
    const wide = Math.floor(Math.min(two ? (room - 28) * 0.45 : (room - 12) / 2, (two ? 190 : 150) / form));
    imageCanvas(stage, picture, grid, shown.patch, [wide, Math.round(wide * form)], view);
    title.textContent = `What query ${shown.query} reads`;
    mapCanvas(large, study.row(shown.query), found, [wide, Math.round(wide * form)], view, shown.patch);
    const down = Math.ceil(queries / across);
    const each = Math.floor((two ? room - 28 - Math.floor((room - 28) * 0.45) : room) / across - 10);
    const small = Math.max(24, Math.floor(Math.min(each, ((two ? 400 : 260) / down - 26) / form)));
    list.style.gridTemplateColumns = `repeat(${across}, ${small}px)`;
    const order = shown.patch < 0 ? [] : readers(found, shown);
    tiles.forEach(({ node, canvas, name }, query) => {
      mapCanvas(canvas, study.row(query), found, [small, Math.round(small * form)], view, shown.patch);
      node.classList.toggle("qv-now", query === shown.query);
      name.classList.toggle("qv-most", query === order[0]);
      name.textContent = `${across === 8 ? "" : "query "}${query}${order.length ? `: ${weight(study.row(query)[shown.patch])}` : ""}`;
    });
    stage.setAttribute("aria-label", `Image of ${grid.rows} by ${grid.columns} patches. Arrow keys choose a patch, Escape none. ${shown.patch < 0 ? "" : `Now ${place(found, shown.patch)}. `}${study.sentence}`);
    list.setAttribute("aria-label", `Maps of ${queries} queries. Arrow keys choose one. ${study.sentence}`);
    tables.draw();
  }
  const stop = live({ model, view, traits: ["moment", "layer", "head", "query", "patch"], draw, sizes: ["wide", { two: 640, one: 0 }] });
  return () => {
    stop();
    film.stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
