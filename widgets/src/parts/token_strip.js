// A sequence as its tokens, of which one is chosen: with the mouse, or with the arrow keys.
import { el, plain } from "./dom.js";
import { moved } from "../lib/keys.js";

/**
 * `look(i)` gives a class and the share of the colour behind a token, 0 to 1; it may give a `ground` in
 * the place of that colour, a small `mark` behind the text, and a `label` with what both mean. `at()`
 * is the chosen token; `point` hears of the one that is pointed at, or null.
 */
export function tokenStrip({ tokens, label, at, choose, look, point = () => {} }) {
  const nodes = tokens.map((text, i) =>
    el("span", { class: "ts-token", role: "option", tabindex: -1, text: text.replaceAll(" ", "␣"), "data-testid": "token", onclick: () => choose(i), onpointerenter: () => point(i), onpointerleave: () => point(null) }));
  const node = el("div", { class: "ts-strip", role: "listbox", "aria-label": label }, ...nodes);
  node.addEventListener("keydown", (event) => {
    const next = plain(event) ? moved(at(), nodes.length, event.key, nodes.length) : null;
    if (next === null) return;
    event.preventDefault();
    choose(next);
    nodes[next].focus();
  });

  let shown = null; // the token that was chosen last
  function draw() {
    nodes.forEach((token, i) => {
      const { name, share = 0, ground = "", mark = "", label: meaning } = look(i);
      token.className = `ts-token ${name}`;
      token.tabIndex = i === at() ? 0 : -1;
      token.setAttribute("aria-selected", String(i === at()));
      token.style.setProperty("--share", `${Math.round(100 * share)}%`);
      token.style.background = ground;
      if (mark) token.dataset.mark = mark;
      if (meaning) token.setAttribute("aria-label", meaning);
    });
    if (shown !== at()) intoView(nodes[(shown = at())]);
  }

  /** Scrolls the strip alone, not the page. */
  function intoView(token) {
    const top = token.offsetTop - node.offsetTop;
    const seen = top >= node.scrollTop && top + token.offsetHeight <= node.scrollTop + node.clientHeight;
    if (!seen) node.scrollTop = top - node.clientHeight / 2;
  }

  return { node, nodes, draw };
}
