// Who writes the token that comes: a bar for each part of its logit, and their sum.
import { few, isSilent, meanParts, signed, spokenOf, wordsOf } from "./parts.js";
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";

const HIGH = 62; // of the bars, without numbers and names
const LEAST = 33; // of a column
const FULL = 84; // of a column with the whole name
const QUIET = 700; // milliseconds without a change after which the parts are read out

export function writersPanel(study) {
  const { board } = study;
  const title = el("h3", { "data-testid": "writes" });
  const chart = drawn("svg", { class: "hs-chart hs-parts", role: "img", "data-testid": "parts" });
  const sum = el("p", { class: "hs-sum av-quiet", "data-testid": "sum" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const node = el("section", { class: "av-panel hs-writers", "aria-label": "Who writes the answer" }, title, chart, sum, spoken);
  const { why } = board.writers ?? {}; // files of earlier versions have none
  node.hidden = !study.parts && !why;
  if (why) {
    chart.remove();
    title.textContent = "Who writes the answer is not known here";
    sum.textContent = why;
  }

  let reading = null;
  let last = null; // what was read out or will be; at first nothing is
  function readOut(said) {
    if (said === last) return;
    const first = last === null;
    last = said;
    clearTimeout(reading);
    if (!first) reading = setTimeout(() => (spoken.textContent = said), QUIET);
  }

  function draw(wide) {
    if (!study.parts) return;
    const found = meanParts(board, study.parts, study.state, study.at);
    const { heading, line } = wordsOf(board, found, study);
    title.textContent = heading;
    sum.textContent = line;
    readOut(spokenOf(board, found, study));
    const shown = [...few(board.writers.parts, found.values, Math.floor(wide / LEAST) - 1), { name: "sum", short: "sum", value: found.sum, sum: true }];
    const step = wide / shown.length;
    const most = Math.max(0, ...shown.map(({ value }) => value));
    const least = Math.min(0, ...shown.map(({ value }) => value));
    const unit = HIGH / (most - least || 1);
    const zero = 14 + most * unit;
    const bottom = 14 + HIGH + 13; // always, so that the letters below stay where they are
    chart.setAttribute("viewBox", `0 0 ${wide} ${bottom + 14}`);
    chart.setAttribute("width", wide);
    chart.setAttribute("height", bottom + 14);
    chart.setAttribute("aria-label", shown.map(({ name, value }) => `${name} ${signed(value)}`).join("; "));
    chart.replaceChildren(
      drawn("line", { class: "hs-base", x1: 0, x2: wide, y1: zero, y2: zero }),
      ...shown.map((part, at) => {
        const x = step * (at + 0.5);
        const high = Math.abs(part.value) * unit;
        const below = part.value < 0 && signed(part.value) !== "0";
        const kind = part.sum ? "hs-whole-sum" : below ? "hs-lowers" : "hs-raises";
        const side = Math.min(46, step * 0.62);
        const quiet = isSilent(board, part, study.state) ? " hs-quiet-name" : "";
        return drawn("g", { "data-part": part.name, "data-value": part.value },
          drawn("title", { text: `${part.name}: ${signed(part.value)}${quiet ? ", silent" : ""}` }),
          drawn("rect", { class: kind, x: x - side / 2, width: side, y: below ? zero : zero - high, height: Math.max(high, 0.75) }),
          drawn("text", { class: "hs-number", x, y: below ? zero + high + 11 : zero - high - 4, "text-anchor": "middle", text: step < 40 ? signed(part.value, 1) : signed(part.value) }),
          drawn("text", { class: `hs-small${quiet}`, x, y: bottom + 11, "text-anchor": "middle", text: step < FULL ? part.short : part.name }));
      }));
  }

  return { node, draw, stop: () => clearTimeout(reading) };
}
