// WhoIsChosen: which keys hashing, clustering and sorting choose, beside the heaviest ones.
import base from "#parts/base.css";
import barStyle from "#parts/bar.css";
import boardStyle from "#parts/board.css";
import stripStyle from "#parts/token_strip.css";
import style from "./who_is_chosen.css";
import { bar } from "#parts/bar.js";
import { chartPanel } from "./chart.js";
import { mapsPanel } from "./maps.js";
import { planePanel } from "./plane.js";
import { stripPanel } from "./strip.js";
import { Study } from "./study.js";
import { choice, el, hatchKey, slider, toggle } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";

const TRAITS = ["causal", "top", "buckets", "rounds", "turn", "clusters", "block", "query", "moved", "order"];
const HELP = `The four maps show the weights of full attention on the same queries (rows) and keys (columns). Pairs that a mechanism chose have the colours of the scale, from dark (a weight near 0) to yellow (1), by the square root of the weight. A pair that it lost, though it is among the k heaviest of its query, is orange; the others that it left out are blank, and hatched pairs may not attend.

"Found" is the share of the weight of each query's k heaviest keys that the choice includes, on the mean over the queries. "Pairs" is the number of scores that are computed for it. Exact top-k finds everything but has to compute all scores to know which are the heaviest.

Hashing: a random matrix R sends each vector to a bucket, arg max [xR; −xR]; pairs in one bucket are chosen, in any of several rounds. Turning R moves the borders of the buckets. Clustering: spherical k-means; each cluster takes the n/clusters nearest queries and keys. Sorting: each block of queries attends to itself and to one other block, which Sinkhorn's normalisation matches with it. The scores of blocks are mean q·k here, where the mechanism learns a network.

The curves show the same mechanism with 1 to 8 rounds, with other numbers of clusters and with other block lengths.`;

function render({ model, el: host }) {
  const study = new Study(model);
  const view = viewOf("attnlab-chosen", "Who is chosen", "who-is-chosen");
  const { root } = view;
  view.point = (pair) => {
    if (String(pair) === String(study.pointed)) return;
    study.pointed = pair;
    view.later(drawMaps);
  };
  const sliders = {
    rounds: slider("rounds", "rounds", { min: 1, max: study.matrices.length, step: 1 }, (rounds) => study.set({ rounds })),
    turn: slider("turn R", "turn", { min: 0, max: 360, step: 1 }, (turn) => study.set({ turn })),
    top: slider("k", "top", { min: 1, max: study.n, step: 1 }, (top) => study.set({ top })),
  };
  const options = {
    buckets: choice("buckets", "buckets", range(2, model.get("_most_buckets"), 2), (value) => study.set({ buckets: Number(value) })),
    clusters: choice("clusters", "clusters", study.clusterings.map((one) => [one, one]), (value) => study.set({ clusters: Number(value) })),
    block: choice("block", "block", study.blocks.map((one) => [one, one]), (value) => study.set({ block: Number(value) })),
    order: choice("order", "order", [["text", "as in the text"], ["groups", "by bucket, cluster, block"]], (order) => study.set({ order })),
  };
  const causal = toggle("causal", "causal", (value) => study.set({ causal: value }));
  const undo = el("button", { type: "button", class: "av-button", text: "Undo drags", "data-testid": "undo", onclick: () => study.set({ moved: {} }) });
  const controls = bar({
    frequent: [sliders.rounds.node, options.buckets.node, sliders.turn.node, options.clusters.node, options.block.node],
    more: [sliders.top.node, options.order.node, causal.node, undo], help: HELP,
  });
  const summary = el("p", { class: "av-summary wc-said", "aria-live": "polite", "data-testid": "summary" });
  const masked = el("span", {});
  const legend = el("div", { class: "wc-legends" }, el("span", { class: "wc-legend" }, el("i", { class: "wc-found" }), "chosen, weight 0 … 1"), el("span", { class: "wc-legend" }, el("i", { class: "wc-lost" }), "lost: among the k heaviest"), masked);
  const parts = { strip: stripPanel(study), plane: planePanel(study, legend), chart: chartPanel(study), maps: mapsPanel(study, view) };
  root.append(
    el("style", { text: base + barStyle + boardStyle + stripStyle + style }),
    el("header", { class: "av-top" }, controls.node, parts.strip.node, summary),
    el("div", { class: "wc-panels" }, parts.plane.node, parts.chart.node, parts.maps.node),
  );
  host.replaceChildren(root);

  /** The sides of a map and of the plane, and the size of the chart. */
  function sizes() {
    const wide = root.clientWidth - 26;
    const width = root.dataset.width;
    if (width === "narrow") return { map: Math.floor((wide - 42) / 4), columns: 4, plane: 220, chart: [wide - 372, 150] };
    if (width === "tiny") return { map: Math.floor((wide - 14) / 2), columns: 2, plane: Math.min(300, wide - 2), chart: [wide, 170] };
    if (width === "wide") return { map: 264, columns: 2, plane: 300, chart: [wide - 470 - 542 - 50, 300] };
    return { map: 252, columns: 2, plane: 252, chart: [wide - 518 - 26, 150] };
  }

  const drawMaps = () => parts.maps.draw(sizes().map);
  function draw() {
    study.read();
    const { state } = study;
    for (const [name, { input, output }] of Object.entries(sliders)) {
      input.value = state[name];
      output.textContent = name === "turn" ? `${state[name]}°` : state[name];
    }
    for (const [name, { select }] of Object.entries(options)) select.value = state[name];
    causal.box.checked = state.causal;
    undo.disabled = !Object.keys(state.moved).length;
    if (summary.textContent !== study.sentence) summary.textContent = study.sentence;
    masked.replaceChildren(...(study.allowed.includes(0) ? [hatchKey(view, "may not attend")] : []));
    const { map, columns, plane, chart } = sizes();
    root.style.setProperty("--side", `${map}px`);
    root.style.setProperty("--columns", columns);
    parts.strip.draw();
    parts.plane.draw(plane);
    parts.chart.draw(...chart);
    parts.maps.draw(map);
  }
  return live({ model, view, traits: TRAITS, draw, sizes: ["width", { wide: 1280, usual: 860, narrow: 600, tiny: 0 }] });
}

const range = (from, to, step) => Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, at) => [from + at * step, from + at * step]);

export default { render, page: (document) => mountPage({ render }, document) };
