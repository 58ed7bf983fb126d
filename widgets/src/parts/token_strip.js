// A sequence as its tokens, of which one is chosen: with the mouse, or with the arrow keys.
import { el, plain } from "./dom.js";
import { moved } from "../lib/keys.js";

/** `look(i)` gives a class and the share of the colour behind a token, 0 to 1; `at()` is the chosen one. */
export function tokenStrip({ tokens, label, at, choose, look }) {
  const nodes = tokens.map((text, i) =>
    el("span", { class: "ts-token", role: "option", tabindex: -1, text: text.replaceAll(" ", "␣"), "data-testid": "token", onclick: () => choose(i) }));
  const node = el("div", { class: "ts-strip", role: "listbox", "aria-label": label }, ...nodes);
  node.addEventListener("keydown", (event) => {
    const next = plain(event) ? moved(at(), nodes.length, event.key, nodes.length) : null;
    if (next === null) return;
    event.preventDefault();
    choose(next);
    nodes[next].focus();
  });

  function draw() {
    nodes.forEach((token, i) => {
      const { name, share } = look(i);
      token.className = `ts-token ${name}`;
      token.tabIndex = i === at() ? 0 : -1;
      token.setAttribute("aria-selected", String(i === at()));
      token.style.setProperty("--share", `${Math.round(100 * share)}%`);
    });
  }

  return { node, nodes, draw };
}
