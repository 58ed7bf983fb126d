// An opened tile: the map with its tokens, the equation, what it costs, the code and where to read on.
import { el, sized } from "#parts/dom.js";
import { equation } from "./mathml.js";
import { headed } from "#parts/table.js";
import { bytes, flops, grouped, lengthSaid, pairsOf, percent, scaleSaid, strongestKeys, three } from "#lib/wall.js";
import { costChart } from "./chart.js";
import { aboutPage, pagePicture } from "./around.js";
import { paintMap } from "./paint.js";

const MOST = 78; // pixels for the tokens beside the map

export function detailPanel(store, view) {
  const canvas = el("canvas", { class: "wl-large", "data-testid": "large" });
  const over = el("canvas", { class: "wl-large wl-over", "aria-hidden": "true" });
  const stage = el("div", { class: "wl-large-frame" }, canvas, over);
  const figureOf = el("div", { hidden: true });
  const title = el("h3", { tabindex: -1, "data-testid": "opened-title" });
  const text = el("div", { class: "wl-text", tabindex: 0, role: "region", "aria-label": "About the mechanism" });
  const button = (label, sign, act) => el("button", { type: "button", class: "av-button", "aria-label": label, title: label, text: sign, onclick: act });
  const node = el(
    "section",
    { class: "wl-detail", role: "dialog", "aria-label": "One mechanism", "data-testid": "detail", hidden: true },
    el("div", { class: "wl-detail-top" }, title, el("span", { class: "wl-detail-ends" }, button("The one before", "‹", () => step(-1)), button("The next one", "›", () => step(1)), button("Close", "×", () => view.open("")))),
    el("div", { class: "wl-detail-body" }, el("div", { class: "wl-detail-map" }, stage, figureOf), text),
  );
  let place = null;
  let told = "";

  function step(by) {
    const shown = store.mechanisms ? store.shown : store.around;
    const at = shown.findIndex(({ name }) => name === store.get("opened"));
    if (shown.length) view.open(shown[(at + by + shown.length) % shown.length].name);
  }

  node.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    view.open("");
  });

  over.addEventListener("pointermove", (event) => {
    const map = store.map(store.get("opened"));
    if (!map || !place) return;
    const box = over.getBoundingClientRect();
    const i = Math.floor(((event.clientY - box.top - place.y) / place.high) * map.n);
    const j = Math.floor(((event.clientX - box.left - place.x) / place.wide) * map.m);
    view.hover(i >= 0 && i < map.n && j >= 0 && j < map.m ? { i, j, name: store.get("opened") } : null);
  });
  over.addEventListener("pointerleave", () => view.hover(null));

  const cardOf = (name) => (store.mechanisms ? store.wall.tiles : store.around).find((one) => one.name === name);

  function draw() {
    const card = cardOf(store.get("opened"));
    const was = node.hidden;
    node.hidden = !card;
    stage.hidden = !card;
    if (!card) {
      told = "";
      return;
    }
    title.textContent = `${card.title}, ${card.year}`;
    node.setAttribute("aria-label", card.title);
    figureOf.hidden = store.mechanisms;
    stage.hidden = !store.mechanisms;
    if (!store.mechanisms) {
      if (card.name !== told) {
        figureOf.replaceChildren(pagePicture(card));
        text.replaceChildren(...aboutPage(card, where(card)));
      }
      told = card.name;
      if (was) title.focus({ preventScroll: true });
      return;
    }
    const state = [card.name, store.get("length"), store.get("weights"), store.get("causal"), store.get("head"), Boolean(store.tile(card.name))].join();
    if (state !== told) write(card);
    told = state;
    if (was) title.focus({ preventScroll: true });
    paint(card);
    hover();
  }

  function paint(card) {
    const map = store.map(card.name);
    const wide = Math.max(200, Math.min(stage.parentElement.clientWidth, stage.parentElement.clientHeight));
    const context = sized(canvas, wide, wide);
    sized(over, wide, wide);
    if (!map) return;
    const { names } = store;
    const rows = wide - MOST;
    const every = Math.ceil(10 / (rows / map.n));
    context.font = `${Math.max(9, Math.min(12, (rows / map.n) * every))}px system-ui, "DejaVu Sans", sans-serif`;
    const room = Math.min(MOST, 8 + Math.max(...names.slice(0, map.n).map((name) => context.measureText(name).width)));
    place = { x: room, y: room, wide: wide - room - 2, high: wide - room - 2 };
    paintMap(context, map, place.x, place.y, place.wide, place.high, view);
    const cell = place.high / map.n;
    context.fillStyle = view.colour("--av-quiet");
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (let i = 0; i < map.n; i += every) context.fillText(names[i], place.x - 5, place.y + (i + 0.5) * cell, room - 8);
    const across = place.wide / map.m;
    context.textAlign = "left";
    for (let j = 0; j < map.n; j += every) {
      context.save();
      context.translate(place.x + (j + 0.5) * across, place.y - 5);
      context.rotate(-Math.PI / 2);
      context.fillText(names[j], 0, 0, room - 8);
      context.restore();
    }
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `The map of ${card.title}: ${map.n} queries down, ${map.m} keys across.`);
  }

  function hover() {
    const map = node.hidden || !store.mechanisms ? null : store.map(store.get("opened"));
    if (!map || !place) return;
    const context = sized(over, over.clientWidth, over.clientHeight);
    const at = store.hover;
    if (!at || at.i >= map.n || at.j >= map.m) return;
    const [cell, across] = [place.high / map.n, place.wide / map.m];
    context.strokeStyle = view.colour("--wl-mark");
    context.lineWidth = 1.5;
    context.strokeRect(place.x, place.y + at.i * cell, place.wide, cell);
    context.strokeRect(place.x + at.j * across, place.y, across, place.high);
  }

  function write(card) {
    const tile = store.tile(card.name);
    const map = store.map(card.name);
    const at = store.at;
    const full = store.wall.tiles.find(({ name }) => name === "full");
    const lines = (what) => {
      const other = full && full.name !== card.name ? [{ name: "full", values: full[what], look: "other" }] : [];
      const usual = card.options ? [{ name: "usual size", values: card[`${what}_usual`], look: "usual" }] : [];
      return [...other, ...usual, { name: card.options ? "as drawn" : "this one", values: card[what], look: "own" }];
    };
    const lengths = store.wall.lengths;
    const memory = lines("memory").map((one) => ({ ...one, values: one.values.map((value) => 4 * value) }));
    text.replaceChildren(
      el("p", { class: "wl-lead", text: card.gives_up }),
      facts(card, tile, map, at),
      ...(card.equation ? [el("div", { class: "wl-equation", tabindex: 0, role: "region", "aria-label": "Equation", "data-testid": "equation" }, Array.isArray(card.equation) ? equation(card.equation) : card.equation)] : []),
      el("div", { class: "wl-charts" }, figure("FLOPs", costChart(lengths, lines("time"), at, "FLOPs")), figure("Largest tensor, bytes", costChart(lengths, memory, at, "Bytes"))),
      el("p", { class: "av-quiet", text: `FLOPs of the mixing and elements of the largest tensor (in float32) as the mechanism's card states them for its form ${card.form}, one sequence, ${store.wall.heads} heads, width ${store.wall.dim}; projections are not counted.` }),
      el("h4", { text: "The code of naive" }),
      el("pre", { class: "wl-code", tabindex: 0, "data-testid": "code", text: card.code }),
      where(card),
      table(card, map),
    );
  }

  const figure = (name, chart) => el("figure", {}, el("figcaption", { text: name }), chart);

  function facts(card, tile, map, at) {
    const drawn = store.get("weights") === "random" || card.all_drawn ? "all parameters" : card.drawn.map((name) => name.replace(/\.weight$/, "")).join(", ") || "none";
    const full = store.wall.tiles.find(({ name }) => name === "full");
    const share = full && full !== card ? `, ${percent(card.time[at] / full.time[at])} of full attention's FLOPs` : "";
    const rows = [
      ["family", card.family],
      ["direction", { never: `both sides only: ${card.because}`, optional: "both sides, or the past alone", always: `the past alone: ${card.because}` }[card.causal]],
      ["drawn with", card.options || "its usual options"],
      ["untrained", drawn],
      [`at ${lengthSaid(store.get("length"), store.n)}`, `${flops(card.time[at])} (time ${card.time_order}), ${bytes(card.memory[at])} (memory ${card.memory_order})${share}`],
      ...(card.structure ? [["is told", card.structure]] : []),
      ["the map", tile?.why ?? tile?.how ?? "is being computed"],
      ...(map && scaleSaid(map) ? [["colours", `${scaleSaid(map)}, the largest weight of this map`]] : []),
      ...(map ? [["pairs that meet", `${grouped(pairsOf(map))} of ${grouped(map.n * map.m)} (${store.headSaid(card.name)})`]] : []),
    ];
    return el("dl", { class: "wl-list" }, ...rows.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
  }

  function where(card) {
    const paper = card.url ? el("a", { href: card.url, target: "_blank", rel: "noopener", text: card.paper }) : el("span", { text: card.paper });
    const lessons = card.lessons.map(({ path, question }) => el("li", {}, "Lesson: ", el("a", { href: path, text: question })));
    return el("ul", { class: "wl-links", "data-testid": "links" }, el("li", {}, "Paper: ", paper), ...lessons, el("li", {}, "Page: ", card.address ? el("a", { href: card.address, text: card.title }) : el("code", { text: card.page })));
  }

  function table(card, map) {
    if (!map) return el("span");
    const { names } = store;
    const rows = strongestKeys(map).map(([i, j, w]) => [i, names[i], j, names[j] ?? `summary ${j - map.n + 1}`, three(w)]);
    return el("details", { class: "av-as-tables" }, el("summary", { text: "As a table" }), headed(`${card.title}: where each token looks most`, ["query", "token", "strongest key", "token", "weight"], rows, "wall-table"));
  }

  return { node, draw, hover };
}
