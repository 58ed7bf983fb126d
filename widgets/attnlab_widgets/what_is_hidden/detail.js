// The chosen objective: what goes in, what must come out, and what a model guesses at a place.
import { el, plain } from "#parts/dom.js";
import { moved } from "#lib/keys.js";
import { HIDDEN, REPLACED, SIGN } from "./study.js";

const CLASSES = { [HIDDEN]: "wh-hidden", [REPLACED]: "wh-replaced", [SIGN]: "wh-sign" };

export function detailPanel(study, view) {
  const title = el("h3", {});
  const source = el("div", { class: "wh-strip", "aria-label": "What the encoder reads", role: "group", "data-testid": "source" });
  const asked = el("div", { class: "wh-strip", role: "listbox", "data-testid": "asked" });
  const guesses = el("div", { class: "wh-guesses", "data-testid": "guesses" });
  const node = el("section", { class: "av-panel wh-detail" }, title, source, asked, guesses);
  let [shown, nodes] = [null, []];

  asked.addEventListener("keydown", (event) => {
    const at = study.model.get("place");
    const next = plain(event) ? moved(at, nodes.length, event.key, nodes.length) : null;
    if (next === null) return;
    event.preventDefault();
    study.set({ place: next });
    nodes[next].focus();
  });

  function box([word, answer, kind], at, option) {
    const text = kind === HIDDEN ? "" : study.word(word);
    const attributes = option ? { role: "option", tabindex: -1, "data-testid": "place", onclick: () => study.set({ place: at }) } : {};
    const seen = kind === HIDDEN ? "a mask" : text;
    const label = option ? { "aria-label": `place ${at}: ${seen}${answer < 0 ? "" : `, the answer is ${study.word(answer)}`}` } : {};
    return el("span", { class: `wh-place ${CLASSES[kind] ?? ""}`, ...attributes, ...label },
      el("bdi", { class: "wh-word", text: text || "\u00a0\u00a0" }), ...(option ? [el("bdi", { class: "wh-answer", text: answer < 0 ? "\u00a0" : study.word(answer) })] : []));
  }

  function draw() {
    const { row, draw: found, state } = study;
    const name = `${row.name}/${study.index(row, state)}`;
    if (name !== shown) {
      shown = name;
      title.textContent = row.title === row.name ? row.name : `${row.name} · ${row.title}`;
      source.hidden = found.source.length === 0;
      source.replaceChildren(el("b", { class: "wh-name", text: "goes in" }), ...found.source.map((place, at) => box(place, at, false)));
      nodes = found.asked.map((place, at) => box(place, at, true));
      asked.setAttribute("aria-label", found.source.length ? "What is written, and the answers that are wanted" : "What goes in, and the answers that are wanted");
      asked.replaceChildren(el("b", { class: "wh-name", role: "presentation", text: found.source.length ? "comes out" : "goes in" }), ...nodes);
    }
    nodes.forEach((place, at) => {
      place.tabIndex = at === state.place ? 0 : -1;
      place.setAttribute("aria-selected", String(at === state.place));
    });
    drawGuesses();
  }

  function drawGuesses() {
    const found = study.guesses();
    const { draw: { asked: places, whole }, state } = study;
    if (found === null) {
      const given = study.rows.some((row) => row.draws[0].guesses);
      const none = study.row.draws[0].guesses ? "The model makes no guess at this place." : given ? "No model of this objective is shown." : "With a trained model its guesses stand here: WhatIsHidden.of(…), or WhatIsHidden.stored().";
      guesses.replaceChildren(el("span", { class: "av-quiet", text: none }));
      return;
    }
    const right = whole || study.word(places[state.place][1]);
    guesses.replaceChildren(el("span", { class: "av-quiet", text: whole ? "the model’s guess for the text" : `the model’s guesses at place ${state.place}` }), ...found.map(([word, percent]) => {
      const text = study.word(word);
      const bar = el("i", { class: "wh-bar", style: `width: ${Math.max(1, percent * 0.9)}px` });
      return el("span", { class: text === right ? "wh-guess wh-right" : "wh-guess" }, el("bdi", { text }), bar, el("span", { class: "av-quiet", text: `${percent} %` }), text === right ? el("span", { text: "✓" }) : null);
    }));
  }

  return { node, draw };
}
