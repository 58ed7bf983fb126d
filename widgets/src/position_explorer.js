// PositionExplorer: the score against the distance, the map of all pairs, and RoPE turned by hand.
import base from "./attention_view.css";
import style from "./position_explorer.css";
import { el } from "./parts/dom.js";
import { frames, whereThereIsRoom } from "./parts/frames.js";
import { mountPage } from "./parts/page.js";
import { curvesPanel } from "./parts/positions/curves.js";
import { dialsPanel } from "./parts/positions/dials.js";
import { mapPanel } from "./parts/positions/map.js";
import { Study } from "./parts/positions/study.js";
import { pageIsDark, watchPage } from "./parts/theme.js";

const TRAITS = ["shown", "scheme", "head", "query", "key", "phases", "base"];

function render({ model, el: host }) {
  const study = new Study(model);
  // JupyterLab takes no key from under this attribute.
  const root = el("div", { class: "attnlab-view attnlab-positions", role: "group", "aria-label": "Position explorer", "data-lm-suppress-shortcuts": "true", "data-testid": "position-explorer" });
  // Notebook 7's shortcuts match whatever has the focus: it must carry the mark itself.
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  root.addEventListener("keydown", (event) => event.stopPropagation());
  const colours = new Map();
  const view = {
    root,
    font: "11px system-ui, sans-serif",
    colour(name) {
      if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue(name).trim());
      return colours.get(name);
    },
    later: frames(),
  };
  const parts = [curvesPanel, mapPanel, dialsPanel].map((panel) => panel(study, view));
  root.append(el("style", { text: base + style }), el("div", { class: "pe-panels" }, ...parts.map(({ node }) => node)));
  host.replaceChildren(root);

  const drawAll = whereThereIsRoom(root, view.later, () => {
    parts.forEach((part) => part.draw());
    root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
  });
  const changed = () => view.later(drawAll);

  function theme() {
    const wanted = study.get("theme");
    const dark = wanted === "auto" ? pageIsDark() : wanted === "dark";
    root.dataset.theme = dark ? "dark" : "light";
    colours.clear();
    view.later(drawAll);
  }

  TRAITS.forEach((name) => model.on(`change:${name}`, changed));
  model.on("change:theme", theme);
  const stop = watchPage(theme);
  let wide = 0;
  const observer = new ResizeObserver(() => {
    if (root.clientWidth === wide) return;
    wide = root.clientWidth;
    root.dataset.explorer = wide >= 600 ? "two" : "one";
    view.later(drawAll);
  });
  observer.observe(root);
  theme();

  return () => {
    stop();
    observer.disconnect();
    TRAITS.forEach((name) => model.off(`change:${name}`, changed));
    model.off("change:theme", theme);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
