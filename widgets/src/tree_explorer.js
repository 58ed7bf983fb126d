// TreeExplorer: a tree to edit, and how each phrase gathers the values of its words.
import base from "./attention_view.css";
import style from "./tree_explorer.css";
import { el } from "./parts/dom.js";
import { frames, whereThereIsRoom } from "./parts/frames.js";
import { mountPage } from "./parts/page.js";
import { pageIsDark, watchPage } from "./parts/theme.js";
import { composePanel } from "./parts/trees/compose.js";
import { drawingPanel } from "./parts/trees/drawing.js";
import { explainPanel } from "./parts/trees/explain.js";
import { Study } from "./parts/trees/study.js";
import { tablesPanel } from "./parts/trees/tables.js";

const TRAITS = ["tree", "leaf_values", "node_values", "weights", "selected", "cell", "step", "shown", "layer", "head"];

function render({ model, el: host }) {
  const study = new Study(model);
  // JupyterLab takes no key from under this attribute.
  const root = el("div", { class: "attnlab-view attnlab-tree", role: "group", "aria-label": "Tree explorer", "data-lm-suppress-shortcuts": "true", "data-testid": "tree-explorer" });
  // Notebook 7's shortcuts match whatever has the focus: it must carry the mark itself.
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  root.addEventListener("keydown", (event) => event.stopPropagation());
  const later = frames();
  const view = {
    dark: () => root.dataset.theme === "dark",
    changed: () => later(drawAll),
    point(at) {
      study.at = at;
      later(hover);
    },
  };
  const [compose, drawing, tables, explain] = [composePanel, drawingPanel, tablesPanel, explainPanel].map((panel) => panel(study, view));
  const parts = [compose, drawing, tables, explain];
  root.append(el("style", { text: base + style }), compose.node, el("div", { class: "te-panels" }, el("div", { class: "te-left" }, drawing.node, tables.node), explain.node));
  host.replaceChildren(root);

  const hover = () => parts.forEach((part) => part.hover());
  const drawAll = whereThereIsRoom(root, later, () => {
    parts.forEach((part) => part.draw());
    root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
  });

  function theme() {
    const wanted = study.get("theme");
    root.dataset.theme = (wanted === "auto" ? pageIsDark() : wanted === "dark") ? "dark" : "light";
    later(drawAll);
  }

  TRAITS.forEach((name) => model.on(`change:${name}`, view.changed));
  model.on("change:theme", theme);
  const stop = watchPage(theme);
  let wide = 0;
  const observer = new ResizeObserver(() => {
    if (root.clientWidth === wide) return;
    wide = root.clientWidth;
    root.dataset.explorer = wide >= 720 ? "two" : "one";
    later(drawAll);
  });
  observer.observe(root);
  theme();

  return () => {
    stop();
    observer.disconnect();
    TRAITS.forEach((name) => model.off(`change:${name}`, view.changed));
    model.off("change:theme", theme);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
