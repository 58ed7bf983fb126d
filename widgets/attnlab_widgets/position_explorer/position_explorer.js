// PositionExplorer: the score against the distance, the map of all pairs, and RoPE turned by hand.
import base from "#parts/base.css";
import style from "./position_explorer.css";
import { el } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { curvesPanel } from "./curves.js";
import { dialsPanel } from "./dials.js";
import { mapPanel } from "./map.js";
import { Study } from "./study.js";

const TRAITS = ["shown", "scheme", "head", "query", "key", "phases", "base"];

function render({ model, el: host }) {
  const study = new Study(model);
  const view = viewOf("attnlab-positions", "Position explorer", "position-explorer");
  const { root } = view;
  view.font = "11px system-ui, sans-serif";
  const parts = [curvesPanel, mapPanel, dialsPanel].map((panel) => panel(study, view));
  root.append(el("style", { text: base + style }), el("div", { class: "pe-panels" }, ...parts.map(({ node }) => node)));
  host.replaceChildren(root);

  const draw = () => parts.forEach((part) => part.draw());
  return live({ model, view, traits: TRAITS, draw, sizes: ["explorer", { two: 600, one: 0 }] });
}

export default { render, page: (document) => mountPage({ render }, document) };
