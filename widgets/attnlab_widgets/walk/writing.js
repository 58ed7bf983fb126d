// The text and what is written on: the field, its refusals, and the draw of the next letter.
import { button, el, labelled, slider } from "#parts/dom.js";
import { read } from "./reading.js";

const MANY = 8;

export function writing(study) {
  const { network } = study;
  const input = el("input", { type: "text", class: "wk-input", spellcheck: "false", autocapitalize: "off", autocomplete: "off", testid: "text" });
  const refusal = el("p", { class: "av-status wk-refusal", role: "alert", testid: "refusal", hidden: true });
  let shown = null; // the text of the state when the field was last written

  function refuse(words) {
    refusal.textContent = words ? `${words}${input.value === study.state.text ? "" : " Shown is the last text that it could read."}` : "";
    refusal.hidden = !words;
    input.setAttribute("aria-invalid", String(Boolean(words)));
  }

  input.addEventListener("input", () => {
    const found = read(network, input.value);
    refuse(found.refusal ?? "");
    if (found.refusal) return;
    shown = input.value;
    study.set({ text: input.value, at: -1 });
  });

  const next = button({ text: "Next letter", testid: "next", title: "Draw the next letter from the answer", onclick: () => refuse(study.write(1)) });
  const many = button({ text: `${MANY} more`, testid: "many", "aria-label": `${MANY} more letters`, onclick: () => refuse(study.write(MANY)) });
  const back = button({ text: "⌫", testid: "back", title: "Take the last letter away", "aria-label": "Take the last letter away", onclick: () => {
    study.shorten();
    refuse("");
  } });
  const temperature = slider("temperature", "temperature", { min: 0, max: 2, step: 0.1 }, (value) => study.set({ temperature: value }));
  const topK = slider("top-k", "top-k", { min: 1, max: network.names.length, step: 1 }, (value) => study.set({ top_k: value }));
  const seed = el("input", { type: "number", class: "av-number", min: 0, max: 2147483647, testid: "seed", onchange: () => {
    const value = Math.min(2147483647, Math.max(0, Math.round(Number(seed.value) || 0)));
    seed.value = String(value);
    study.set({ seed: value });
  } });

  function draw() {
    const { text, temperature: heat, top_k: k, seed: chosen } = study.state;
    if (text !== shown) {
      if (input.value !== text) input.value = text;
      if (study.n < network.maxLen) refuse("");
      shown = text;
    }
    temperature.input.value = String(heat);
    temperature.output.textContent = heat === 0 ? "0: the first" : Number(heat.toFixed(1)) === heat ? heat.toFixed(1) : String(Number(heat.toPrecision(2)));
    temperature.input.setAttribute("aria-valuetext", temperature.output.textContent);
    topK.input.value = String(k);
    topK.output.textContent = k === network.names.length ? "all" : String(k);
    if (document.activeElement !== seed) seed.value = String(chosen);
    back.setAttribute("aria-disabled", String(study.n < 2)); // not disabled: it would lose the focus
  }

  return { field: labelled("text", input), buttons: [next, many, back], more: [temperature.node, topK.node, labelled("seed", seed)], refusal, draw };
}
