// All heads at once: a small map for each, in the order of layers or of a statistic.
import { el, plain } from "#parts/dom.js";
import { cellBox, gridOf, panned, still, turn, zoomed } from "./camera.js";
import { moved } from "#lib/keys.js";
import { weight } from "#lib/words.js";

const GUTTER = { left: 30, top: 20 };
const LABELLED = 74; // pixels from which on a cell has its label written inside
const OPENS = 0.75; // of the stage: a head that fills as much is opened

export function matrixView(study, view, place) {
  let camera = still();
  let cells = [];
  let made = "";
  let grid = null;
  let focus = 0;
  const list = el("div", { class: "qk-cells", role: "listbox", "aria-label": "Heads: arrow keys move, enter opens", "data-testid": "heads" });
  const heads = el("div", { class: "qk-heads", "aria-hidden": "true" });
  list.addEventListener("keydown", key);

  /** Heads in order, each with its row and column. */
  function arranged() {
    const order = study.get("order");
    const { kinds } = study;
    const all = study.heads.map((_, at) => at);
    if (order === "layer") {
      const [layers, numbers] = [0, 1].map((i) => [...new Set(study.heads.map(({ is }) => is[i]))].sort((a, b) => a - b));
      const places = all.map((at) => ({ at, row: layers.indexOf(study.heads[at].is[0]), column: numbers.indexOf(study.heads[at].is[1]) }));
      return { places, columns: numbers.length, layers, numbers };
    }
    const value = (at) => (order === "kind" ? -(kinds.indexOf(study.kind(at)) + 1 || Infinity) : study.statistic(order, at) ?? -Infinity);
    const sorted = [...all].sort((a, b) => value(b) - value(a) || a - b);
    const columns = Math.max(1, Math.round(Math.sqrt((all.length * view.wide) / view.high)));
    return { places: sorted.map((at, i) => ({ at, row: Math.floor(i / columns), column: i % columns })), columns };
  }

  function make() {
    const { places, columns, layers, numbers } = arranged();
    const key = JSON.stringify([places, study.space.kinds, study.get("order"), study.shown]);
    const rows = Math.max(...places.map(({ row }) => row)) + 1;
    grid = gridOf(rows * columns, columns, view.wide, view.high, layers ? GUTTER : { left: 4, top: 4 });
    if (key === made) return;
    made = key;
    cells = places.map((one, i) => ({ ...one, node: cell(one.at, i) }));
    focus = Math.max(0, cells.findIndex(({ at }) => at === study.chosen));
    list.replaceChildren(...cells.map(({ node }) => node));
    heads.replaceChildren(
      ...(layers ?? []).map((layer, row) => el("span", { class: "qk-layer-name", text: `L${layer}`, "data-row": row })),
      ...(numbers ?? []).map((head, column) => el("span", { class: "qk-head-number", text: `H${head}`, "data-column": column })),
    );
  }

  function cell(at, i) {
    const [layer, head] = study.heads[at].is;
    const order = study.get("order");
    const value = study.statistic(order, at);
    const said = [`layer ${layer}, head ${head}`, study.kind(at), value === null ? "" : `${order.replaceAll("_", " ")} ${weight(value)}`].filter(Boolean).join(", ");
    const hue = study.kinds.indexOf(study.kind(at));
    const tint = order === "kind" && hue >= 0 && study.kind(at) !== "mixed" ? 14 : value === null ? 0 : Math.round(26 * standing(order, value));
    return el("div", {
      class: "qk-cell", role: "option", title: said, "aria-label": said, style: `--qk-tint: ${tint}%; --qk-hue: var(--av-series-${order === "kind" ? Math.max(0, hue) % 6 : 2})`,
      "data-testid": `head-${layer}-${head}`, onfocus: () => (focus = i),
    }, el("span", { class: "qk-cell-name", text: `L${layer} H${head}` }), el("span", { class: "qk-cell-kind", text: value === null ? study.kind(at) : weight(value) }));
  }

  /** Where a value stands between the least and the greatest of all heads. */
  function standing(order, value) {
    const all = study.heads.map((_, at) => study.statistic(order, at)).filter((one) => one !== null);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    return high > low ? (value - low) / (high - low) : 0;
  }

  const box = (one) => cellBox(grid, one.row, one.column, camera, view.wide, view.high);
  const seen = ({ x, y, w, h }) => x < view.wide && y < view.high && x + w > 0 && y + h > 0;

  function clouds() {
    make();
    const visible = cells.map((one) => ({ ...one, box: box(one) })).filter((one) => seen(one.box));
    const dimensions = study.map.dimensions;
    return visible.flatMap(({ at, box: { x, y, w, h } }) => {
      const label = named(w, h) ? 15 : 0;
      const side = Math.min(w, h - label) - 8;
      return view.clouds(at, {
        place: { x: x + w / 2, y: y + label + (h - label) / 2, scale: Math.max(4, side / 2 - 3) * (dimensions === 3 ? 0.82 : 1) },
        size: Math.min(6, Math.max(1.4, side / 45)),
        turn: turn(place.camera, dimensions),
      });
    });
  }

  const named = (w, h) => (study.get("order") === "layer" ? study.kind(0) !== "" || w > 1.6 * LABELLED : true) && w > LABELLED * 0.6 && h > 36;

  function overlay() {
    for (const one of cells) {
      const { x, y, w, h } = box(one);
      const { node } = one;
      if (one.w !== w || one.h !== h) {
        Object.assign(node.style, { width: `${w - 4}px`, height: `${h - 4}px` });
        node.classList.toggle("qk-named", named(w, h));
        node.classList.toggle("qk-wide", w > LABELLED * 1.4);
        Object.assign(one, { w, h });
      }
      // What is out of sight is only moved there: hiding would lay out the page again.
      node.style.transform = seen({ x, y, w, h }) ? `translate(${x + 2}px, ${y + 2}px)` : "translate(-9999px, 0)";
      node.tabIndex = cells[focus] === one ? 0 : -1;
      node.setAttribute("aria-selected", String(one.at === study.chosen));
    }
    for (const one of heads.children) {
      const [row, column] = [Number(one.dataset.row ?? 0), Number(one.dataset.column ?? 0)];
      const { x, y, w, h } = cellBox(grid, row, column, camera, view.wide, view.high);
      const across = "column" in one.dataset;
      one.style.transform = across ? `translate(${x + w / 2}px, 2px) translateX(-50%)` : `translate(2px, ${y + h / 2}px) translateY(-50%)`;
      one.style.display = (across ? x + w / 2 > GUTTER.left && x + w / 2 < view.wide : y + h / 2 > GUTTER.top && y + h / 2 < view.high) ? "" : "none";
    }
  }

  function under(x, y) {
    return cells.find((one) => {
      const at = box(one);
      return x >= at.x && x < at.x + at.w && y >= at.y && y < at.y + at.h;
    });
  }

  function open(one) {
    camera = still();
    study.choose(one.at, { view: "one" });
    const [layer, head] = study.heads[one.at].is;
    view.announce(`layer ${layer}, head ${head} is open; escape goes back to all heads`);
  }

  function key(event) {
    if (!plain(event)) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(cells[focus]);
      view.focus();
      return;
    }
    const next = moved(focus, cells.length, event.key, grid.columns);
    if (next === null) return;
    event.preventDefault();
    focus = next;
    overlay();
    cells[next].node.focus({ preventScroll: true });
    study.choose(cells[next].at);
  }

  return {
    below: [list],
    above: heads,
    clouds,
    overlay,
    reset: () => (camera = still()),
    zoom(factor, x = view.wide / 2, y = view.high / 2) {
      camera = zoomed(camera, factor, x - view.wide / 2, y - view.high / 2);
      const one = under(view.wide / 2, view.high / 2) ?? under(x, y);
      const filled = one && Math.min(box(one).w / view.wide, box(one).h / view.high);
      if (factor > 1 && filled > OPENS) open(one);
    },
    drag: (_x, _y, dx, dy) => (camera = panned(camera, dx, dy, view.wide, view.high)),
    dropped() {},
    point() {},
    click(x, y) {
      const one = under(x, y);
      if (one) open(one);
    },
    key() {},
  };
}
