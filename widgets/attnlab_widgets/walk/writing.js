// The text and what is written on: the field, its refusals, and the draw of the next letter.
import { button, el, labelled, slider } from "#parts/dom.js";
import { typedPanel } from "#parts/letters.js";

const MANY = 8;

export function writing(study) {
  const { network } = study;
  const { field, refusal, refuse, draw: drawField } = typedPanel(study);

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
    const { temperature: heat, top_k: k, seed: chosen } = study.state;
    drawField(study.n >= network.maxLen);
    temperature.input.value = String(heat);
    temperature.output.textContent = heat === 0 ? "0: the first" : Number(heat.toFixed(1)) === heat ? heat.toFixed(1) : String(Number(heat.toPrecision(2)));
    temperature.input.setAttribute("aria-valuetext", temperature.output.textContent);
    topK.input.value = String(k);
    topK.output.textContent = k === network.names.length ? "all" : String(k);
    if (document.activeElement !== seed) seed.value = String(chosen);
    back.setAttribute("aria-disabled", String(study.n < 2)); // not disabled: it would lose the focus
  }

  return { field, buttons: [next, many, back], more: [temperature.node, topK.node, labelled("seed", seed)], refusal, draw };
}
