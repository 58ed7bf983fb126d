// Heads as lines between two columns of tokens. Tokens that do not all have a row of their own share
// the height; of a very long input a part is in view. What the active token attends to is always
// labelled: at its place, or at the edge beyond which it lies. Only what is in view is made and drawn.
import { el, plain, sized } from "./dom.js";
import { activeOf, NONE } from "../lib/active.js";
import { DASHES } from "../lib/colours.js";
import { hatched } from "../lib/hatch.js";
import { strongest } from "../lib/maps.js";
import { moved } from "../lib/keys.js";
import { spread } from "../lib/spread.js";
import { labelStep } from "../lib/window.js";
import { signedWeight, weight } from "../lib/words.js";

const ROW = 22; // pixels of a token where there is room
const LABEL = 14; // pixels that a label needs
const LEAST = 2; // pixels of a token in a long input
const HIGH = 440;
const MIDDLE = 60; // pixels for the lines, at least
const BESIDE = 12; // pixels from a token to its label, where labels had to move

/** `left` and `right` are the widths of the columns at most, `high` the height; all in pixels. */
export function linesPanel(store, view, { left: mostLeft = 170, right: mostRight = 200, high: fixed = null } = {}) {
  const base = el("canvas", { class: "av-canvas", "aria-hidden": "true" });
  const top = el("canvas", { class: "av-canvas", "aria-hidden": "true" });
  const columns = {
    query: column("query", "Queries: arrow keys move, enter pins"),
    key: column("key", "Keys: arrow keys move, enter pins"),
  };
  const stage = el("div", { class: "av-stage" }, base, top, columns.query.node, columns.key.node);
  const spacer = el("div");
  const scroll = el("div", { class: "av-scroll", testid: "lines", tabindex: "-1" }, stage, spacer);
  const legend = el("ul", { class: "av-legend", testid: "line-legend" });
  const hint = el("p", { class: "av-quiet av-hint" });
  const titles = el("div", { class: "av-columns-title" }, el("span", { text: "queries" }), el("span", { text: "keys" }));
  const node = el("section", { class: "av-panel av-panel-lines", "aria-label": "Lines between tokens" },
    el("div", { class: "av-row av-head-row" }, el("h3", { text: "Lines" })), titles, scroll, legend, hint);

  let written = "";
  let pitch = ROW; // pixels from token to token
  let left = mostLeft;
  let right = mostRight;
  let narrow = false; // columns without numbers
  let known = new Map(); // lines of a token and head, until something changes
  const pinned = { ...NONE };

  function column(side, label) {
    const list = el("div", { class: `av-column av-column-${side}`, role: "listbox", "aria-label": label, testid: side === "query" ? "queries" : "keys" });
    list.addEventListener("keydown", (event) => key(side, event));
    list.addEventListener("pointermove", (event) => over(side, event));
    list.addEventListener("pointerleave", () => view.hover(NONE));
    list.addEventListener("click", (event) => {
      const i = under(side, event);
      if (i !== null) pin(side, i);
    });
    return { node: list, items: new Map(), labels: new Map(), at: 0 };
  }

  const count = (side) => (side === "query" ? store.shape.n : store.shape.m);
  const yOf = (i) => (i + 0.5) * pitch - scroll.scrollTop;

  function draw() {
    const { n, m, q, k } = store.shape;
    const rows = Math.max(n, m);
    const most = fixed ?? view.high ?? HIGH;
    pitch = Math.min(ROW, Math.max(LEAST, most / rows));
    const high = Math.min(most, Math.ceil(rows * pitch));
    scroll.style.height = `${high}px`;
    stage.style.height = `${high}px`;
    spacer.style.height = `${Math.max(0, Math.round(rows * pitch) - high)}px`;
    stage.style.fontSize = pitch < 17 ? "11px" : "";
    const words = [n, m, q.set, q.start, k.set, store.loads].join();
    // The elements stay while their words do: whoever has the focus must not lose it.
    if (words !== written) {
      for (const one of Object.values(columns)) {
        one.items.forEach((item) => item.remove());
        one.items.clear();
        one.at = Math.min(one.at, (one === columns.query ? n : m) - 1);
      }
    }
    written = words;
    known = new Map();
    setWidths(n, m);
    drawLegend();
    for (const side of ["key", "query"]) {
      const at = store.pinned(side);
      if (at !== null && at !== pinned[side]) reveal(at);
      pinned[side] = at;
    }
    scrolled();
  }

  /** Columns as wide as their words, as far as the lines have room between them. */
  function setWidths(n, m) {
    const context = base.getContext("2d");
    context.font = view.font ?? "12px system-ui, sans-serif";
    const widest = (side, length) => {
      let most = 12;
      for (let at = 0; at < length; at += Math.ceil(length / 300)) {
        most = Math.max(most, context.measureText(store.token(side, at).short).width);
      }
      return Math.ceil(most);
    };
    const room = Math.max(0, stage.clientWidth - MIDDLE);
    const beside = [24 + 56, 54]; // pixels for number and weight, or for a short weight alone
    const needed = (one) => Math.min(120, one) + 16;
    const [words, others] = [widest("q", n), widest("k", m)];
    narrow = needed(words) + needed(others) + 2 * beside[0] > room;
    const more = beside[Number(narrow)];
    right = Math.min(mostRight, needed(others) + more, Math.max(room >> 1, room - needed(words)));
    left = Math.min(mostLeft, needed(words) + more, room - right);
    stage.classList.toggle("av-narrow", narrow);
    columns.query.node.style.width = `${left}px`;
    columns.key.node.style.width = `${right}px`;
    titles.firstChild.style.width = `${left}px`;
    titles.lastChild.style.width = `${right}px`;
  }

  function scrolled() {
    place(activeOf(store), []);
    drawBase();
    hover();
  }

  function visible(margin = 0) {
    const first = Math.max(0, Math.floor(scroll.scrollTop / pitch) - margin);
    const last = Math.ceil((scroll.scrollTop + scroll.clientHeight) / pitch) + margin;
    return (side) => [Math.min(first, count(side)), Math.min(last, count(side))];
  }

  /** Which tokens of a column are written, and where: all that have a row; else those that matter. */
  function labelled(side, now, hits) {
    const out = new Map();
    const [first, last] = visible()(side);
    if (pitch >= LABEL - 1) {
      for (let i = first; i < last; i += 1) out.set(i, yOf(i));
      for (const i of pushed(side, now, hits).filter((one) => one < first || one >= last)) out.set(i, null);
    } else {
      for (const i of pushed(side, now, hits)) out.set(i, null);
    }
    const free = [...out.keys()].filter((i) => out.get(i) === null);
    const high = stage.clientHeight;
    const at = spread(free.map(yOf), LABEL, high);
    free.forEach((i, number) => out.set(i, at[number]));
    if (pitch < LABEL - 1) {
      const taken = [...out.values()];
      const step = labelStep(pitch, LABEL);
      for (let i = Math.ceil(first / step) * step; i < last; i += step) {
        const y = yOf(i);
        if (y > LABEL / 2 && y < high - LABEL / 2 && taken.every((other) => Math.abs(other - y) >= LABEL)) out.set(i, y);
      }
    }
    return out;
  }

  /** The tokens that must be labelled: the active one, or what it is connected with. */
  function pushed(side, now, hits) {
    if (!now) return [];
    if (now[0] === side) return [now[1]];
    return hits.slice(0, Math.floor(stage.clientHeight / LABEL) - 1);
  }

  function place(now, hits) {
    for (const side of ["query", "key"]) {
      const { node: list, items, at } = columns[side];
      const labels = labelled(side, now, hits);
      columns[side].labels = labels;
      for (const [i, item] of items) {
        if (labels.has(i) || i === at) continue;
        item.remove();
        items.delete(i);
      }
      for (const i of new Set([...labels.keys(), at])) {
        if (!items.has(i)) items.set(i, list.appendChild(item(side, i)));
        const option = items.get(i);
        const high = pitch >= LABEL - 1 ? Math.max(LABEL, Math.floor(pitch)) : LABEL;
        const y = labels.get(i) ?? yOf(i);
        option.style.height = option.style.lineHeight = `${high}px`;
        option.style.transform = `translateY(${(y - high / 2).toFixed(1)}px)`;
        option.classList.toggle("av-unwritten", !labels.has(i));
        const beyond = yOf(i) < 0 ? "↑ " : yOf(i) > stage.clientHeight ? "↓ " : "";
        option.classList.toggle("av-beyond", Boolean(beyond) && labels.has(i));
        option.firstChild.textContent = `${beyond}${i}`;
        option.tabIndex = i === at ? 0 : -1;
        option.setAttribute("aria-selected", String(store.pinned(side) === i));
      }
    }
  }

  function item(side, i) {
    const { short, full } = store.token(side === "query" ? "q" : "k", i);
    return el(
      "div",
      {
        class: "av-token",
        role: "option",
        title: `${i}: ${full}`,
        "aria-label": `${side} ${i}, ${short}`,
        "aria-setsize": count(side),
        "aria-posinset": i + 1,
        testid: `${side}-${i}`,
        "data-at": i,
        onfocus: () => {
          columns[side].at = i;
          view.hover({ ...NONE, [side]: i });
        },
        onblur: () => view.hover(NONE),
      },
      el("span", { class: "av-token-number", text: String(i) }),
      el("bdi", { class: "av-token-text", text: short }),
      el("span", { class: "av-token-weight" }),
    );
  }

  /** The token under the pointer: that of the label, else the one whose place it is. */
  function under(side, event) {
    const label = event.target.closest?.("[data-at]");
    if (label) return Number(label.dataset.at);
    const y = event.clientY - columns[side].node.getBoundingClientRect().top + scroll.scrollTop;
    const i = Math.floor(y / pitch);
    return i >= 0 && i < count(side) ? i : null;
  }

  function over(side, event) {
    const i = under(side, event);
    if (store.hover[side] !== i) view.hover({ ...NONE, [side]: i });
  }

  function pin(side, i) {
    const again = store.pinned(side) === i;
    store.set({ ...NONE, [side]: again ? null : i });
    columns[side].at = i;
  }

  function key(side, event) {
    if (!plain(event)) return;
    if (event.key === "Escape") {
      store.set(NONE);
      return;
    }
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pin(side, columns[side].at);
      return;
    }
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      focus(event.key === "ArrowLeft" ? "query" : "key", Math.min(columns[side].at, count(event.key === "ArrowLeft" ? "query" : "key") - 1));
      return;
    }
    const next = moved(columns[side].at, count(side), event.key);
    if (next === null) return;
    event.preventDefault();
    focus(side, next);
  }

  function focus(side, i) {
    columns[side].at = i;
    const from = i * pitch;
    if (from < scroll.scrollTop) scroll.scrollTop = from;
    if (from + pitch > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = from + pitch - scroll.clientHeight;
    place(activeOf(store), []);
    columns[side].items.get(i).focus({ preventScroll: true });
  }

  /** The cells of a query (or the incoming ones of a key) that are drawn, per head; largest first. */
  function cells(side, i, layer, head) {
    const name = `${side}/${i}/${layer}/${head}`;
    if (!known.has(name)) {
      const map = store.map(layer, head);
      const found = side === "query" ? map.row(i) : map.column(i);
      const most = found.reduce((size, { w }) => Math.max(size, Math.abs(w)), 0);
      const limits = { threshold: store.get("threshold"), topK: store.get("top_k"), largest: most };
      known.set(name, strongest(found, limits));
    }
    return known.get(name);
  }

  const spoken = (w) => (store.signed ? signedWeight(w, 0.001) : weight(w, store.error ?? 0.001));

  const short = (w) => `${store.signed && w > 0 ? "+" : ""}${w.toFixed(2)}`.replace("-", "−");

  function pen(context, lineAt, w, largest, strong) {
    const share = Math.min(1, Math.abs(w) / (largest || 1));
    const alone = store.lineHeads.length === 1;
    context.strokeStyle = view.series(store.signed && alone ? Number(w > 0) : lineAt);
    context.lineWidth = (0.7 + 6 * share) * (strong ? 1 : Math.min(1, Math.max(0.35, pitch / 10)));
    const dash = store.signed && alone ? DASHES[w < 0 ? 1 : 0] : DASHES[lineAt];
    context.setLineDash(dash.map((part) => part * Math.max(1, context.lineWidth / 2.5)));
    context.globalAlpha = strong ? 0.35 + 0.6 * Math.sqrt(share) : 0.08 + 0.42 * share;
  }

  /** From the place of query i to that of key j; beyond the edges, to their labels there. */
  function curve(context, i, j) {
    const wide = stage.clientWidth;
    const beside = pitch < LABEL - 1 ? BESIDE : 4;
    const [x0, x1] = [left + beside, wide - right - beside];
    const end = (side, at) => {
      const y = yOf(at);
      return y < 0 || y > stage.clientHeight ? (columns[side].labels.get(at) ?? y) : y;
    };
    const [y0, y1] = [end("query", i), end("key", j)];
    const bend = (x1 - x0) * 0.4;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    context.stroke();
  }

  /** From a label that had to move to the place of its token. */
  function leaders(context, side, hits) {
    const wide = stage.clientWidth;
    context.setLineDash([]);
    context.lineWidth = 1;
    context.globalAlpha = 1;
    context.strokeStyle = view.colour("--av-quiet");
    for (const i of hits) {
      const [label, y] = [columns[side].labels.get(i), yOf(i)];
      if (label === undefined || pitch >= LABEL - 1) continue;
      const [from, to] = side === "query" ? [left, left + BESIDE] : [wide - right, wide - right - BESIDE];
      context.beginPath();
      context.moveTo(from, label);
      context.lineTo(to, y < 0 || y > stage.clientHeight ? label : y);
      context.stroke();
    }
  }

  function drawBase() {
    const context = sized(base, stage.clientWidth, stage.clientHeight);
    const [first, last] = visible(8)("query");
    store.lineHeads.forEach(([layer, head], lineAt) => {
      const largest = store.map(layer, head).largest;
      for (let i = first; i < last; i += 1) {
        for (const { j, w } of cells("query", i, layer, head)) {
          pen(context, lineAt, w, largest, false);
          curve(context, i, j);
        }
      }
    });
  }

  function hover() {
    const now = activeOf(store);
    if (now && now[1] >= count(now[0])) return;
    if (now) reveal(now[1]);
    const found = !now ? [] : store.lineHeads.map(([layer, head]) => cells(now[0], now[1], layer, head));
    const weights = new Map();
    found.forEach((cellsOf, lineAt) => {
      for (const { i, j, w } of cellsOf) {
        const other = now[0] === "query" ? j : i;
        if (!weights.has(other)) weights.set(other, []);
        weights.get(other).push({ w, lineAt });
      }
    });
    const hits = [...weights.keys()].sort((a, b) => Math.abs(weights.get(b)[0].w) - Math.abs(weights.get(a)[0].w));
    place(now, hits);
    const context = sized(top, stage.clientWidth, stage.clientHeight);
    base.style.opacity = now ? "0.18" : "1";
    if (now) {
      hatchMasked(context, now);
      found.forEach((cellsOf, lineAt) => {
        const largest = cellsOf.length ? Math.abs(cellsOf[0].w) : 1;
        for (const { i, j, w } of cellsOf) {
          pen(context, lineAt, w, largest, true);
          if (now[0] === "query") curve(context, now[1], j);
          else curve(context, i, now[1]);
        }
      });
      leaders(context, now[0], [now[1]]);
      leaders(context, now[0] === "query" ? "key" : "query", hits);
    }
    write(now, weights);
  }

  /** What the active query may not attend to, or what may not attend to the active key. */
  function hatchMasked(context, [side, at]) {
    const allowed = store.allowed?.(...store.lineHeads[0]);
    if (!allowed) return;
    const other = side === "query" ? "key" : "query";
    const may = (one) => (side === "query" ? allowed(at, one) : allowed(one, at));
    const [first, last] = visible()(other);
    const [x, wide] = other === "key" ? [stage.clientWidth - right, right] : [0, left];
    for (let from = first; from < last; from += 1) {
      if (may(from)) continue;
      let to = from + 1;
      while (to < last && !may(to)) to += 1;
      hatched(context, x, from * pitch - scroll.scrollTop, wide, (to - from) * pitch, view.colour("--av-hatch-faint"));
      from = to;
    }
  }

  function write(now, weights) {
    for (const side of ["query", "key"]) {
      for (const [i, option] of columns[side].items) {
        const own = now && now[0] === side && now[1] === i;
        const hit = now && now[0] !== side && weights.has(i);
        option.classList.toggle("av-own", Boolean(own));
        option.classList.toggle("av-hit", Boolean(hit));
        option.classList.toggle("av-dim", Boolean(now) && !own && !hit);
        const slot = option.lastChild;
        const said = hit ? weights.get(i).slice(0, narrow ? 1 : 2).map(({ w }) => (narrow ? short(w) : spoken(w))) : [];
        slot.textContent = said.join(" · ");
      }
    }
  }

  function drawLegend() {
    const heads = store.lineHeads;
    legend.hidden = heads.length === 1 && !store.signed;
    hint.hidden = !legend.hidden && !fixed;
    legend.replaceChildren(
      ...heads.map(([layer, head], at) => {
        const mark = el("canvas", { "aria-hidden": "true" });
        const context = sized(mark, 34, 10);
        context.strokeStyle = view.series(at);
        context.setLineDash(DASHES[at]);
        context.lineWidth = 3;
        context.beginPath();
        context.moveTo(0, 5);
        context.lineTo(34, 5);
        context.stroke();
        return el("li", {}, mark, el("span", { text: store.called(layer, head) }));
      }),
    );
    if (store.signed && heads.length === 1) {
      legend.replaceChildren(el("li", { text: `${store.called(...heads[0])}: orange solid = positive, blue dashed = negative` }));
    }
    const k = store.get("top_k");
    const map = store.map(...heads[0]);
    const limits = k ? `the ${k} strongest per token` : "every line";
    const kept = map.whole ? "" : `of ${map.kept} per row, `;
    hint.textContent = `Lines: ${limits}, ${kept}from ${Math.round(store.get("threshold") * 100)} % of the largest.`;
  }

  let waiting = false;
  scroll.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      scrolled();
    });
  });

  /** Scroll so that a token is in view: whatever is walked to elsewhere is followed. */
  function reveal(i) {
    if (yOf(i) >= 0 && yOf(i) <= stage.clientHeight) return;
    scroll.scrollTop = Math.max(0, (i + 0.5) * pitch - scroll.clientHeight / 2);
    drawBase();
  }

  return { node, draw, hover };
}
