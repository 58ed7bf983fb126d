// HeadSwitchboard: heads as switches; what the model then predicts, lamp by lamp.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./head_switchboard.css";
import { bar } from "#parts/bar.js";
import { el, toggle } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { cardsPanel } from "./cards.js";
import { settingsPanel } from "./settings.js";
import { stripPanel } from "./strip.js";
import { Study } from "./study.js";
import { writersPanel } from "./writers.js";

const TRAITS = ["silent", "settings"];
const HELP = `Each head of each layer is a switch under its attention map (rows are queries, columns keys; hatched pairs may not be attended to). A silent head attends as before, but its output is replaced by zeros. Maps of higher layers change with the switches below them.

The number beside a switch is the importance of the head (Michel, Levy and Neubig 2019): the absolute value of the gradient of the loss, in nats per token of this text, at a gate that scales the head's output, with all heads on. It is what a small change of the gate costs; the switch shows what silencing costs.

A bar above the letters is what one part of the model adds by itself to the logit of the letter that is pointed at: its direct effect. The stream is a sum, and the last norm is linear once its scale is kept as it was in this run, so the bars sum to the logit exactly. Each is counted above the mean of all logits, as what raises all of them alike changes no probability. A head that another head reads has no bar of its own for that: silence it, and see whose bars shrink.

The model reads the text from left to right and predicts each next one. A lit lamp is predicted correctly; a dark one was, and is wrong with these heads silent: below stands what the model says instead. A pale one is wrong with all heads, too, often because nothing before it could tell. The sentence above counts those apart that repeat: they come after the same one as before, so that they can be copied.`;

function render({ model, el: host }) {
  const study = new Study(model);
  const { board } = study;
  const view = viewOf("attnlab-switches", "Head switchboard", "head-switchboard");
  const { root } = view;
  view.point = (at) => {
    study.at = at;
    view.changed();
  };
  const button = (text, testid, state) => el("button", { type: "button", class: "av-button", text, "data-testid": testid, onclick: () => study.choose(state) });
  const all = toggle("show all settings", "settings", (value) => study.set({ settings: value }));
  const tries = el("span", { class: "hs-try", "data-testid": "try" }, el("strong", { text: "Try: " }), `switch one head off, then two; point at a ${board.unit}.`);
  const controls = bar({ frequent: [button("All on", "all-on", 0), button("All silent", "all-silent", 2 ** board.heads.length - 1), all.node, tries], help: HELP });
  const summary = el("p", { class: "av-summary hs-summary", "aria-live": "polite", "data-testid": "summary" });
  const fill = el("div", { class: "hs-fill" });
  const share = el("div", { class: "hs-share", "aria-hidden": "true" }, fill);
  const [cards, strip, settings, writers] = [cardsPanel(study, view), stripPanel(study, view), settingsPanel(study, view), writersPanel(study)];
  root.append(
    el("style", { text: base + barStyle + style }),
    el("header", { class: "av-top" }, controls.node, el("div", {}, summary, share)),
    el("div", { class: "hs-panels" }, el("div", { class: "hs-top" }, cards.node, settings.node), writers.node, strip.node),
  );
  host.replaceChildren(root);

  /** Whether the chart of all settings stands beside the heads, not below them. */
  const beside = () => model.get("settings") && root.clientWidth >= 1200 && board.heads.length <= 4;

  /** The side of a map, so that the heads of all layers stand in one row where there is room. */
  function side() {
    const wide = root.clientWidth - 34;
    const count = board.heads.length;
    const layers = new Set(board.heads.map(([layer]) => layer)).size;
    const row = root.clientWidth < 620 ? wide / 2 - 16 : (wide - 40 * (layers - 1)) / count - 16;
    const most = count > 4 ? 132 : beside() || root.clientWidth < 1200 ? 184 : 236;
    return Math.floor(Math.max(count > 4 ? 112 : 84, Math.min(most, row)));
  }

  function draw() {
    all.box.checked = model.get("settings");
    settings.node.hidden = !model.get("settings");
    if (summary.textContent !== study.sentence) summary.textContent = study.sentence;
    const right = board.guesses[study.state].filter((guess, i) => guess === board.coming[i]).length;
    fill.style.width = `${(100 * right) / board.coming.length}%`;
    const wide = root.clientWidth - 34;
    root.dataset.beside = String(beside());
    cards.draw(side());
    writers.draw(wide);
    strip.draw(wide);
    if (model.get("settings")) settings.draw(beside() ? wide - cards.node.offsetWidth - 40 : wide, beside() ? 130 : 84);
  }
  const stop = live({ model, view, traits: TRAITS, draw });
  return () => {
    stop();
    writers.stop();
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
