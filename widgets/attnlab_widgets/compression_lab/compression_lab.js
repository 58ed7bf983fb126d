// CompressionLab: what is lost when a trained model is made smaller.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import style from "./compression_lab.css";
import { bar } from "#parts/bar.js";
import { choice, el, slider } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";
import { curvePanel } from "./curve.js";
import { histogramPanel } from "./histogram.js";
import { mapsPanel } from "./maps.js";
import { matrixPanel } from "./matrix.js";
import { NAMES, Study } from "./study.js";
import { tablesPanel } from "./tables.js";
import { share } from "./words.js";

const TRAITS = [...NAMES, "_scores", "_maps", "_mapped"];
const QUIET = 700; // milliseconds without a change after which the state is read out
const PER = { tensor: "a matrix", channel: "a row" };
const HELP = `Three ways to make a model smaller, together: keep only a share of its weights, give each weight that is kept fewer bits, or take a student, a smaller model that has learned from this one.

“all weights” keeps the largest weights of all matrices together, “each matrix” the same share of each. “hidden units” and “heads” go whole: units of the smallest norms, heads of the smallest importance for the answers. What is cut is zero.

Bits: a weight becomes one of 2 to the power of bits levels between the smallest and the largest weight of its matrix, or of its row. Zero is always a level.

Bytes: the numbers that are left with their bits, a bit for each weight where single weights are cut, and the scales. Biases, norms and positions keep four bytes each.

What is right was computed before, on all test images or passages; the band is the interval of 95 % over them, for this one model. Attention maps have one colour scale: the square root of the weight, from 0 to 1. The difference is after minus before, orange where more attention goes now, blue where less.`;

function render({ model, el: host }) {
  const study = new Study(model);
  const view = viewOf("attnlab-compression", "Compression lab", "compression-lab");
  const { root } = view;
  const { shares, bits, networks } = study.lab;
  const last = (list) => ({ min: 0, max: list.length - 1, step: 1 });
  const student = slider("model", "student", last(networks), (at) => study.set({ student: study.names[at] }));
  const kept = slider("kept", "kept", last(shares), (at) => study.set({ kept: shares[shares.length - 1 - at] }));
  const width = slider("bits", "bits", last(bits), (at) => study.set({ bits: bits[bits.length - 1 - at] }));
  const cut = choice("of", "cut", study.network.told.cuts.map((name) => [name, name]), (name) => study.set({ cut: name }));
  const per = choice("a scale for", "per", Object.entries(PER), (name) => study.set({ per: name }));
  student.node.hidden = networks.length < 2;
  const controls = bar({ frequent: [kept.node, cut.node, width.node, per.node, student.node], help: HELP });
  const summary = el("p", { class: "av-summary", "data-testid": "summary" });
  const seeds = el("p", { class: "av-quiet", "data-testid": "seeds" });
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const parts = { histogram: histogramPanel(study, view), curve: curvePanel(study, view), matrix: matrixPanel(study, view), maps: mapsPanel(study, view), tables: tablesPanel(study, view) };
  root.append(
    el("style", { text: base + barStyle + style }),
    el("header", { class: "av-top" }, controls.node, el("div", {}, summary, seeds)),
    el("div", { class: "cp-upper" }, parts.histogram.node, parts.matrix.node, parts.curve.node),
    parts.maps.node, parts.tables.node, spoken,
  );
  host.replaceChildren(root);

  let [reading, heard] = [null, ""];
  function readOut(said) {
    if (said === heard) return;
    heard = said;
    clearTimeout(reading);
    reading = setTimeout(() => (spoken.textContent = said), QUIET);
  }

  function put({ input, output }, at, text) {
    input.value = at;
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
  }

  function draw() {
    const began = performance.now();
    study.read();
    const { state, network: { told } } = study;
    put(student, study.names.indexOf(told.name), told.name);
    put(kept, shares.length - 1 - shares.indexOf(state.kept), share(state.kept).replace(".0 %", " %"));
    put(width, bits.length - 1 - bits.indexOf(state.bits), String(state.bits));
    if (cut.select.options.length !== told.cuts.length) cut.select.replaceChildren(...told.cuts.map((name) => el("option", { value: name, text: name })));
    cut.select.value = state.cut;
    per.select.value = state.per;
    per.select.disabled = state.bits === 32;
    if (summary.textContent !== study.sentence) summary.textContent = study.sentence;
    seeds.textContent = study.seeds;
    readOut(`${study.sentence} ${study.seeds}`);
    const wide = root.clientWidth - 34;
    for (const part of Object.values(parts)) part.draw(wide, root.dataset.wide);
    root.dataset.took = (performance.now() - began).toFixed(1);
  }
  const stop = live({ model, view, traits: TRAITS, draw, sizes: ["wide", { three: 860, two: 560, one: 0 }] });
  return () => {
    stop();
    clearTimeout(reading);
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
