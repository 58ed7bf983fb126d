// The life of a front end: its root, what it follows while it stands on a page, and how that ends.
import { el } from "./dom.js";
import { frames, whereThereIsRoom } from "./frames.js";
import { pageIsDark, watchPage } from "./theme.js";

/** What the parts of a widget share: its root, its colours, and drawings that wait for a frame. */
export function viewOf(name, label, testid) {
  const root = el("div", { class: `attnlab-view ${name}`, role: "group", "aria-label": label, testid });
  keepKeys(root);
  const view = {
    root,
    later: frames(),
    dark: false,
    // Asking for a style while drawing would make the browser lay out the page again.
    colours: new Map(),
    colour(name) {
      if (!view.colours.has(name)) {
        view.colours.set(name, getComputedStyle(root).getPropertyValue(name).trim());
      }
      return view.colours.get(name);
    },
    series: (at) => view.colour(`--av-series-${at}`),
    changed() {}, // draws everything again with the next frame, once the widget is alive
  };
  return view;
}

/**
 * JupyterLab listens on the way up, and takes no key from under the mark. Notebook 7 listens on the
 * way down, and its shortcuts match whatever has the focus: that very element must carry the mark.
 */
function keepKeys(root) {
  const mark = (node) => node.setAttribute("data-lm-suppress-shortcuts", "true");
  mark(root);
  root.addEventListener("focusin", ({ target }) => mark(target));
  root.addEventListener("keydown", (event) => event.stopPropagation());
}

/**
 * Draws whatever stands in `view.root` now, and again after each change of one of the traits, of the
 * theme and of the width; returns how to stop. `on` maps other events of the model to their
 * listeners. `sizes`, such as ["wide", {two: 600, one: 0}], names the width for the style sheet:
 * the first of the names whose least width the root has goes to its data-wide.
 */
export function live({ model, view, traits, draw, on = {}, sizes }) {
  const { root, later } = view;
  const drawAll = whereThereIsRoom(root, later, () => {
    if (sizes) {
      const [sort, least] = sizes;
      root.dataset[sort] = Object.keys(least).find((name) => root.clientWidth >= least[name]);
    }
    draw();
    root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
  });
  view.changed = () => later(drawAll);

  function theme() {
    const wanted = model.get("theme");
    view.dark = wanted === "auto" ? pageIsDark() : wanted === "dark";
    root.dataset.theme = view.dark ? "dark" : "light";
    view.colours.clear();
    view.changed();
  }

  const listeners = [["change:theme", theme], ...Object.entries(on), ...traits.map((name) => [`change:${name}`, view.changed])];
  for (const [event, listener] of listeners) model.on(event, listener);
  const unwatch = watchPage(theme);
  let wide = 0;
  const observer = new ResizeObserver(() => {
    if (root.clientWidth === wide) return;
    wide = root.clientWidth;
    view.changed();
  });
  observer.observe(root);
  theme();

  return () => {
    unwatch();
    observer.disconnect();
    for (const [event, listener] of listeners) model.off(event, listener);
  };
}
