// The sentence: each token is a place that can be pointed at; it is shaded by what is pointed at.
import { el, plain } from "#parts/dom.js";
import { moved } from "#lib/keys.js";
import { word } from "#lib/wall.js";

export function strip(store, view) {
  const node = el("div", { class: "wl-strip", role: "listbox", "aria-label": "The sentence: choose a token with the arrow keys", "data-testid": "strip" });
  let tokens = [];
  let focus = 0;

  function build() {
    tokens = store.wall.tokens.map((text, at) =>
      el("span", { class: text.startsWith("␣") ? "wl-token wl-apart" : "wl-token", role: "option", tabindex: at === focus ? 0 : -1, "aria-selected": "false", "data-at": at, text: word(text) }),
    );
    node.replaceChildren(...tokens);
  }

  const placeOf = (target) => {
    const token = target.closest?.(".wl-token");
    return token ? Number(token.dataset.at) : null;
  };
  const pointed = (at) => view.hover(at === null || at >= store.shownLength ? null : { i: at, j: at, name: null });
  node.addEventListener("pointerover", (event) => {
    const at = placeOf(event.target);
    if (at !== null) pointed(at);
  });
  node.addEventListener("pointerleave", () => pointed(null));
  node.addEventListener("focusin", (event) => {
    const at = placeOf(event.target);
    if (at === null) return;
    focus = at;
    tokens.forEach((token, place) => (token.tabIndex = place === at ? 0 : -1));
    pointed(at);
  });
  node.addEventListener("focusout", () => pointed(null));
  node.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: "ArrowDown", ArrowLeft: "ArrowUp" };
    const next = plain(event) ? moved(focus, store.shownLength, steps[event.key] ?? event.key) : null;
    if (next === null) return;
    event.preventDefault();
    tokens[next].focus();
  });

  function draw() {
    if (tokens.length !== store.n) build();
    tokens.forEach((token, at) => {
      token.classList.toggle("wl-beyond", at >= store.shownLength);
      token.setAttribute("aria-disabled", String(at >= store.shownLength));
    });
  }

  /** The pointed query is marked, and the others light up by what it takes from them. */
  function hover() {
    const at = store.hover;
    const map = at ? store.map(at.name ?? view.reference()) : null;
    let largest = 0;
    if (map) for (let j = 0; j < map.n; j += 1) largest = Math.max(largest, Math.abs(map.values[at.i * map.m + j]));
    tokens.forEach((token, j) => {
      const own = Boolean(at) && (j === at.i || j === at.j);
      token.setAttribute("aria-selected", String(Boolean(at) && j === at.i));
      token.classList.toggle("wl-query", Boolean(at) && j === at.i);
      token.classList.toggle("wl-key", own && j === at.j && j !== at.i);
      const share = map && largest && j < map.n ? Math.sqrt(Math.abs(map.values[at.i * map.m + j]) / largest) : 0;
      token.style.setProperty("--share", `${Math.round(70 * share)}%`);
    });
  }

  return { node, draw, hover };
}
