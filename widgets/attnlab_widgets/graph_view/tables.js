// The same as tables of text. They are filled when they are opened.
import { hopWeight, named } from "./graph.js";
import { weight } from "#lib/words.js";
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";

export function tablesPanel(study, view) {
  const { graph } = study;
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (node.open) body.replaceChildren(...(study.path.length ? [hops()] : []), ...(study.state.node === null ? [] : [attended()]), nodes());
  }

  function hops() {
    const rows = study.path.map((hop, at) => {
      const { where, w } = hopWeight(graph, hop, study.state.head);
      const [to, from] = [hop.target, hop.source].map((one) => `${one} ${graph.labels[one]}`);
      return [at + 1, to, from, where || "–", w === null ? "–" : weight(w, 1e-5), at < study.state.step ? "yes" : "no"];
    });
    return headed("The path, hop by hop", ["hop", "node", "attends to", "in", "weight", "shown"], rows, "hops-table");
  }

  function attended() {
    const { state } = study;
    const rows = study.attended(state.node).map((one) => [one.node, graph.labels[one.node], graph.layers.length ? weight(one.w, 1e-5) : "–"]);
    return headed(`Whom ${named(graph.labels, state.node)} attends to`, ["node", "label", "weight"], rows, "attends-table");
  }

  function nodes() {
    const away = study.state.depth && study.state.node !== null ? study.hops : null;
    const rows = study.order.map((one) => {
      const [best] = study.attended(one);
      const most = best ? [`${best.node} ${graph.labels[best.node]}`, graph.layers.length ? weight(best.w, 1e-5) : "–"] : ["–", "–"];
      return [one, graph.labels[one], study.groupNames[study.groups[one]], graph.degrees[one], ...most, ...(away ? [away[one] < 0 ? "never" : away[one]] : [])];
    });
    const columns = ["node", "label", graph.groups ? "group" : "community", "neighbours", "attends most to", "weight", ...(away ? ["reached after layers"] : [])];
    return headed("All nodes, in the order of the map", columns, rows, "nodes-table");
  }

  return { node, draw };
}
