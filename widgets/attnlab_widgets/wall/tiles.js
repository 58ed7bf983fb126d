// The tiles: a map, what it is and what it costs; one pair is marked in all of them.
import { el, plain } from "#parts/dom.js";
import { untrained } from "#parts/legend.js";
import { moved } from "#lib/keys.js";
import { bytes, flops, scaleSaid, shortTitle } from "#lib/wall.js";
import { paintTile } from "./paint.js";

export function tilesPanel(store, view) {
  const list = el("ul", { class: "wl-tiles", "aria-label": "Mechanisms. Arrow keys move, Enter opens.", "data-testid": "tiles" });
  const empty = el("p", { class: "av-quiet", hidden: true, text: "No mechanism passes both filters." });
  const node = el("div", { class: "wl-frame" }, list, empty);
  const made = new Map();
  let shown = [];
  let focus = "";

  function make(card) {
    const canvas = el("canvas", { class: "wl-canvas", "aria-hidden": "true" });
    const row = el("span", { class: "wl-mark wl-row" });
    const column = el("span", { class: "wl-mark wl-column" });
    const map = el("span", { class: "wl-map", "data-testid": "map" }, canvas, row, column);
    const facts = el("span", { class: "wl-facts" });
    const button = el(
      "button",
      { type: "button", class: "wl-tile", tabindex: -1, "data-name": card.name, "data-testid": "tile", onclick: () => view.open(card.name) },
      el("span", { class: "wl-title", text: shortTitle(card.title), title: card.title }),
      el("span", { class: "wl-body" }, map, facts),
      el("span", { class: "wl-gives", text: card.gives_up }),
    );
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      const shape = store.map(card.name);
      if (!shape) return;
      const i = Math.floor(((event.clientY - box.top) / box.height) * shape.n);
      const j = Math.floor(((event.clientX - box.left) / box.width) * shape.m);
      const inside = i >= 0 && i < shape.n && j >= 0 && j < shape.m;
      view.hover(inside ? { i, j, name: card.name } : null);
    });
    map.addEventListener("pointerleave", () => view.hover(null));
    button.addEventListener("focus", () => {
      focus = card.name;
      roving();
    });
    return { card, item: el("li", {}, button), button, canvas, map, facts };
  }

  function roving() {
    if (!shown.some(({ name }) => name === focus)) focus = shown[0]?.name ?? "";
    for (const [name, { button }] of made) button.tabIndex = name === focus ? 0 : -1;
  }

  list.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    const at = shown.findIndex(({ name }) => name === focus);
    const columns = getComputedStyle(list).gridTemplateColumns.split(" ").length;
    const next = moved(at, shown.length, event.key, columns);
    if (next === null) return;
    event.preventDefault();
    made.get(shown[next].name).button.focus();
  });

  function draw() {
    shown = store.shown;
    for (const card of shown) if (!made.has(card.name)) made.set(card.name, make(card));
    const items = shown.map(({ name }) => made.get(name).item);
    if (items.some((item, at) => list.children[at] !== item) || list.children.length !== items.length) list.replaceChildren(...items);
    empty.hidden = shown.length > 0;
    roving();
    const side = shown.length ? Math.round(made.get(shown[0].name).map.clientWidth) : 0;
    for (const card of shown) drawTile(made.get(card.name), side);
  }

  function drawTile({ card, button, canvas, map, facts }, side) {
    const tile = store.tile(card.name);
    const shape = store.map(card.name);
    map.dataset.state = tile?.why ? "none" : shape ? "drawn" : "waiting";
    map.title = tile?.why ?? "";
    if (shape) {
      map.style.setProperty("--n", shape.n);
      map.style.setProperty("--m", shape.m);
      paintTile(canvas, shape, side, view);
    }
    const [time, memory] = [flops(card.time[store.at]), bytes(card.memory[store.at])];
    const lines = [card.year, time.replace("FLOPs", ""), `FLOPs ${card.time_order}`, memory, `memory ${card.memory_order}`];
    const random = store.get("weights") === "random" || card.all_drawn;
    const scale = shape ? scaleSaid(shape) : "";
    facts.replaceChildren(...lines.map((text, at) => el("span", { class: at % 2 ? "wl-number" : "wl-order", text })));
    if (scale) facts.append(el("span", { class: "wl-order wl-scale", title: "Colours go to the largest weight of this map, which the legend's scale does not hold", text: `colours ${scale}` }));
    if (random || card.drawn.length) facts.append(untrained(!random, random ? "Nobody trained these weights: they were drawn at random" : `Nobody trained these, they were drawn at random: ${card.drawn.join(", ")}`));
    const said = `${card.title}, ${card.year}, ${card.family}. ${time}, largest tensor ${memory}. ${card.gives_up} Parameters: ${random ? "untrained" : card.drawn.length ? "borrowed, in part untrained" : "borrowed"}.`;
    button.setAttribute("aria-label", said);
  }

  /** One change of a custom property moves the marks of all tiles. */
  function hover() {
    const at = store.hover;
    list.dataset.hover = at ? "yes" : "";
    if (!at) return;
    list.style.setProperty("--i", at.i);
    list.style.setProperty("--j", at.j);
  }

  return { node, draw, hover, focus: (name) => made.get(name)?.button.focus() };
}
