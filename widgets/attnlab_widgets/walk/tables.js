// The same numbers as tables of text. They are filled when they are opened.
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";
import { ordered } from "#lib/draws.js";
import { fixed, four, percent, placed } from "./words.js";

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    const { network, tokens, step, at } = study;
    const row = study.row();
    const names = step.kind === "logits" || step.kind === "chances" ? network.shown : step.kind === "scores" || step.kind === "weights" ? tokens.map((_, j) => placed(network, tokens, j)) : null;
    const numbers = Array.from(row, (value, j) => [names ? names[j] : j, Number.isFinite(value) ? four(value) : "masked"]);
    const chances = study.chances(at);
    const answers = ordered(chances).map((token) => [network.shown[token], fixed(study.run.logits[at * network.names.length + token]), percent(chances[token])]);
    body.replaceChildren(
      headed(`${step.part}, ${step.name}: the numbers at ${placed(network, tokens, at)}`, [names ? "letter" : "number", "value"], numbers, "step-table"),
      headed(`What comes after ${placed(network, tokens, at)}`, ["letter", "logit", "probability"], answers, "answer-table"),
    );
  }

  return { node, draw };
}
