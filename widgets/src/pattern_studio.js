// PatternStudio: who may see whom, composed, written or painted; and what follows from it.
// Everything that is drawn follows from the model's traits and from what does not yet fit together.
import base from "./attention_view.css";
import barStyle from "./parts/bar.css";
import style from "./pattern_studio.css";
import { percent, receptiveFieldText } from "./lib/mask.js";
import { bar } from "./parts/bar.js";
import { el } from "./parts/dom.js";
import { frames, whereThereIsRoom } from "./parts/frames.js";
import { mountPage } from "./parts/page.js";
import { maskPanel } from "./parts/studio/canvas.js";
import { composePanel } from "./parts/studio/compose.js";
import { costPanel, receptiveFieldPanel } from "./parts/studio/cost.js";
import { Study } from "./parts/studio/study.js";
import { tablesPanel } from "./parts/studio/tables.js";
import { pageIsDark, watchPage } from "./parts/theme.js";

const TRAITS = ["expression", "n", "painted", "row", "layer", "residual", "block", "head_dim", "scores"];

const HELP = `Each row of the mask is a query, each column a key; a filled cell may be seen. Compose the pattern from parts, write it, or paint cells: click or drag; arrow keys move, Space allows or forbids, Shift and arrows paint.

Under the mask stand the weights of one row: the softmax of the example scores over the keys that it sees. Click the number of a row, or move the slider, to see another.

Receptive field: filled where an input (across) can influence an output (down) after so many layers. Dark and full size is new with this layer, light and small was known before.

Blocks: a block-sparse kernel computes the full and the mixed ones and skips the empty ones.`;

function render({ model, el: host }) {
  const study = new Study(model);
  // JupyterLab takes no key from under this attribute.
  const root = el("div", { class: "attnlab-view attnlab-studio", role: "group", "aria-label": "Pattern studio", "data-lm-suppress-shortcuts": "true", "data-testid": "pattern-studio" });
  // Notebook 7's shortcuts match whatever has the focus: it must carry the mark itself.
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  const live = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const colours = new Map();
  const view = {
    root,
    font: "11px system-ui, sans-serif",
    announce: (text) => (live.textContent = text),
    colour(name) {
      if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue(name).trim());
      return colours.get(name);
    },
    later: frames(),
    changed: () => view.later(drawAll),
  };

  const compose = composePanel(study, view);
  const mask = maskPanel(study, view);
  const cost = costPanel(study, view);
  const field = receptiveFieldPanel(study, view);
  const tables = tablesPanel(study);
  const parts = [compose, mask, cost, field, tables];
  const controls = bar({ frequent: [...compose.controls, ...mask.controls], more: [...mask.more, ...cost.more], help: HELP, label: "The pattern" });
  const summary = el("p", { class: "av-summary", "data-testid": "summary" });
  root.append(
    el("style", { text: base + barStyle + style }),
    el("header", { class: "av-top" }, controls.node, summary),
    el("div", { class: "av-panels ps-panels" }, compose.node, mask.node, el("div", { class: "ps-side" }, field.node, cost.node)),
    tables.node,
    live,
  );
  host.replaceChildren(root);
  root.addEventListener("keydown", (event) => event.stopPropagation());

  const drawAll = whereThereIsRoom(root, view.later, () => {
    summary.textContent = summed(study);
    parts.forEach((part) => part.draw());
    root.dataset.drawn = String(Number(root.dataset.drawn ?? 0) + 1);
  });

  function changed() {
    study.load();
    view.later(drawAll);
  }

  function theme() {
    const wanted = study.get("theme");
    const dark = wanted === "auto" ? pageIsDark() : wanted === "dark";
    root.dataset.theme = dark ? "dark" : "light";
    colours.clear();
    view.later(drawAll);
  }

  TRAITS.forEach((name) => model.on(`change:${name}`, changed));
  model.on("change:theme", theme);
  const stop = watchPage(theme);
  let wide = 0;
  const observer = new ResizeObserver(() => {
    if (root.clientWidth === wide) return;
    wide = root.clientWidth;
    root.dataset.studio = wide >= 1280 ? "four" : wide >= 860 ? "three" : wide >= 600 ? "two" : "one";
    view.later(drawAll);
  });
  observer.observe(root);
  theme();

  return () => {
    stop();
    observer.disconnect();
    TRAITS.forEach((name) => model.off(`change:${name}`, changed));
    model.off("change:theme", theme);
  };
}

function summed(study) {
  const { n, pairs } = study;
  const share = pairs / n ** 2;
  const positions = n === 1 ? "1 position" : `${n} positions`;
  return `${positions} · ${pairs.toLocaleString("en")} of ${(n * n).toLocaleString("en")} pairs (${percent(share)}) · ${percent(1 - share)} of the FLOPs saved · ${receptiveFieldText(study.receptiveField, n)}`;
}

export default { render, page: (document) => mountPage({ render }, document) };
