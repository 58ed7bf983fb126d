// QueryKeySpace: where the queries and keys of every head lie, one head large, its sentence beside it.
import base from "#parts/base.css";
import linesStyle from "#parts/lines.css";
import style from "./query_key_space.css";
import { el, plain, sized } from "#parts/dom.js";
import { mountPage } from "#parts/page.js";
import { aboutPanel } from "./about.js";
import { barPanel } from "./bar.js";
import { faithPanel } from "./faith.js";
import { filmPanel, motions } from "./film.js";
import { imagePanel } from "./image.js";
import { lassoPanel } from "./lasso.js";
import { legendPanel } from "./legend.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { matrixView } from "./matrix.js";
import { sentencePanel } from "./sentence.js";
import { singleView } from "./single.js";
import { stage as makeStage } from "./stage.js";
import { Study } from "./study.js";
import { tablesPanel } from "./tables.js";
import { typedPanel } from "./typed.js";

const TRAITS = ["layer", "head", "view", "shown", "colour", "modulo", "order", "search", "selected", "labels", "_placed"];
const MARKING = ["search", "selected", "layer", "head", "shown", "_placed"];
const REST = 160; // milliseconds after which a moved map is drawn whole
const SLOW = 34, FAST = 22; // milliseconds between frames: fewer or more points are drawn in one
const [LEAST, MOST] = [5_000, 2_000_000];
const AWAY = 4000; // milliseconds out of sight after which the context is given back

function render({ model, el: host }) {
  const study = new Study(model);
  const view = viewOf("attnlab-space", "Query-key space", "query-key-space");
  const { root, later } = view;
  const spoken = el("div", { class: "av-live", "aria-live": "polite", "data-testid": "live" });
  const motion = motions(study);
  let moved = performance.now(); // the first picture comes sooner with fewer points
  let frame = 0;
  let scene = null;
  let done = 1; // of the points of the scene
  let resting = null;
  Object.assign(view, {
    wide: 0, high: 0,
    font: "12px system-ui, sans-serif",
    small: "11px system-ui, sans-serif",
    announce: (text) => (spoken.textContent = text),
    hover: (act) => later(act),
    hovered: () => later(drawOverlay),
    moving: () => performance.now() - moved < REST || motion.moving(),
    most: 150_000, // points that are drawn in a frame; follows the speed of the page
    lasso: () => bar.lasso(),
    motion: (at) => motion.of(at),
    fresh: () => drawPart(0, true),
    focus: () => stage.node.focus({ preventScroll: true }),
    searched: (text) => study.set({ search: text, selected: [] }),
    /** The points of a head, and those of the typed sentence over them. */
    clouds(at, look) {
      const marks = study.marks(at);
      const flat = study.map.dimensions === 2;
      const all = { ...view.motion(at), ...look, colours: study.colours(at, view.dark), marks, order: study.order(marks.array.length), flat };
      const typed = study.typed(at);
      if (!typed) return [all];
      const own = 2 * typed.tokens.length;
      return [all, { ...look, from: typed.places, to: typed.places, share: 1, colours: study.sides(own, view.dark), marks: typed.marks, order: study.order(own), flat }];
    },
    drawn(members) {
      study.members = members;
      study.remark();
      view.changed();
    },
  });
  const acts = Object.fromEntries(["point", "drag", "click", "dropped"].map((name) => [name, (...args) => act(name, args)]));
  const stage = makeStage({ ...acts, wheel: (x, y, factor) => act("zoom", [factor, x, y]) });
  const single = singleView(study, view);
  const matrix = matrixView(study, view, single.place);
  const now = () => (study.get("view") === "one" ? single : matrix);
  stage.below.append(...matrix.below);
  stage.node.append(matrix.above, ...single.below);

  const title = el("h3", { "data-testid": "title" });
  const panels = [barPanel, aboutPanel, sentencePanel, imagePanel, lassoPanel, faithPanel, legendPanel, filmPanel, typedPanel, tablesPanel];
  const [bar, about, sentence, image, cluster, faith, legend, film, typed, tables] = panels.map((panel) => panel(study, view));
  const hint = el("p", { class: "av-quiet qk-hint" });
  const side = el("section", { class: "qk-side", "aria-label": "The chosen head and sequence" }, title, about.node, sentence.node, image.node, cluster.node);
  root.append(
    el("style", { text: base + linesStyle + style }),
    bar.node,
    el("div", { class: "qk-main" }, el("section", { class: "qk-map", "aria-label": "Map" }, stage.node, el("div", { class: "qk-foot" }, legend.node, bar.tools), hint), side),
    faith.node, el("div", { class: "qk-last" }, film.node, typed.node), tables.node,
    spoken,
  );
  host.replaceChildren(root);

  /** What mouse and fingers do; a map that moves is drawn with fewer points until it rests. */
  function act(name, args) {
    now()[name](...args);
    if (name === "point" || name === "click") return;
    if (name !== "dropped") moved = performance.now();
    later(drawStage);
  }

  /** As many points as are drawn thirty times a second. */
  function pace() {
    const took = performance.now() - frame;
    frame += took;
    if (took > 500) return;
    if (took > SLOW) view.most = Math.max(LEAST, view.most * 0.7);
    else if (took < FAST) view.most = Math.min(MOST, view.most * 1.1);
  }

  function rest() {
    clearTimeout(resting);
    resting = setTimeout(() => later(drawStage), REST + 10);
  }

  const turns = { ",": -1, ".": 1, s: 0 };
  stage.node.addEventListener("keydown", (event) => {
    if (event.target !== stage.node || !plain(event)) return;
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key in steps && study.get("view") === "one") neighbour(...steps[event.key]);
    else if (event.key in turns && study.get("view") === "one") view.announce(single.next(turns[event.key]));
    else if (event.key === "Escape") back();
    else if (event.key === "+" || event.key === "=") act("zoom", [1.4]);
    else if (event.key === "-") act("zoom", [1 / 1.4]);
    else if (event.key === "0") act("reset", []);
    else if (event.key === "Enter" && study.get("view") === "all") study.set({ view: "one" });
    else return;
    event.preventDefault();
  });

  /** From a chosen token or cluster to the whole head, and from there to all heads. */
  function back() {
    if (study.selected) study.select();
    else if (study.members) view.drawn(null);
    else study.set({ view: "all" });
  }

  /** The head beside the chosen one: in its layer, or of the next layer. */
  function neighbour(down, right) {
    const [layer, head] = study.head.is;
    const at = study.heads.findIndex(({ is }) => is[0] === layer + down && is[1] === head + right);
    if (at < 0) return view.announce("there is no head on this side");
    study.choose(at);
    return view.announce(`layer ${layer + down}, head ${head + right}`);
  }

  /**
   * The points, as many at once as are drawn thirty times a second; where the map rests, the others
   * come over them in the next frames.
   */
  function drawStage() {
    if (!root.isConnected || !stage.node.clientWidth) return;
    [view.wide, view.high] = [stage.node.clientWidth, stage.node.clientHeight];
    if (view.moving()) pace();
    scene = { wide: view.wide, high: view.high, dim: 0.13, clouds: now().clouds() };
    drawPart(0);
    drawOverlay();
    if (motion.moving()) later(drawStage);
    else if (view.moving()) rest();
  }

  function drawPart(from, all = false) {
    const total = scene.clouds.reduce((sum, { order }) => sum + order.length, 0);
    done = all ? 1 : Math.min(1, from + view.most / Math.max(1, total));
    stage.ready().draw({ ...scene, part: [from, done] });
    root.dataset.whole = String(done === 1);
    if (done < 1 && !view.moving()) later(drawMore);
  }

  function drawMore() {
    if (done === 1 || view.moving() || !root.isConnected) return;
    pace();
    drawPart(done);
  }

  function drawOverlay() {
    if (!view.wide) return;
    const pen = sized(stage.above, view.wide, view.high);
    now().overlay(pen);
  }

  function draw() {
    const one = study.get("view") === "one";
    stage.below.hidden = matrix.above.hidden = one;
    if (!one) single.leave();
    const [layer, head] = study.head.is;
    title.textContent = `Layer ${layer} · head ${head}${study.kind(study.chosen) ? ` · ${study.kind(study.chosen)}` : ""}`;
    stage.node.setAttribute("aria-label", one ? `Map of layer ${layer}, head ${head}: arrow keys go to the neighbouring head, comma and full stop to the token before and after, s from query to key, plus and minus zoom, escape goes back` : "Maps of all heads");
    hint.textContent = one
      ? "Click a point for its sequence · drag to move, wheel to zoom · arrow keys go to the next head"
      : "Click a head to open it · drag to move, wheel to zoom";
    const beside = study.members ? cluster : !one ? about : study.selected ? chosen() : study.typed() ? sentence : about;
    for (const part of [about, sentence, image, cluster]) part.node.hidden = part !== beside;
    [bar, legend, faith, film, typed, tables, beside].forEach((part) => part.draw());
    drawStage();
  }
  const chosen = () => (["query", "key"].some((one) => study.setOf(one).images) ? image : sentence);
  study.changed = () => view.changed();

  const followed = (name) => () => {
    if (MARKING.includes(name)) study.remark();
    motion.changed();
    view.changed();
  };
  const loaded = () => {
    study.load();
    view.changed();
  };
  const on = { "change:_space": loaded, ...Object.fromEntries(TRAITS.map((name) => [`change:${name}`, followed(name)])) };
  const stop = live({ model, view, traits: [], draw, on, sizes: ["space", { two: 860, one: 0 }] });
  let away = null;
  const sight = new IntersectionObserver(([{ isIntersecting }]) => {
    clearTimeout(away);
    if (isIntersecting) later(drawStage);
    else away = setTimeout(stage.free, AWAY);
  });
  sight.observe(root);

  return () => {
    stop();
    sight.disconnect();
    clearTimeout(away);
    film.stop();
    typed.stop();
    stage.free();
  };
}

export default { render, page: (document) => mountPage({ render }, document) };
