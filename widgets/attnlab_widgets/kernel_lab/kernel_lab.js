// KernelLab: how well a feature map approximates the softmax. The page draws the rows and computes the maps.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import legendStyle from "#parts/legend.css";
import style from "./kernel_lab.css";
import { el } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { besidePanel } from "./beside.js";
import { controls } from "./controls.js";
import { curvePanel } from "./curve.js";
import { mapsPanel } from "./maps.js";
import { Study, TRAITS } from "./study.js";
import { tablesPanel } from "./tables.js";

const QUIET = 700; // milliseconds without a change after which the state is read out

function render({ model, el: host }) {
  const study = new Study(model);
  const view = viewOf("attnlab-kernels", "Feature maps beside the softmax", "kernel-lab");
  const { root } = view;
  const spoken = el("div", { class: "av-live", "aria-live": "polite", testid: "live" });
  view.speak = (words) => (spoken.textContent = words);
  const bar = controls(study);
  const summary = el("p", { class: "av-summary kl-summary", testid: "summary" });
  const [maps, curve, beside, tables] = [mapsPanel(study, view), curvePanel(study, view), besidePanel(study, view), tablesPanel(study, view)];
  root.append(
    el("style", { text: base + barStyle + legendStyle + style }),
    el("header", { class: "av-top" }, bar.node, summary),
    maps.node,
    el("div", { class: "kl-below" }, curve.node, beside.node),
    beside.line,
    tables.node, spoken,
  );
  host.replaceChildren(root);

  let reading = null;
  let last = null;
  function readOut() {
    if (study.sentence === last) return;
    const first = last === null;
    last = study.sentence;
    clearTimeout(reading);
    if (!first) reading = setTimeout(() => view.speak(last), QUIET);
  }

  function draw() {
    study.read();
    const room = root.clientWidth - 32;
    const { wide } = root.dataset;
    bar.draw(beside.draw());
    summary.textContent = study.sentence;
    maps.draw(room, wide === "one" ? 2 : 3);
    curve.draw(wide === "one" ? room : Math.floor(room * 0.48) - 12, wide === "one" ? 210 : 178);
    tables.draw();
    readOut();
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["wide", { wide: 860, two: 600, one: 0 }] });
  return () => {
    stop();
    curve.stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
