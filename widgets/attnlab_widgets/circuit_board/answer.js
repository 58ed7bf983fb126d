// What comes next: the most probable letters with all wires, and with the cuts, as bars.
import { ordered } from "#lib/draws.js";
import { el } from "#parts/dom.js";
import { percent } from "./words.js";

const SHOWN = 4;

export function answerPanel(study) {
  const title = el("h3", { testid: "asked" });
  const rows = Array.from({ length: Math.min(SHOWN, study.network.names.length) }, () => {
    const [letter, before, after, number] = [el("span", { class: "cb-letter" }), el("span", { class: "cb-fill cb-before" }), el("span", { class: "cb-fill cb-after" }), el("span", { class: "cb-percent" })];
    return { node: el("div", { class: "cb-row" }, letter, el("span", { class: "cb-bars", "aria-hidden": "true" }, el("span", { class: "cb-track" }, before), el("span", { class: "cb-track cb-late" }, after)), number), letter, before, after, number };
  });
  const key = el("p", { class: "av-quiet cb-key" }, el("span", { class: "cb-swatch cb-before" }), "all wires", el("span", { class: "cb-late" }, el("span", { class: "cb-swatch cb-after" }), "with the cuts"));
  const node = el("section", { class: "av-panel", "aria-label": "The answer", testid: "answer" }, title, el("div", {}, ...rows.map((row) => row.node)), key);

  function draw() {
    const { before, after, tokens, at, network: { shown } } = study;
    title.textContent = `What comes after “${shown[tokens[at]]}” (${at})?`;
    node.classList.toggle("cb-uncut", !study.state.cuts.length);
    const most = before.chances.map((chance, token) => Math.max(chance, after.chances[token]));
    const first = ordered(most).slice(0, rows.length);
    node.style.setProperty("--letter", `${Math.min(96, 17 + 9 * Math.max(...first.map((token) => shown[token].length)))}px`);
    first.forEach((token, row) => {
      const one = rows[row];
      const [then, now] = [before.chances[token], after.chances[token]];
      one.letter.textContent = one.letter.title = shown[token];
      one.before.style.width = `${100 * then}%`;
      one.after.style.width = `${100 * now}%`;
      one.number.textContent = study.state.cuts.length ? `${percent(then)} → ${percent(now)}` : percent(then);
      one.node.classList.toggle("cb-watched", token === study.watched);
    });
  }

  return { node, draw };
}
