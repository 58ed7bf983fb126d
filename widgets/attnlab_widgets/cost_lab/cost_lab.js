// CostLab: how the cost of a mechanism grows; claimed by the reader, then counted and measured.
import barStyle from "#parts/bar.css";
import base from "#parts/base.css";
import style from "./cost_lab.css";
import { chartPanel, legend, rowsOf } from "./chart.js";
import { controls } from "./controls.js";
import { Costs } from "./store.js";
import { verdictPanel } from "./verdict.js";
import { el } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { headed } from "#parts/table.js";

const TRAITS = ["mechanism", "n", "dim", "heads", "options", "claims", "quantity", "backward", "_counted", "_times", "_progress", "_live"];

function render({ model, el: host }) {
  const store = new Costs(model);
  const view = viewOf("attnlab-costs", "What a mechanism costs", "cost-lab");
  const { root } = view;
  const bar = controls(store);
  const chart = chartPanel(store);
  const key = legend(store);
  const verdict = verdictPanel(store, view);
  const table = el("div", { class: "av-tables" });
  const tables = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As a table" }), table);
  tables.addEventListener("toggle", () => view.changed());
  root.append(
    el("style", { text: base + barStyle + style }),
    ...bar.nodes,
    el("div", { class: "cl-panels" }, el("div", {}, chart.node, key.node), verdict.node),
    tables,
  );
  host.replaceChildren(root);

  function draw() {
    store.read();
    bar.draw();
    const wide = root.clientWidth - 26;
    if (root.dataset.wide === "narrow") chart.draw(wide, 330);
    else chart.draw(wide - 352, 420);
    key.draw();
    verdict.draw();
    if (tables.open) table.replaceChildren(headed(`${store.own.title} and full attention`, ["n", "cost", "full attention", "counted FLOPs", "time", "full attention's time"], rowsOf(store), "table"));
  }

  return live({ model, view, traits: TRAITS, draw, sizes: ["wide", { wide: 860, narrow: 0 }] });
}

export default { render, page: (document) => mountPage({ render }, document) };
