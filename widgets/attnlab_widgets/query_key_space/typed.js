// A sentence of one's own, placed by the kernel into the map.
import { el } from "#parts/dom.js";

const WAITS = 8000; // milliseconds for an answer of the kernel
const NO_KERNEL = "A sentence of your own can be placed while the notebook runs; a saved page has no kernel.";

export function typedPanel(study) {
  const field = el("input", { type: "text", class: "av-number qk-typed-text", placeholder: "a sentence of your own", "aria-label": "A sentence of your own", maxlength: 2000, "data-testid": "sentence-text" });
  const place = el("button", { type: "button", class: "av-button", text: "Place", "data-testid": "place", onclick: send });
  const clear = el("button", { type: "button", class: "av-button", text: "Clear", "data-testid": "clear", onclick: () => { field.value = ""; send(); } });
  const said = el("span", { class: "qk-typed-said", role: "status", "data-testid": "placed" });
  const node = el("div", { class: "qk-typed" }, field, place, clear, said);
  let waits = null;

  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") send();
  });

  function send() {
    const text = field.value.trim();
    study.typedAt = null;
    study.set({ sentence: text, selected: [] });
    clearTimeout(waits);
    if (!text || study.get("_placed").text === text) return;
    said.textContent = "placing …";
    waits = setTimeout(() => (said.textContent = "The kernel does not answer; is it running?"), WAITS);
  }

  function draw() {
    const typing = study.get("_typing");
    node.hidden = typing === "";
    for (const one of [field, place, clear]) one.hidden = typing !== "kernel";
    if (typing === "page") {
      said.textContent = NO_KERNEL;
      return;
    }
    const { text = "", error, tokens } = study.get("_placed");
    if (text !== study.get("sentence")) return;
    clearTimeout(waits);
    clear.hidden = !text;
    if (document.activeElement !== field) field.value = text;
    said.textContent = error ? `Not placed: ${error}` : tokens ? `${tokens.length} tokens on the map${study.typed() ? "" : "; none in this head"}` : "";
    said.classList.toggle("qk-wrong", Boolean(error));
  }

  return { node, draw, stop: () => clearTimeout(waits) };
}
