// The wires from the largest effect on, each with a switch: the same as on the board, for fingers and ears.
import { two } from "#lib/plane.js";
import { moved } from "#lib/keys.js";
import { el, plain } from "#parts/dom.js";
import { headed } from "#parts/table.js";
import { POINTS } from "./board.js";
import { percent, wire } from "./words.js";

const LEAST = 5; // wires that are listed, however small their effect

export function listPanel(study, board) {
  const rows = study.wires.map((_, at) => {
    const [name, number, state] = [el("span", { class: "cb-route" }), el("span", { class: "cb-number" }), el("span", { class: "cb-state" })];
    const node = el("button", { type: "button", role: "switch", class: "cb-item", tabindex: "-1", testid: `list-${at}`, onclick: () => study.flip(at) }, name, number, state);
    for (const [event, to] of POINTS) node.addEventListener(event, () => board.point(to && at, event));
    return { node, name, number, state };
  });
  const list = el("div", { class: "cb-list", role: "group", "aria-label": "The wires, from the largest effect on", testid: "list" });
  const rest = el("p", { class: "av-quiet av-hint", testid: "rest" });
  const node = el("section", { class: "av-panel", "aria-label": "The wires" }, el("h3", { testid: "list-title" }), list, rest);
  let shown = [];

  list.addEventListener("keydown", (event) => {
    if (event.repeat && event.key === "Enter") event.preventDefault(); // a key that is held cuts once
    const at = shown.findIndex((wireAt) => rows[wireAt].node === event.target);
    const to = plain(event) && at >= 0 ? moved(at, shown.length, event.key) : null;
    if (to === null) return;
    event.preventDefault();
    rows[shown[at]].node.tabIndex = -1;
    rows[shown[to]].node.tabIndex = 0;
    rows[shown[to]].node.focus();
  });

  function draw() {
    const order = study.ordered;
    shown = order.filter((at, place) => place < LEAST || !study.isGrey(at) || study.isCut(at));
    node.querySelector("h3").textContent = study.state.measure === "logit" ? "Cut alone: the logit above the mean" : `Cut alone: the probability of “${study.network.shown[study.watched]}”`;
    const nodes = shown.map((at) => rows[at].node);
    if (nodes.length !== list.children.length || nodes.some((one, at) => one !== list.children[at])) {
      const focused = list.contains(list.getRootNode().activeElement) ? list.getRootNode().activeElement : null;
      list.replaceChildren(...nodes);
      if (focused) (nodes.includes(focused) ? focused : nodes[0]).focus({ preventScroll: true });
    }
    const active = nodes.find((one) => one === list.getRootNode().activeElement) ?? nodes[0];
    for (const at of shown) {
      const { node: item, name, number, state } = rows[at];
      const cut = study.isCut(at);
      const [before, alone] = [study.before, study.alone[at]];
      name.textContent = name.title = wire(study.wires[at]).replace(/^from /, "").replace(/ (into|to) the /, " → ").replace(/head /g, "").replace(/^the /, "");
      number.textContent = alone ? (study.state.measure === "logit" ? `${two(before.logit, 1)} → ${two(alone.logit, 1)}` : `${percent(before.chance)} → ${percent(alone.chance)}`) : "…";
      state.textContent = cut ? "cut" : "whole";
      item.setAttribute("aria-checked", String(!cut));
      item.setAttribute("aria-label", board.sentence(at));
      item.tabIndex = item === active ? 0 : -1;
    }
    const left = order.length - shown.length;
    rest.textContent = !study.complete ? "The others are being computed …" : left ? `${left} grey ${left === 1 ? "wire is" : "wires are"} not listed.` : "";
  }

  return { node, draw };
}

/** All wires as a table of text. It is filled when it is opened. */
export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    const rows = study.ordered.map((at) => {
      const alone = study.alone[at];
      return [...study.wires[at], alone ? percent(alone.chance) : "…", alone ? two(alone.logit) : "…", study.isCut(at) ? "cut" : "whole"];
    });
    const { before, watched, network: { shown } } = study;
    const title = `“${shown[watched]}” with all wires: ${percent(before.chance)}, logit above the mean ${two(before.logit)}`;
    body.replaceChildren(headed(title, ["from", "to", "probability if cut", "logit if cut", "now"], rows, "wires-table"));
  }

  return { node, draw };
}
