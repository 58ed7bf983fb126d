// What comes next: the most probable letters after the one that is looked at.
import { el } from "#parts/dom.js";
import { ordered } from "#lib/draws.js";
import { percent, placed } from "./words.js";

const SHOWN = 5;

export function answerPanel(study) {
  const title = el("h3", { testid: "asked" });
  const rows = Array.from({ length: Math.min(SHOWN, study.network.names.length) }, () => {
    const [letter, fill, mark, number] = [el("span", { class: "wk-option" }), el("span", { class: "wk-fill" }), el("span", { class: "wk-before" }), el("span", { class: "wk-percent" })];
    return { node: el("div", { class: "wk-row" }, letter, el("span", { class: "wk-bar", "aria-hidden": "true" }, fill, mark), number), letter, fill, mark, number };
  });
  const before = el("p", { class: "av-quiet wk-whole", testid: "whole" });
  const node = el("section", { class: "av-panel wk-answer", "aria-label": "The answer", testid: "answer" }, title, el("div", {}, ...rows.map((row) => row.node)), before);

  /** The most probable letter, and where heads are silent that with all heads. */
  function sentence() {
    const [now, then] = [study.chances(study.at), study.chances(study.at, study.whole)];
    const [first, usual] = [ordered(now)[0], ordered(then)[0]];
    const { shown } = study.network;
    const said = `The answer: “${shown[first]}” ${percent(now[first])}.`;
    return study.state.silent.length ? `${said} With all heads: “${shown[usual]}” ${percent(then[usual])}.` : said;
  }

  function draw() {
    const { at, tokens, network, state } = study;
    const [now, then] = [study.chances(at), study.chances(at, study.whole)];
    title.textContent = `What comes after ${placed(network, tokens, at)}?`;
    ordered(now).slice(0, rows.length).forEach((token, row) => {
      const { letter, fill, mark, number } = rows[row];
      letter.textContent = network.shown[token];
      fill.style.width = `${100 * now[token]}%`;
      mark.hidden = !state.silent.length;
      mark.style.left = `${100 * then[token]}%`;
      number.textContent = percent(now[token]);
    });
    const usual = ordered(then)[0];
    before.textContent = state.silent.length
      ? `With all heads (the thin lines): “${network.shown[usual]}” ${percent(then[usual])}.`
      : at + 1 < tokens.length ? `In the text comes “${network.shown[tokens[at + 1]]}”.` : "The text ends here.";
  }

  return { node, draw, sentence };
}
