// The same numbers as tables of text. They are filled when they are opened.
import { two } from "#lib/plane.js";
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";
import { HIDDEN } from "./study.js";

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (node.open) body.replaceChildren(objectives(), places(), ...losses());
  }

  function objectives() {
    const rows = study.rows.map((row) => {
      const { kinds, pays, whole } = study.drawOf(row, study.state);
      const count = (text, sign) => [...text].filter((each) => each === sign).length;
      return [row.name, count(kinds, "1"), count(kinds, "2"), whole ? whole : `${count(pays, "1")} of ${pays.length}`];
    });
    return headed("Objectives", ["objective", "hidden", "replaced", "asked for"], rows, "objectives-table");
  }

  function places() {
    const rows = study.draw.asked.map(([word, answer, kind], at) => {
      const found = study.draw.whole ? null : study.draw.guesses?.[at]?.[0];
      return [at, kind === HIDDEN ? "mask" : study.word(word), answer < 0 ? "–" : study.word(answer), found ? `${study.word(found[0])} (${found[1]} %)` : "–"];
    });
    return headed(`${study.row.name}, place by place`, ["place", "reads", "answer", "first guess"], rows, "places-table");
  }

  function losses() {
    const found = study.history();
    if (found === null) return [];
    const { steps, losses: all, draw } = found;
    const rows = draw.asked.flatMap(([, answer], at) => (answer < 0 ? [] : [[at, study.word(answer), ...all.map((line) => two(line[at]))]]));
    return [headed("Loss of each place in nats", ["place", "answer", ...steps.map((step) => `step ${step}`)], rows, "loss-table")];
  }

  return { node, draw };
}
