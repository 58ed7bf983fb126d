// TreeExplorer: a tree to edit, and how each phrase gathers the values of its words.
import base from "#parts/base.css";
import style from "./tree_explorer.css";
import { el } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { composePanel } from "./compose.js";
import { drawingPanel } from "./drawing.js";
import { explainPanel } from "./explain.js";
import { Study } from "./study.js";
import { tablesPanel } from "./tables.js";

const TRAITS = ["tree", "leaf_values", "node_values", "weights", "selected", "cell", "step", "shown", "layer", "head"];

function render({ model, el: host }) {
  const study = new Study(model);
  const view = viewOf("attnlab-tree", "Tree explorer", "tree-explorer");
  const { root } = view;
  view.point = (at) => {
    study.at = at;
    view.later(hover);
  };
  const [compose, drawing, tables, explain] = [composePanel, drawingPanel, tablesPanel, explainPanel].map((panel) => panel(study, view));
  const parts = [compose, drawing, tables, explain];
  root.append(el("style", { text: base + style }), compose.node, el("div", { class: "te-panels" }, el("div", { class: "te-left" }, drawing.node, tables.node), explain.node));
  host.replaceChildren(root);

  const hover = () => parts.forEach((part) => part.hover());
  const draw = () => parts.forEach((part) => part.draw());
  return live({ model, view, traits: TRAITS, draw, sizes: ["explorer", { two: 720, one: 0 }] });
}

export default { render, page: (document) => mountPage({ render }, document) };
