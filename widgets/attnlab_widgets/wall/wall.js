// The wall: every mechanism on one sentence, side by side; one pair is marked in all tiles.
import barStyle from "#parts/bar.css";
import base from "#parts/base.css";
import legendStyle from "#parts/legend.css";
import style from "./wall.css";
import { el } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { weightLegend } from "#parts/legend.js";
import { mountPage } from "#parts/page.js";
import { aroundPanel } from "./around.js";
import { controls } from "./controls.js";
import { detailPanel } from "./detail.js";
import { Wall } from "./store.js";
import { strip } from "./strip.js";
import { tilesPanel } from "./tiles.js";
import { FIRST, grouped, readAloud } from "#lib/wall.js";

const [WAIT, RUN] = [600, 2400]; // milliseconds before the cross runs through the maps, and of its run
const TRAITS = ["weights", "causal", "length", "head", "order", "family", "seeing", "opened", "shelf", "_around"];

function render({ model, el: host }) {
  const store = new Wall(model);
  const view = viewOf("attnlab-wall", "The wall of mechanisms", "wall");
  const { root } = view;
  Object.assign(view, {
    hover(place) {
      store.hover = place;
      view.later(hoverAll);
    },
    open(name) {
      const before = store.get("opened");
      store.set({ opened: name });
      if (!name && before) (store.mechanisms ? tiles : around).focus(before);
    },
    reference: () => (store.map(FIRST) ? FIRST : store.shown[0]?.name),
  });
  const readout = el("p", { class: "wl-readout", "data-testid": "readout" });
  const bar = controls(store, view);
  const sentence = strip(store, view);
  const tiles = tilesPanel(store, view);
  const around = aroundPanel(store, view);
  const detail = detailPanel(store, view);
  const legend = el("div", {});
  const parts = [bar, sentence, tiles, around, detail];
  root.append(
    el("style", { text: base + barStyle + legendStyle + style }),
    bar.node,
    sentence.node,
    el("div", { class: "wl-said" }, readout, bar.shelf),
    legend,
    el("div", { class: "wl-stage" }, tiles.node, around.node, detail.node),
  );
  host.replaceChildren(root);

  function draw() {
    sentence.node.hidden = !store.mechanisms;
    tiles.node.hidden = !store.mechanisms;
    legend.hidden = !store.mechanisms;
    legend.replaceChildren(weightLegend(view, { signed: true }));
    parts.forEach((part) => part.draw());
    hoverAll();
  }

  function hoverAll() {
    [sentence, tiles, detail].forEach((part) => part.hover());
    readout.textContent = said();
  }

  function said() {
    if (!store.mechanisms) return aroundSaid();
    const { cut, tiles: all, tokens } = store.wall;
    const at = store.hover;
    const name = at ? (at.name ?? view.reference()) : null;
    const map = name ? store.map(name) : null;
    if (map && at.i < map.n && at.j < map.m) {
      const { title } = all.find((one) => one.name === name);
      return readAloud(title, store.headSaid(name), store.names, map, at.i, at.j);
    }
    const short = cut ? ` (the first ${tokens.length} tokens; ${cut} more are left out)` : "";
    const { n, shownLength } = store;
    if (!store.has(store.get("weights"), store.get("causal"), shownLength)) return "These maps are being computed. In a notebook that was opened and not run, run the cell first.";
    if (store.get("length") > n) return `The maps stay those of the ${n} tokens; FLOPs and memory are those of ${grouped(store.get("length"))}, by the formulas of the cards.`;
    if (shownLength < n) return `The first ${shownLength} of ${n} tokens in ${all.length} mechanisms. Point at a map or a word; click a tile to open it.`;
    return `${store.shown.length} of ${all.length} mechanisms on the same ${tokens.length} tokens${short}. Point at a map or a word; click a tile to open it.`;
  }

  function aroundSaid() {
    const count = store.around.length;
    if (!count) return "These pages are being drawn. In a notebook that was opened and not run, run the cell first.";
    return `${count} page${count > 1 ? "s" : ""}, each drawn from a fresh module. Click a tile to open it.`;
  }

  /** Once, at first sight, a cross runs down the diagonal of all maps: they can be pointed at. */
  function play(step = 0) {
    const over = step === store.shownLength;
    store.hover = over ? null : { i: step, j: step, name: null };
    view.later(hoverAll);
    playing = over ? null : setTimeout(play, RUN / store.shownLength, step + 1);
  }

  function stopPlaying() {
    if (playing === null) return;
    clearTimeout(playing);
    playing = null;
    store.hover = null;
    view.later(hoverAll);
  }

  let playing = null;
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) playing = setTimeout(play, WAIT);
  for (const event of ["pointermove", "pointerdown", "keydown", "focusin"]) root.addEventListener(event, stopPlaying, { capture: true });

  const loaded = () => {
    store.load();
    view.changed();
  };
  const received = (content, buffers = []) => {
    if (content?.kind !== "tile") return;
    store.receive(content, buffers);
    view.changed();
  };
  const on = { "change:_headers": loaded, "msg:custom": received };
  const stop = live({ model, view, traits: TRAITS, draw, on, sizes: ["wide", { wide: 1200, middle: 860, narrow: 560, phone: 0 }] });
  return () => {
    stopPlaying();
    stop();
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
