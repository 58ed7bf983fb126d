// What applies to all panels.
import { NONE } from "#lib/active.js";
import { bar } from "#parts/bar.js";
import { choice, button, el, labelled, slider, toggle } from "#parts/dom.js";
import { savers } from "#parts/picture.js";
import { changes } from "#lib/words.js";

const HELP = `Each row of a map is a query, each column a key: the brighter the cell, the more of the key's value the query takes. Yellow is the head's largest weight, dark blue is 0; hatched pairs are masked. Where the weights of a row sum to less than one, because a sink or a gate takes a part, or because other weights were subtracted, a column apart from the keys shows the rest. Negative weights (orange and blue, on both sides of zero) subtract a value.

Click a head to choose it; Shift- or Ctrl-click adds others to the lines. The wider a line, the larger its weight. Point at a token or a cell to see what goes with it, click to pin it, Escape lets go.

“Why?” follows the weights of one query step by step. Where the view was given the model, a last step tells which earlier layers wrote what is read at the key and at the query: the parts of a score, which sum to it.

In 0.412 ± 0.002 the second number is the most that storing each weight in 8 bits can have changed it.`;

export function controls(store, view, search) {
  const shown = choice("Show", "shown", [["first", ""], ["second", ""], ["difference", "difference"]], (value) => store.set({ shown: value }));
  const step = slider("Training step", "step", { min: 0, max: 1, step: 1 }, (value) => store.set({ step: value }));
  const threshold = slider("Threshold", "threshold", { min: 0, max: 1, step: 0.01 }, (value) => store.set({ threshold: value }));
  const lines = el("input", { type: "number", min: 0, max: 999, step: 1, class: "av-number", testid: "top-k", title: "0 draws every line" });
  lines.addEventListener("change", () => store.set({ top_k: Math.max(0, Math.round(Number(lines.value)) || 0) }));
  const topK = labelled("Lines per token (0 = all)", lines);
  const hideFirst = toggle("Hide the first token", "hide-first", (value) => store.set({ hide_first: value }));
  const weighted = toggle("Weight by value norms", "value-weighted", (value) => store.set({ value_weighted: value }));
  const clear = button({ text: "Unpin", testid: "unpin", onclick: () => store.set({ ...NONE, heads: [] }) });
  const save = savers(view, "attention");
  const status = el("p", { class: "av-status", testid: "status", role: "status" });
  const { node } = bar({
    frequent: [search, shown.node, step.node, threshold.node, clear],
    more: [topK, hideFirst.node, weighted.node, save],
    help: HELP,
  });

  function draw() {
    const { recording } = store;
    shown.node.hidden = !recording.compared;
    [...shown.select.options].forEach((option, at) => {
      option.textContent = recording.names[at] ?? `difference (${recording.names[1]} − ${recording.names[0]})`;
    });
    shown.select.value = store.get("shown");
    step.node.hidden = recording.steps.length < 2;
    step.input.max = recording.steps.length - 1;
    step.input.value = store.step;
    step.output.textContent = recording.steps[store.step];
    step.input.setAttribute("aria-valuetext", `step ${recording.steps[store.step]}`);
    threshold.input.value = store.get("threshold");
    threshold.output.textContent = `${Math.round(store.get("threshold") * 100)} %`;
    lines.value = store.get("top_k");
    hideFirst.box.checked = store.get("hide_first");
    weighted.box.checked = store.settings.weighted;
    weighted.box.disabled = !recording.norms;
    weighted.node.title = recording.norms ? "Each weight times the norm of its value vector" : "This source holds weights only; a recording of attnlab.watch also holds values";
    const none = store.get("query") === null && store.get("key") === null && !store.get("heads").length;
    clear.disabled = none;
    const said = changes(store.settings);
    status.hidden = !said;
    status.textContent = said ? `Not the raw weights: ${said}. Statistics stay those of the raw weights.` : "";
  }

  return { node, status, draw, hover() {} };
}
