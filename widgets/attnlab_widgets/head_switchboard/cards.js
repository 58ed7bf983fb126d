// Each head as a switch under its map.
import { parse, lookup } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { headName, mapAt } from "./switches.js";
import { bitmap, el, sized } from "#parts/dom.js";

const MASKED = 255;
const WORDS = "Importance: how strongly the loss of this text, in nats per token, changes to first order as the head is scaled";

export function cardsPanel(study, view) {
  const { board } = study;
  const n = board.tokens.length;
  const layers = [...new Set(board.heads.map(([layer]) => layer))];
  const needed = board.importance ?? []; // files of earlier versions have none
  const cards = board.heads.map(card);
  const node = el("section", { class: "av-panel hs-board", "aria-label": "The heads" },
    ...layers.map((layer) => el("div", { class: "hs-layer", role: "group", "aria-label": `Layer ${layer}` },
      el("h3", { text: `Layer ${layer}` }),
      el("div", { class: "hs-cards" }, ...cards.filter((_, bit) => board.heads[bit][0] === layer).map((one) => one.node)))));

  function card(head, bit) {
    const canvas = el("canvas", { class: "hs-map", "aria-hidden": "true" });
    const said = el("span", { class: "hs-said" });
    const number = needed[bit] === undefined ? [] : [el("span", {
      class: "hs-needed", "data-testid": `importance-${headName(head)}`, title: WORDS, "aria-label": `importance ${needed[bit]}`, role: "img", text: `importance ${needed[bit]}`,
    })];
    const button = el("button", {
      type: "button", role: "switch", class: "hs-switch", "data-testid": `switch-${headName(head)}`, "aria-label": `head ${headName(head)}`,
      onclick: () => study.flip(bit),
    }, el("span", { class: "hs-name" }, el("span", { class: "hs-word", text: "head " }), headName(head)), el("span", { class: "hs-pill", "aria-hidden": "true" }, el("span", { class: "hs-knob" })), said);
    const one = el("div", { class: "hs-card", "data-testid": `head-${headName(head)}`, onclick: (event) => event.target === canvas && study.flip(bit) }, canvas, el("div", { class: "hs-line" }, button, ...number));
    return { node: one, canvas, button, said };
  }

  function draw(side) {
    node.classList.toggle("hs-narrow", side < 140);
    const { state } = study;
    cards.forEach(({ node: one, canvas, button, said }, bit) => {
      const on = !((state >> bit) & 1);
      button.setAttribute("aria-checked", String(on));
      said.textContent = on ? "on" : "silent";
      one.classList.toggle("hs-silent", !on);
      paint(canvas, side, study.maps.subarray(mapAt(board, bit, state)));
    });
  }

  function paint(canvas, side, levels) {
    const context = sized(canvas, side, side);
    const colours = lookup(false, false);
    const [r, g, b] = parse(view.colour("--av-hatch-ground"));
    const ground = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    const pixels = Uint32Array.from({ length: n * n }, (_, at) => (levels[at] === MASKED ? ground : colours[Math.min(255, levels[at] + 1)]));
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(pixels, n, n), 0, 0, side, side);
    const cell = side / n;
    for (let i = 0; i < n; i += 1) {
      let from = null;
      for (let j = 0; j <= n; j += 1) {
        const off = j < n && levels[i * n + j] === MASKED;
        if (off && from === null) from = j;
        if (!off && from !== null) {
          hatched(context, from * cell, i * cell, (j - from) * cell, cell, view.colour("--av-hatch"));
          from = null;
        }
      }
    }
    if (study.at === null) return;
    // The query that predicts the token is the one before it.
    context.strokeStyle = view.colour("--av-series-1");
    context.lineWidth = 2;
    context.strokeRect(1, (study.at - 1) * cell - 1, side - 2, cell + 2);
  }

  return { node, draw };
}
