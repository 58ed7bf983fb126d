// The graph: nodes to point at, choose and drag, and arrows from the node attended to, to the one that attends.
import { mixed } from "#lib/colours.js";
import { arrow, countReached, halfWay, inside, isArrow, movedBy, named, namesPlaced, neighbourTowards } from "./graph.js";
import { crowd } from "#lib/labelling.js";
import { el, sized } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { FEW } from "./study.js";

const [INSET, NEAR, STEP] = [20, 4, 0.03];
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const GROUPS = ["--av-series-2", "--av-series-3", "--av-series-5"];
const [MANY, MOST_ARROWS] = [400, 4000]; // of more arrows each is thinner; no more are drawn
const HINT = "Arrows lead to the node that attends. Point at a node to see whom it attends to, click to choose it, drag to move it.";

/** The colour of a group; those beyond the largest are grey. */
export const groupColour = (group) => GROUPS[group] ?? "--av-series-4";

export function stagePanel(study, view) {
  const { graph } = study;
  const canvas = el("canvas", { class: "gv-edges", "aria-hidden": "true" });
  const [dots, numbers, names] = [drawn("g", {}), drawn("g", { class: "gv-names", "aria-hidden": "true" }), drawn("g", { class: "gv-names", "aria-hidden": "true" })];
  const svg = drawn("svg", { class: "gv-board", role: "listbox", "aria-label": "The nodes of the graph. Arrow keys choose one, with Shift they move it, Escape chooses none.", "data-testid": "stage" }, dots, numbers, names);
  const readout = el("p", { class: "av-readout av-quiet", testid: "readout" });
  const legend = el("p", { class: "gv-legend av-quiet", testid: "legend" });
  const node = el("section", { class: "av-panel gv-stage" }, el("div", { class: "gv-layers" }, canvas, svg), legend, readout);
  let [wide, high, stop] = [0, 0, 0];
  const thinner = Math.max(0.25, Math.min(1, Math.sqrt(MANY / graph.targets.length)));
  const measure = canvas.getContext("2d");
  const nodes = graph.labels.map((label, at) => nodeOf(at));
  dots.append(...nodes);

  const radius = () => (graph.n <= FEW ? 7 : graph.n <= 120 ? 5.5 : 4);
  const spot = ([x, y]) => [INSET + x * (wide - 2 * INSET), INSET + y * (high - 2 * INSET)];

  function nodeOf(at) {
    const one = drawn("g", { class: "gv-node", role: "option", tabindex: -1, "aria-label": named(graph.labels, at), "data-testid": `node-${at}` }, drawn("circle", { class: "gv-dot" }), drawn("circle", { class: "gv-reach" }));
    let from = null;
    const place = ({ clientX, clientY }) => {
      const box = svg.getBoundingClientRect();
      return [inside((clientX - box.left - INSET) / (wide - 2 * INSET)), inside((clientY - box.top - INSET) / (high - 2 * INSET))];
    };
    one.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      one.setPointerCapture(event.pointerId);
      from = [event.clientX, event.clientY];
    });
    one.addEventListener("pointermove", (event) => {
      if (!from || (!study.moved && Math.hypot(event.clientX - from[0], event.clientY - from[1]) < NEAR)) return;
      study.moved = { node: at, place: place(event) };
      view.later(redraw);
    });
    one.addEventListener("pointerup", () => {
      if (study.moved) keep();
      else if (from) choose(at);
      from = null;
    });
    one.addEventListener("pointercancel", () => {
      [from, study.moved] = [null, null];
      view.later(redraw);
    });
    one.addEventListener("pointerenter", () => view.point(at));
    one.addEventListener("pointerleave", () => view.point(null));
    one.addEventListener("keydown", (event) => pressed(event, at));
    return one;
  }

  function keep() {
    const positions = study.places;
    study.moved = null;
    study.set({ positions });
  }

  function choose(at) {
    stop = at;
    study.set({ node: at });
  }

  function pressed(event, at) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const arrows = isArrow(event.key);
    if (!arrows && !["Escape", "Enter", " "].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") study.set({ node: null });
    else if (!arrows) choose(at);
    else if (event.shiftKey) {
      const positions = study.model.get("positions").map((place, one) => (one === at ? movedBy(place, event.key, STEP) : place));
      study.set({ positions });
    } else {
      const next = neighbourTowards(study.model.get("positions").map(spot), at, event.key);
      choose(next);
      nodes[next].focus();
    }
  }

  const loop = ([x, y]) => [x, y - radius() - 5]; // the middle of a ring
  const between = (at, places, width) => {
    const [i, j] = [graph.targets[at], graph.sources[at]];
    return arrow(places[j], places[i], radius(), width, graph.index.has(j * graph.n + i));
  };

  function line(context, at, places, { colour, alpha, share, thin = thinner }) {
    const [i, j] = [graph.targets[at], graph.sources[at]];
    const width = thin * (0.6 + 3.9 * share);
    Object.assign(context, { strokeStyle: colour, fillStyle: colour, globalAlpha: alpha, lineWidth: width });
    context.beginPath();
    if (i === j) {
      context.arc(...loop(places[i]), 6, 0, 2 * Math.PI);
      context.stroke();
      return;
    }
    const { from, middle, to, head } = between(at, places, width);
    context.moveTo(...from);
    context.quadraticCurveTo(...middle, ...to);
    context.stroke();
    context.beginPath();
    head.forEach((corner) => context.lineTo(...corner));
    context.fill();
  }

  /** Arrows that are only a backdrop: drawn all at once, which is quicker. */
  function faint(context, all, places) {
    Object.assign(context, { strokeStyle: view.colour("--av-ink"), globalAlpha: 0.16, lineWidth: 1.6 * thinner });
    context.beginPath();
    for (const at of all) {
      const { from, middle, to } = between(at, places, 1);
      context.moveTo(...from);
      context.quadraticCurveTo(...middle, ...to);
    }
    context.stroke();
  }

  /** The hops of the path lie on top, the present one the strongest. */
  function edges(places) {
    const context = sized(canvas, wide, high);
    const { marks } = study;
    attention(context, places, marks.length ? 0.35 : 1);
    for (const { at, now } of marks) line(context, at, places, { colour: view.colour("--av-series-1"), alpha: now ? 1 : 0.55, share: 1, thin: now ? 1.2 : 0.7 });
    context.globalAlpha = 1;
  }

  /** The weakest first; on top the arrows that carry the receptive field, then those to the node that is shown. */
  function attention(context, places, strength) {
    const { shown, hops, weights, largest, rising, state: { depth } } = study;
    const ink = (name) => view.colour(name);
    const share = (at) => Math.sqrt(weights[at] / largest);
    const carries = (at) => hops && hops[graph.targets[at]] >= 0 && hops[graph.targets[at]] < depth && hops[graph.sources[at]] === hops[graph.targets[at]] + 1;
    const seen = rising.slice(-MOST_ARROWS).filter((at) => weights[at] > 0);
    for (const at of seen) {
      if (shown === null) line(context, at, places, { colour: ink("--av-ink"), alpha: strength * (0.18 + 0.62 * share(at)), share: share(at) });
    }
    if (shown === null) return;
    faint(context, seen.filter((at) => !carries(at) && graph.targets[at] !== graph.sources[at] && graph.targets[at] !== shown), places);
    for (const at of seen) if (carries(at) && graph.targets[at] !== shown) line(context, at, places, { colour: ink("--av-series-0"), alpha: 0.55, share: share(at), thin: 0.6 * thinner });
    for (const at of rising.filter((one) => graph.targets[one] === shown && weights[one] > 0)) line(context, at, places, { colour: ink("--av-series-1"), alpha: 0.5 + 0.5 * share(at), share: share(at) });
  }

  /** The numbers of the hops that are shown, in the middle of their arrows; their places. */
  function numbered(places) {
    const spots = study.marks.map(({ at }) => {
      const [i, j] = [graph.targets[at], graph.sources[at]];
      if (i !== j) return halfWay(between(at, places, 4));
      const [x, y] = loop(places[i]);
      return [x, y - 6];
    });
    numbers.replaceChildren(...study.marks.map(({ text, now }, which) => drawn("g", { class: now ? "gv-hop gv-hop-now" : "gv-hop", transform: `translate(${spots[which].map((x) => x.toFixed(1)).join(" ")})`, "data-testid": "hop" }, drawn("circle", { r: Math.max(8, 4 + 3.3 * text.length) }), drawn("text", { y: 4, text }))));
    return spots;
  }

  function fillOf(at, hops) {
    if (at === study.shown) return view.colour("--av-series-1");
    if (!hops) return view.colour(groupColour(study.groups[at]));
    return hops[at] < 0 || hops[at] > study.state.depth ? null : hopColour(hops[at]);
  }

  function hopColour(hop) {
    const [r, g, b] = mixed([view.colour("--av-series-0"), view.colour("--av-paper")], Math.min(0.75, 0.25 * (hop - 1)));
    return `rgb(${r}, ${g}, ${b})`;
  }

  function redraw() {
    const places = study.places.map(spot);
    edges(places);
    const { hops, state, shown } = study;
    nodes.forEach((one, at) => {
      const fill = fillOf(at, hops);
      const [dot, reach] = one.children;
      one.setAttribute("transform", `translate(${places[at].map((x) => x.toFixed(1)).join(" ")})`);
      dot.setAttribute("r", radius() + (at === shown ? 1.5 : 0));
      reach.setAttribute("r", Math.max(radius() + 2, graph.n <= FEW ? 12 : 7));
      dot.style.fill = fill ?? view.colour("--av-paper");
      one.classList.toggle("gv-far", !fill);
      one.setAttribute("aria-selected", String(at === state.node));
      one.setAttribute("data-hop", hops ? hops[at] : "");
    });
    label(places, numbered(places));
    explain(hops);
  }

  function label(places, spots) {
    measure.font = FONT;
    const near = new Set(study.shown === null ? graph.path : [...graph.path, study.shown, ...study.attended(study.shown).map(({ node: one }) => one)]);
    const across = (at) => (at === study.shown ? 1.15 : 1.04) * measure.measureText(graph.labels[at]).width + 2;
    const wanted = study.wanted.map((at) => ({ node: at, x: places[at][0], y: places[at][1], w: across(at), strong: near.has(at) }));
    const found = namesPlaced(wanted, { wide, high, radius: radius(), crowded: crowd([...places, ...spots].flat(), wide, high) });
    names.replaceChildren(...found.map(({ node: at, left, y }) => drawn("text", { class: at === study.shown ? "gv-name gv-own" : "gv-name", x: left, y: y + 4, text: graph.labels[at] })));
  }

  function explain(hops) {
    const piece = (colour, text, hollow = false) => {
      const sample = el("i", { class: hollow ? "gv-hollow" : "" });
      if (!hollow) sample.style.background = colour;
      return el("span", {}, sample, el("bdi", { text }));
    };
    const path = study.marks.length ? [piece(view.colour("--av-series-1"), "the path")] : [];
    if (hops) {
      const { depth } = study.state;
      const at = (hop) => hops.filter((one) => one === hop).length;
      const pieces = [piece(view.colour("--av-series-1"), "the node")];
      for (let hop = 1; hop <= Math.min(depth, 4); hop += 1) {
        const count = hop === 4 ? countReached(hops, depth) - countReached(hops, 3) : at(hop);
        pieces.push(piece(hopColour(hop), `${hop === 4 && depth > 4 ? `4 to ${depth}` : hop} ${hop === 1 ? "layer" : "layers"}: ${count}`));
      }
      legend.replaceChildren(...pieces, piece("", `not reached: ${graph.n - countReached(hops, depth)}`, true), ...path);
      return;
    }
    const known = study.groupNames.slice(0, GROUPS.length).map((name, group) => piece(view.colour(groupColour(group)), name));
    if (study.groupNames.length > GROUPS.length) known.push(piece(view.colour("--av-series-4"), "others"));
    legend.replaceChildren(...known, ...path);
  }

  function say() {
    const { at, cell, state } = study;
    readout.textContent = cell || at === null || at === state.node ? HINT : study.said(at);
  }

  function draw(width, height) {
    [wide, high] = [width, height];
    for (const [name, value] of Object.entries({ viewBox: `0 0 ${wide} ${high}`, width: wide, height: high })) svg.setAttribute(name, value);
    if (study.state.node !== null) stop = study.state.node;
    nodes.forEach((one, at) => one.setAttribute("tabindex", at === stop ? 0 : -1));
    redraw();
    say();
  }

  function hover() {
    redraw();
    say();
  }

  return { node, draw, hover };
}
