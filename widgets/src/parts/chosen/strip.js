// The sequence: a token is the query; those that hashing chose for it are underlined.
import { el, plain } from "../dom.js";
import { moved } from "../../lib/keys.js";

export function stripPanel(study) {
  const tokens = study.tokens.map((text, i) =>
    el("span", { class: "wc-token", role: "option", tabindex: -1, text: text.replaceAll(" ", "␣"), "data-testid": "token", onclick: () => study.set({ query: i }) }));
  const node = el("div", { class: "wc-strip", role: "listbox", "aria-label": "Sequence. Arrow keys choose the query." }, ...tokens);
  node.addEventListener("keydown", (event) => {
    const next = plain(event) ? moved(study.get("query"), study.n, event.key, study.n) : null;
    if (next === null) return;
    event.preventDefault();
    study.set({ query: next });
    tokens[next].focus();
  });
  function draw() {
    const { query } = study.state;
    const chosen = new Set(study.keysOf("hashing"));
    tokens.forEach((token, i) => {
      token.tabIndex = i === query ? 0 : -1;
      token.setAttribute("aria-selected", String(i === query));
      token.classList.toggle("wc-chosen", chosen.has(i));
      token.style.setProperty("--share", `${Math.round(100 * Math.sqrt(study.weights[query * study.n + i]))}%`);
    });
  }
  return { node, draw };
}
