// The same numbers as tables of text. They are filled when they are opened.
import { ago, behaves } from "./signals.js";
import { two } from "#lib/plane.js";
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";
import { complexly } from "./poles.js";

const MOST_ROWS = 4; // of the state, beside the other numbers of a token

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    const { state: { taps } } = study;
    body.replaceChildren(tokens(), ...(taps.length ? [] : [poles()]), waves());
  }

  function tokens() {
    const { state: { signal, taps }, found: { kernel, states, output } } = study;
    const shown = states.slice(0, MOST_ROWS);
    const names = shown.map((_, r) => (taps.length ? `input of ${ago(r)}` : `mode ${r}, real part`));
    const rows = signal.map((u, k) => [k, ...[u, kernel[k], ...shown.map((row) => row[k]), output[k]].map((x) => two(x, 3))]);
    const more = states.length > MOST_ROWS ? `The first ${MOST_ROWS} of ${states.length} rows of the state.` : "";
    return headed("Token by token; the kernel by how many tokens before", ["token", "signal", "kernel", ...names, "output"], rows, "tokens-table", more);
  }

  function poles() {
    const { state: { poles: all, weights }, found: { modes } } = study;
    const rows = all.map((pole, r) => [r, complexly(pole), complexly(weights[r]), complexly(modes[r].decay), two(Math.hypot(...modes[r].decay), 4), behaves(modes[r].decay)]);
    return headed("Poles", ["pole", "A", "weight C B", "Ā", "size of Ā", "its mode"], rows, "poles-table");
  }

  function waves() {
    const [kernel, signal] = study.spectra;
    const rows = kernel.map((value, at) => [two(at / (2 * (kernel.length - 1)), 3), two(value, 3), two(signal[at], 3)]).filter((_, at) => at % 8 === 0);
    return headed("Spectra, every eighth number", ["turns per token", "kernel", "signal"], rows, "spectrum-table");
  }

  return { node, draw };
}
