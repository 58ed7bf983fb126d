// ErrorGraph: where did an answer of many steps go wrong?
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./error_graph.css";
import { bar } from "#parts/bar.js";
import { button, choice, el } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { headed } from "#parts/table.js";
import { stagePanel } from "./stage.js";
import { LOOKS, sentence } from "./words.js";

const QUIET = 700; // milliseconds without a change after which the state is read out
const HELP = `A point is a value of the computation, with the value that was stated below it. Lines lead from the values that it is computed from, which stand to its left.

Correct: the right value, from right values. Local: not what its stated parents give, so the step itself is wrong. Propagated: what its stated parents give, but one of them is wrong. Restored: right, although a parent is wrong.

Lines from wrong values are orange and dashed. Choose a step by a click, by its name, or with the arrow keys, in the order in which the steps are computed.`;

function render({ model, el: host }) {
  const told = model.get("_told");
  const { nodes, broke } = told;
  const view = viewOf("attnlab-error-graph", "Graph of the steps of an answer", "error-graph");
  const { root } = view;
  const choose = (node) => {
    model.set("node", Math.min(nodes.length - 1, Math.max(0, node)));
    model.save_changes();
  };
  const steps = choice("step", "step", nodes.map(({ name, kind }, at) => [String(at), `${name}: ${LOOKS[kind]}`]), (at) => choose(Number(at)));
  const where = button({ testid: "broke", text: "where it broke", disabled: broke === null, onclick: () => choose(broke) });
  const controls = bar({ frequent: [steps.node, where], help: HELP });
  const summary = el("p", { class: "av-summary eg-said", testid: "summary" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", testid: "live" });
  const stage = stagePanel(told, () => model.get("node"), choose);
  const body = el("div", { class: "av-tables" });
  const tables = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As a table" }), body);
  tables.addEventListener("toggle", () => view.changed());
  root.append(
    el("style", { text: base + barStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    stage.node,
    el("p", { class: "eg-try av-quiet", testid: "try" }, el("strong", { text: "Try: " }), "go from where it broke along the orange lines: which later values are wrong for this reason alone?"),
    tables, spoken,
  );
  host.replaceChildren(root);

  let reading = null;
  function draw() {
    const node = model.get("node");
    const said = sentence(told, node);
    if (summary.textContent !== said) {
      clearTimeout(reading);
      reading = setTimeout(() => (spoken.textContent = said), QUIET);
    }
    summary.textContent = said;
    steps.select.value = String(node);
    stage.draw(root.clientWidth - 34, 330);
    if (!tables.open) return;
    const rows = nodes.map(({ name, kind, stated, follows, right, parents }) => [name, LOOKS[kind], stated, parents.length ? follows : "", right, parents.map((at) => nodes[at].name).join(", ")]);
    body.replaceChildren(headed("All values, in the order of the computation", ["value", "kind", "stated", "follows from its parents", "right", "parents"], rows, "steps-table"));
  }
  const stop = live({ model, view, traits: ["node"], draw });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
