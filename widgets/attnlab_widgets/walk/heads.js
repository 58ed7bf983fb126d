// All heads: a small map of each, and its switch.
import { painted } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { bitmap, el, sized } from "#parts/dom.js";

export function headsPanel(study, view) {
  const { network, steps } = study;
  const pairs = network.heads.flatMap((count, layer) => Array.from({ length: count }, (_, head) => [layer, head]));
  const cards = pairs.map(([layer, head]) => {
    const name = `${layer}.${head}`;
    const canvas = el("canvas", { "aria-hidden": "true" });
    const look = el("button", { type: "button", class: "wk-look", testid: `head-${name}`, title: `Look at the weights of head ${name}`, "aria-label": `Look at the weights of head ${name}`,
      onclick: () => study.set({ step: steps.findIndex(({ key }) => key === `${layer}.weight`), head }) }, canvas);
    const said = el("span", { class: "av-quiet" });
    const flip = el("button", { type: "button", role: "switch", class: "wk-switch", testid: `switch-${name}`, "aria-label": `head ${name}`, onclick: () => study.flip(layer, head) },
      el("span", { text: name }), el("span", { class: "wk-pill", "aria-hidden": "true" }, el("span", { class: "wk-knob" })), said);
    return { layer, head, canvas, said, flip, node: el("div", { class: "wk-card" }, look, flip) };
  });
  const node = el("section", { class: "av-panel wk-heads", "aria-label": "The heads" }, el("h3", { text: "The heads: weights, and a switch for each" }), el("div", { class: "wk-cards" }, ...cards.map((card) => card.node)));
  let drawn = null; // for which run, width and theme
  const across = Math.min(4, cards.length);
  node.style.setProperty("--across", across);

  function draw(room) {
    const side = Math.floor(Math.min(104, (room - 6 - 10 * (across - 1)) / across));
    const fresh = drawn === null || drawn.run !== study.run || drawn.side !== side || drawn.dark !== view.dark;
    drawn = { run: study.run, side, dark: view.dark };
    for (const { layer, head, canvas, said, flip, node: card } of cards) {
      const silent = study.isSilent(layer, head);
      flip.setAttribute("aria-checked", String(!silent));
      said.textContent = silent ? "silent" : "on";
      card.classList.toggle("wk-silent", silent);
      card.classList.toggle("wk-now", layer === study.layer && head === study.head && study.step.kind !== "vectors");
      if (fresh) paint(canvas, side, layer, head);
    }
  }

  function paint(canvas, side, layer, head) {
    const { n } = study;
    const { values } = study.mapOf({ key: `${layer}.weight`, kind: "weights" }, head);
    const context = sized(canvas, side, side);
    context.fillStyle = view.colour("--av-hatch-ground");
    context.fillRect(0, 0, side, side);
    hatched(context, 0, 0, side, side, view.colour("--av-hatch-faint"));
    const mask = Uint8Array.from({ length: n * n }, (_, at) => Number(at % n > Math.floor(at / n)));
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(painted(values, 1, false, view.dark, mask), n, n), 0, 0, side, side);
  }

  return { node, draw };
}
