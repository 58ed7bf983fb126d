// From scores to weights, a row for each key.
import { power, two } from "#lib/plane.js";
import { el } from "#parts/dom.js";

export function weightsPanel(study, view) {
  const head = el("tr", {});
  const body = el("tbody", {});
  const foot = el("tr", { class: "qp-total" });
  const node = el("section", { class: "av-panel qp-weights", "aria-label": "From scores to weights" },
    el("h3", { text: "From scores to weights: softmax" }),
    el("table", { class: "qp-table", "data-testid": "weights" }, el("thead", {}, head), body, el("tfoot", {}, foot)));
  let rows = [];
  let shown = "";

  function row(name, j) {
    const button = el("button", { type: "button", class: "av-button qp-key", "data-testid": `mask-${j}`, onclick: () => study.mask(j) }, el("span", { class: "qp-ink-key", text: "◆" }), ` ${name}`);
    const bar = el("div", { class: "qp-fill" });
    const cells = ["product", "score", "power", "weight"].map((what) => el("span", { "data-testid": `${what}-${j}` }));
    const [product, score, raised, weight] = cells;
    const one = el("tr", { onpointerenter: () => view.point(j), onpointerleave: () => view.point(null) },
      el("th", { scope: "row" }, button), el("td", {}, product), el("td", {}, score), el("td", {}, raised),
      el("td", { class: "qp-last" }, el("div", { class: "qp-bar" }, el("div", { class: "qp-track" }, bar), weight)));
    return { node: one, button, bar, cells };
  }

  function build(names) {
    if (JSON.stringify(names) === shown) return;
    shown = JSON.stringify(names);
    rows = names.map(row);
    body.replaceChildren(...rows.map((one) => one.node));
  }

  function draw() {
    const { state: { names, masked, scale }, found: { products, scores, powers, weights } } = study;
    build(names);
    const raised = () => ["e", el("sup", { text: "s" })];
    const titles = [["key"], ["q·k"], [`× ${two(scale)} = s`], raised(), ["weight = ", ...raised(), " ÷ sum"]];
    head.replaceChildren(...titles.map((parts) => el("th", { scope: "col" }, ...parts)));
    rows.forEach(({ node: one, button, bar, cells }, j) => {
      const off = masked.includes(j);
      const texts = [two(products[j]), off ? "masked" : two(scores[j]), off ? "0" : power(powers[j]), two(weights[j])];
      cells.forEach((cell, at) => (cell.textContent = texts[at]));
      bar.style.width = `${(100 * weights[j]).toFixed(2)}%`;
      button.setAttribute("aria-pressed", String(off));
      button.setAttribute("aria-label", `mask key ${names[j]}`);
      button.title = off ? `Let the query attend to ${names[j]} again` : `Mask ${names[j]}`;
      one.classList.toggle("qp-masked", off);
      one.classList.toggle("qp-at", study.at === j);
    });
    const total = weights.reduce((sum, w) => sum + w, 0);
    foot.replaceChildren(el("th", { scope: "row", text: "sum" }), el("td"), el("td"), el("td", { text: power(powers.reduce((sum, x) => sum + x, 0)) }), el("td", { class: "qp-last" }, el("div", { class: "qp-bar" }, el("span", { class: "qp-track" }), el("span", { text: two(total) }))));
  }

  return { node, draw };
}
