// AttentionView: all heads as maps, some as lines, one as a matrix; linked.
// Everything that is drawn follows from the model's traits and from what is pointed at.
import style from "./attention_view.css";
import barStyle from "./parts/bar.css";
import { controls } from "./parts/controls.js";
import { el } from "./parts/dom.js";
import { frames, whereThereIsRoom } from "./parts/frames.js";
import { headsPanel } from "./parts/heads.js";
import { linesPanel } from "./parts/lines.js";
import { matrixPanel } from "./parts/matrix.js";
import { mountPage } from "./parts/page.js";
import { Store } from "./parts/store.js";
import { asTables } from "./parts/table.js";
import { pageIsDark, watchPage } from "./parts/theme.js";

const TRAITS = [
  "layer", "head", "heads", "query", "key", "threshold", "top_k", "hide_first",
  "value_weighted", "step", "shown", "sort", "at_least", "panels", "bar",
];

function render({ model, el: host }) {
  const store = new Store(model);
  const root = el("div", { class: "attnlab-view", role: "group", "data-testid": "attention-view" });
  const live = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const later = frames();
  const view = {
    root,
    dark: false,
    font: "12px system-ui, sans-serif",
    announce: (text) => (live.textContent = text),
    // Asking for a style while drawing would make the browser lay out the page again.
    colours: new Map(),
    colour(name) {
      if (!view.colours.has(name)) {
        view.colours.set(name, getComputedStyle(root).getPropertyValue(name).trim());
      }
      return view.colours.get(name);
    },
    series: (at) => view.colour(`--av-series-${at}`),
    hover(place) {
      Object.assign(store.hover, place);
      view.later(hoverAll);
    },
    later,
  };

  const summary = el("p", { class: "av-summary", "data-testid": "summary" });
  const bar = controls(store, view, summary);
  const heads = headsPanel(store, view);
  const lines = linesPanel(store, view);
  const matrix = matrixPanel(store, view);
  const tables = asTables(store);
  const panels = { heads, lines, matrix };
  const parts = () => [bar, ...store.get("panels").map((name) => panels[name]), tables];
  root.append(
    el("style", { text: style + barStyle }),
    el("header", { class: "av-top" }, bar.node, bar.status),
    el("div", { class: "av-panels" }, heads.node, lines.node, matrix.node),
    tables.node,
    live,
  );
  host.replaceChildren(root);
  // JupyterLab listens on the way up. Notebook 7 listens on the way down, and its shortcuts match
  // whatever has the focus: the mark that forbids them must be on that very element.
  root.addEventListener("keydown", (event) => event.stopPropagation());
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));

  function theme() {
    const wanted = store.get("theme");
    view.dark = wanted === "auto" ? pageIsDark() : wanted === "dark";
    root.dataset.theme = view.dark ? "dark" : "light";
    view.colours.clear();
    later(drawAll);
  }

  const drawAll = whereThereIsRoom(root, later, () => {
    summary.textContent = summed(store);
    for (const [name, { node }] of Object.entries(panels)) node.hidden = !store.get("panels").includes(name);
    bar.node.hidden = !store.get("bar");
    parts().forEach((part) => part.draw());
    root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
  });

  const hoverAll = () => parts().forEach((part) => part.hover());
  const changed = () => later(drawAll);
  const loaded = () => {
    store.load();
    later(drawAll);
  };
  TRAITS.forEach((name) => model.on(`change:${name}`, changed));
  model.on("change:_recording", loaded);
  model.on("change:theme", theme);
  const stop = watchPage(theme);
  let wide = 0;
  const observer = new ResizeObserver(() => {
    if (root.clientWidth === wide) return;
    wide = root.clientWidth;
    root.dataset.wide = wide >= 1420 ? "three" : wide >= 860 ? "two" : "one";
    later(drawAll);
  });
  observer.observe(root);
  theme();

  return () => {
    stop();
    observer.disconnect();
    TRAITS.forEach((name) => model.off(`change:${name}`, changed));
    model.off("change:_recording", loaded);
    model.off("change:theme", theme);
  };
}

function summed({ layers, recording, shape }) {
  const heads = layers.reduce((sum, { h }) => sum + h, 0);
  const same = layers.every(({ h }) => h === layers[0].h);
  const counted = same ? `${layers.length} layers × ${layers[0].h} heads` : `${layers.length} layers, ${heads} heads`;
  const long = shape.n === shape.m ? `${shape.n} tokens` : `${shape.n} queries × ${shape.m} keys`;
  const broken = recording.broken ? ` · ${recording.broken} rows held no numbers and are empty` : "";
  return `${counted} · ${long}${broken}`;
}

export default { render, page: (document) => mountPage({ render }, document) };
