// PatternStudio: who may attend to whom, composed, written or painted; and what follows from it.
// Everything that is drawn follows from the model's traits and from what does not yet fit together.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./pattern_studio.css";
import { percent, receptiveFieldText } from "./mask.js";
import { bar } from "#parts/bar.js";
import { el } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { maskPanel } from "./canvas.js";
import { composePanel } from "./compose.js";
import { costPanel, receptiveFieldPanel } from "./cost.js";
import { Study } from "./study.js";
import { tablesPanel } from "./tables.js";

const TRAITS = ["expression", "n", "painted", "row", "layer", "residual", "block", "head_dim", "scores"];

const HELP = `Each row of the mask is a query, each column a key; a filled one may be attended to. Compose the pattern from parts, write it, or paint cells: click or drag; arrow keys move, Space allows or forbids, Shift and arrows paint.

Under the mask stand the weights of one row: the softmax of the example scores over the keys that it attends to. Click the number of a row, or move the slider, to see another.

Receptive field: filled where an input (across) can influence an output (down) after so many layers. Dark and full size is new with this layer, light and small was known before.

Blocks: a block-sparse kernel computes the full and the mixed ones and skips the empty ones.`;

function render({ model, el: host }) {
  const study = new Study(model);
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const view = viewOf("attnlab-studio", "Pattern studio", "pattern-studio");
  const { root } = view;
  Object.assign(view, { font: "11px system-ui, sans-serif", announce: (text) => (spoken.textContent = text) });

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
    spoken,
  );
  host.replaceChildren(root);

  function draw() {
    summary.textContent = summed(study);
    parts.forEach((part) => part.draw());
  }

  const loaded = () => {
    study.load();
    view.changed();
  };
  const on = Object.fromEntries(TRAITS.map((name) => [`change:${name}`, loaded]));
  return live({ model, view, traits: [], draw, on, sizes: ["studio", { four: 1280, three: 860, two: 600, one: 0 }] });
}

function summed(study) {
  const { n, pairs } = study;
  const share = pairs / n ** 2;
  const positions = n === 1 ? "1 position" : `${n} positions`;
  return `${positions} · ${pairs.toLocaleString("en")} of ${(n * n).toLocaleString("en")} pairs (${percent(share)}) · ${percent(1 - share)} of the FLOPs saved · ${receptiveFieldText(study.receptiveField, n)}`;
}

export default { render, page: (document) => mountPage({ render }, document) };
