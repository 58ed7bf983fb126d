// The text: each token that is to be predicted is a lamp.
import { moved } from "#lib/keys.js";
import { kindsIn, lampWidth } from "./switches.js";
import { el, plain } from "#parts/dom.js";

const SIGNS = { right: "✓", gained: "+", lost: "✗", never: "·" };
const SAID = { right: "right", gained: "right, but wrong with all heads", lost: "wrong, but right with all heads", never: "wrong, with all heads too" };

export function stripPanel(study, view) {
  const { board } = study;
  const first = el("span", { class: "hs-first", title: "The text begins here; nothing predicts it", text: board.tokens[0] });
  const lamps = board.coming.map((token, i) => {
    const sign = el("span", { class: "hs-sign", "aria-hidden": "true" });
    const guess = el("span", { class: "hs-guess" });
    const node = el("span", {
      class: "hs-lamp", role: "option", "data-testid": `token-${i + 1}`, tabindex: i ? -1 : 0,
      onpointerenter: () => view.point(i + 1), onpointerleave: () => view.point(null),
      onfocus: () => view.point(i + 1), onblur: () => view.point(null),
    }, sign, el("span", { class: "hs-token", text: board.tokens[i + 1] }), guess);
    return { node, sign, guess };
  });
  const strip = el("div", { class: "hs-strip", role: "listbox", "aria-label": `The text, ${board.unit} by ${board.unit}`, "data-testid": "strip" }, first, ...lamps.map(({ node }) => node));
  strip.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    const at = lamps.findIndex(({ node }) => node === event.target);
    const next = at < 0 ? null : moved(at, lamps.length, event.key, 2 ** 20) ?? null;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = step ? Math.min(lamps.length - 1, Math.max(0, at + step)) : next;
    if (at < 0 || to === null) return;
    event.preventDefault();
    lamps[at].node.tabIndex = -1;
    lamps[to].node.tabIndex = 0;
    lamps[to].node.focus();
  });
  const readout = el("p", { class: "hs-readout", "data-testid": "readout" });
  const units = `${board.unit}s`;
  const short = board.tokens.every((token) => token.length < 3);
  const gains = board.guesses.some((_, state) => kindsIn(board, state).includes("gained"));
  const key = (kind, text) => el("span", { class: "hs-entry" }, el("span", { class: `hs-key hs-${kind}`, text: SIGNS[kind] }), ` ${text}`);
  const legend = el("p", { class: "hs-legend av-quiet" },
    key("right", `predicted from the ${units} before it`), key("lost", "right with all heads, wrong now"),
    key("never", "wrong with all heads, too"), ...(gains ? [key("gained", "wrong with all heads, right now")] : []));
  const node = el("section", { class: "av-panel hs-text", "aria-label": "The text" },
    el("h3", { text: `Which ${units} are predicted?` }), strip, legend, readout);

  function draw(wide) {
    strip.style.setProperty("--lamp", short ? `${lampWidth(board.tokens.length, wide)}px` : "auto");
    const { state } = study;
    kindsIn(board, state).forEach((kind, i) => {
      const { node: lamp, sign, guess } = lamps[i];
      const said = board.names[board.guesses[state][i]];
      lamp.dataset.kind = kind;
      lamp.className = `hs-lamp hs-${kind}${study.at === i + 1 ? " hs-at" : ""}`;
      sign.textContent = SIGNS[kind];
      guess.textContent = kind === "right" || kind === "gained" ? "" : said;
      lamp.setAttribute("aria-label", `${board.tokens[i + 1]}: ${SAID[kind]}; the model says ${said}`);
    });
    const { at } = study;
    readout.textContent = at === null
      ? `Point at a ${board.unit} to see what the model says there, and from which row of the maps.`
      : `After “${board.tokens[at - 1]}” (row ${at - 1} of the maps) the model says “${board.names[board.guesses[state][at - 1]]}”; “${board.tokens[at]}” comes.`;
  }

  return { node, draw };
}
