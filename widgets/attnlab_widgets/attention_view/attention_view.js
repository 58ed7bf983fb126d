// AttentionView: all heads as maps, some as lines, one as a matrix; linked.
// Everything that is drawn follows from the model's traits and from what is pointed at.
import style from "./attention_view.css";
import barStyle from "#parts/bar.css";
import base from "#parts/base.css";
import { controls } from "./controls.js";
import { el } from "#parts/dom.js";
import { headsPanel } from "./heads.js";
import imageStyle from "./image.css";
import linesStyle from "#parts/lines.css";
import { imagePanel } from "./image.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { linesPanel } from "#parts/lines.js";
import { matrixPanel } from "./matrix.js";
import { mountPage } from "#parts/page.js";
import { Store } from "./store.js";
import { stripPanel } from "./strip.js";
import { asTables } from "#parts/table.js";
import { whyPanel } from "./why.js";

const WHOLE = 752; // pixels of a cell's height in a notebook on a laptop
const BESIDE = 195; // pixels of the controls of a widget whose part this view is
const AROUND = 154; // of them for frames, titles and what stands below the panels
const STACKED = 682; // pixels in height of two rows of panels, where there is no room for three columns
const ASIDE = 480; // and of two rows in half a cell, beside another view
const PADDING = 12;
const TRAITS = [
  "layer", "head", "heads", "query", "key", "threshold", "top_k", "hide_first",
  "value_weighted", "step", "shown", "sort", "at_least", "panels", "bar", "_origins", "_origin_data",
];

function render({ model, el: host }) {
  const store = new Store(model);
  const spoken = el("div", { class: "av-live", "aria-live": "polite", testid: "live" });
  const view = viewOf("attnlab-attention", "Attention view", "attention-view");
  const { root } = view;
  Object.assign(view, {
    font: "12px system-ui, sans-serif",
    announce: (text) => (spoken.textContent = text),
    hover(place) {
      Object.assign(store.hover, place);
      view.later(hoverAll);
    },
  });

  const why = whyPanel(store, view);
  const strip = stripPanel(store, view, why.open);
  view.way = strip.way; // which weights light up when a token is both query and key
  const summary = el("p", { class: "av-summary", testid: "summary" });
  const bar = controls(store, view, strip.search);
  const heads = headsPanel(store, view);
  const lines = linesPanel(store, view);
  const matrix = matrixPanel(store, view);
  const image = imagePanel(store, view);
  const tables = asTables(store);
  const panels = { heads, lines, matrix };
  // Of patches the lines say little: the image stands in their place.
  const shown = () => store.get("panels").map((name) => (name === "lines" && image.shown() ? image : panels[name]));
  const parts = () => [...(why.opened() ? [why] : shown()), tables];
  const top = el("header", { class: "av-top" }, bar.node, bar.status);
  const place = el("div", { class: "av-panels" }, heads.node, lines.node, image.node, matrix.node);
  root.append(
    el("style", { text: base + linesStyle + barStyle + style + imageStyle }),
    top,
    strip.node,
    place,
    why.node,
    el("footer", { class: "av-foot" }, tables.node, summary),
    spoken,
  );
  host.replaceChildren(root);

  function draw() {
    summary.textContent = summed(store);
    bar.node.hidden = !store.get("bar");
    place.hidden = why.opened();
    bar.draw();
    strip.draw();
    layOut();
    parts().forEach((part) => part.draw());
  }

  /** Columns of the panels: heads as wide as their maps need, the matrix as wide as it is high. */
  function layOut() {
    const names = store.get("panels");
    for (const { node } of [...Object.values(panels), image]) node.hidden = true;
    for (const { node } of shown()) node.hidden = false;
    root.dataset.image = String(image.shown());
    root.dataset.words = String(!image.shown() || image.words());
    const wide = root.clientWidth - 2 * PADDING;
    const three = names.length === 3 && wide >= 860;
    const two = !three && names.length > 1 && wide >= (names.length === 3 ? 560 : 400);
    root.dataset.wide = three ? "three" : two ? "two" : "one";
    const [least, others] = store.get("bar") ? [380, 0] : [260, BESIDE];
    const above = top.offsetHeight + strip.node.offsetHeight;
    const high = Math.max(least, Math.min(500, WHOLE - AROUND - others - above));
    Object.assign(view, { high, matrixHigh: high - 22, headsHigh: high + (three ? 10 : -8) });
    if (two && names.length === 3) {
      const rows = Math.max(480, STACKED - above);
      Object.assign(view, { high: 0.51 * rows, matrixHigh: 0.49 * rows, headsHigh: 0.49 * rows + 14 });
    } else if (!two && names.length === 2 && others) {
      const rows = Math.max(340, ASIDE - above);
      Object.assign(view, { matrixHigh: 0.54 * rows, headsHigh: 0.46 * rows });
    }
    const most = (share) => Math.min(Math.round(heads.wanted()), Math.round(share * wide));
    const square = Math.round(Math.max(260, Math.min(0.41 * wide, matrix.wanted())));
    const columns = {
      three: () => `${most(Math.min(0.36, (wide < 1200 ? 0.29 : 0.34) + 0.02 * Math.max(0, heads.across() - 6)))}px minmax(0, 1fr) ${square}px`,
      two: () => (names.includes("heads") ? `${most(0.44)}px minmax(0, 1fr)` : "minmax(0, 1fr) minmax(0, 1fr)"),
      one: () => "minmax(0, 1fr)",
    };
    place.style.gridTemplateColumns = columns[root.dataset.wide]();
  }

  const hoverAll = () => [strip, ...parts()].forEach((part) => part.hover());
  const loaded = () => {
    store.load();
    view.changed();
  };
  return live({ model, view, traits: TRAITS, draw, on: { "change:_recording": loaded } });
}

function summed({ layers, recording, shape }) {
  const heads = layers.reduce((sum, { h }) => sum + h, 0);
  const same = layers.every(({ h }) => h === layers[0].h);
  const many = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  const counted = `${many(layers.length, "layer")}${same ? ` × ${many(layers[0].h, "head")}` : `, ${many(heads, "head")}`}`;
  const long = shape.n === shape.m ? `${shape.n} tokens` : `${shape.n} queries × ${shape.m} keys`;
  const broken = recording.broken ? ` · ${recording.broken} rows held no numbers and are empty` : "";
  return `${counted} · ${long}${broken}`;
}

export default { render, page: (document) => mountPage({ render }, document) };
