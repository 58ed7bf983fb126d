// Heads as lines between two columns of tokens. Only what is in view is made and drawn.
import { el, plain, sized } from "./dom.js";
import { DASHES } from "../lib/colours.js";
import { strongest } from "../lib/maps.js";
import { moved } from "../lib/keys.js";
import { headName, signedWeight, weight } from "../lib/words.js";

const ROW = 22;
const MOST = 20; // rows in view
const WIDTHS = { left: 148, right: 196 }; // of the columns of tokens

/** `most` rows are in view at once. */
export function linesPanel(store, view, { left, right } = WIDTHS, most = MOST) {
  const base = el("canvas", { class: "av-canvas", "aria-hidden": "true" });
  const top = el("canvas", { class: "av-canvas", "aria-hidden": "true" });
  const columns = {
    query: column("query", "Queries: arrow keys move, enter pins"),
    key: column("key", "Keys: arrow keys move, enter pins"),
  };
  const stage = el("div", { class: "av-stage" }, base, top, columns.query.node, columns.key.node);
  const spacer = el("div");
  const scroll = el("div", { class: "av-scroll", "data-testid": "lines", tabindex: "-1" }, stage, spacer);
  const legend = el("ul", { class: "av-legend", "data-testid": "line-legend" });
  const hint = el("p", { class: "av-quiet av-hint" });
  const node = el(
    "section",
    { class: "av-panel av-panel-lines", "aria-label": "Lines between tokens" },
    el("h3", { text: "Lines" }),
    el("div", { class: "av-columns-title" }, el("span", { text: "queries" }), el("span", { text: "keys" })),
    scroll,
    legend,
    hint,
  );

  let written = "";
  const pinned = { query: null, key: null };

  function column(side, label) {
    const style = `width: ${side === "query" ? left : right}px`;
    const list = el("div", { style, class: `av-column av-column-${side}`, role: "listbox", "aria-label": label, "data-testid": side === "query" ? "queries" : "keys" });
    list.addEventListener("keydown", (event) => key(side, event));
    list.addEventListener("pointerleave", () => view.hover({ query: null, key: null }));
    return { node: list, items: new Map(), at: 0 };
  }

  const count = (side) => (side === "query" ? store.shape.n : store.shape.m);

  function draw() {
    const { n, m } = store.shape;
    const rows = Math.max(n, m);
    const high = Math.min(most, rows) * ROW;
    scroll.style.height = `${high}px`;
    stage.style.height = `${high}px`;
    spacer.style.height = `${rows * ROW - high}px`;
    const { q, k } = store.shape;
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
    drawLegend();
    for (const side of ["key", "query"]) {
      const at = store.pinned(side);
      if (at !== null && at !== pinned[side]) reveal(side, at);
      pinned[side] = at;
    }
    scrolled();
  }

  function scrolled() {
    items("query");
    items("key");
    drawBase();
    hover();
  }

  function visible(side, margin = 0) {
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - margin);
    const last = Math.ceil((scroll.scrollTop + scroll.clientHeight) / ROW) + margin;
    return [Math.min(first, count(side)), Math.min(last, count(side))];
  }

  function items(side) {
    const { node: list, items: known, at } = columns[side];
    const [first, last] = visible(side);
    const wanted = new Set([at]);
    for (let i = first; i < last; i += 1) wanted.add(i);
    for (const [i, item] of known) {
      if (!wanted.has(i)) {
        item.remove();
        known.delete(i);
      }
    }
    for (const i of [...wanted].sort((a, b) => a - b)) {
      if (!known.has(i)) known.set(i, list.appendChild(item(side, i)));
      const option = known.get(i);
      option.style.transform = `translateY(${i * ROW - scroll.scrollTop}px)`;
      option.tabIndex = i === at ? 0 : -1;
      option.setAttribute("aria-selected", String(store.pinned(side) === i));
    }
  }

  function item(side, i) {
    const { short, full } = store.token(side === "query" ? "q" : "k", i);
    const option = el(
      "div",
      {
        class: "av-token",
        role: "option",
        title: `${i}: ${full}`,
        "aria-label": `${side} ${i}, ${short}`,
        "aria-setsize": count(side),
        "aria-posinset": i + 1,
        "data-testid": `${side}-${i}`,
        onpointerenter: () => view.hover({ query: null, key: null, [side]: i }),
        onclick: () => pin(side, i),
        onfocus: () => {
          columns[side].at = i;
          view.hover({ query: null, key: null, [side]: i });
        },
        onblur: () => view.hover({ query: null, key: null }),
      },
      el("span", { class: "av-token-number", text: String(i) }),
      el("bdi", { class: "av-token-text", text: short }),
      el("span", { class: "av-token-weight" }),
    );
    return option;
  }

  function pin(side, i) {
    const other = side === "query" ? "key" : "query";
    const again = store.pinned(side) === i;
    store.set({ [side]: again ? null : i, [other]: null });
    columns[side].at = i;
    view.announce(again ? "nothing is pinned" : described(side, i));
  }

  function key(side, event) {
    if (!plain(event)) return;
    if (event.key === "Escape") {
      store.set({ query: null, key: null });
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
    const place = i * ROW;
    if (place < scroll.scrollTop) scroll.scrollTop = place;
    if (place + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = place + ROW - scroll.clientHeight;
    items("query");
    items("key");
    columns[side].items.get(i).focus({ preventScroll: true });
    view.announce(described(side, i));
  }

  /** The cells of a query (or the incoming ones of a key) that are drawn, per head. */
  function cells(side, i, layer, head) {
    const map = store.map(layer, head);
    const found = side === "query" ? map.row(i) : map.column(i);
    const most = found.reduce((size, { w }) => Math.max(size, Math.abs(w)), 0);
    const limits = { threshold: store.get("threshold"), topK: store.get("top_k"), largest: most };
    return strongest(found, limits);
  }

  function described(side, i) {
    const name = side === "query" ? "k" : "q";
    const [layer, head] = store.lineHeads[0];
    const said = cells(side, i, layer, head)
      .slice(0, 3)
      .map((cell) => `${store.token(name, cell.j ?? cell.i).short} ${spoken(cell.w)}`);
    const verb = side === "query" ? "looks at" : "is looked at by";
    return `${side} ${i}, ${store.token(side === "query" ? "q" : "k", i).short}, ${verb} ${said.join(", ") || "nothing above the threshold"}`;
  }

  const spoken = (w) => (store.signed ? signedWeight(w, 0.001) : weight(w, store.error ?? 0.001));

  function pen(context, lineAt, w, largest, strong) {
    const share = Math.min(1, Math.abs(w) / (largest || 1));
    const alone = store.lineHeads.length === 1;
    context.strokeStyle = view.series(store.signed && alone ? Number(w > 0) : lineAt);
    context.lineWidth = 0.7 + 6 * share;
    const dash = store.signed && alone ? DASHES[w < 0 ? 1 : 0] : DASHES[lineAt];
    context.setLineDash(dash.map((part) => part * Math.max(1, context.lineWidth / 2.5)));
    context.globalAlpha = strong ? 0.35 + 0.6 * Math.sqrt(share) : 0.08 + 0.42 * share;
  }

  function curve(context, i, j) {
    const wide = stage.clientWidth;
    const [x0, x1] = [left + 4, wide - right - 4];
    const y0 = (i + 0.5) * ROW - scroll.scrollTop;
    const y1 = (j + 0.5) * ROW - scroll.scrollTop;
    const bend = (x1 - x0) * 0.4;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    context.stroke();
  }

  function drawBase() {
    const context = sized(base, stage.clientWidth, stage.clientHeight);
    const [first, last] = visible("query", most >> 1);
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

  function active() {
    const { query, key: hovered } = store.hover;
    if (query !== null) return ["query", query];
    if (hovered !== null) return ["key", hovered];
    if (store.pinned("query") !== null) return ["query", store.pinned("query")];
    if (store.pinned("key") !== null) return ["key", store.pinned("key")];
    return null;
  }

  function hover() {
    const context = sized(top, stage.clientWidth, stage.clientHeight);
    const now = active();
    base.style.opacity = now ? "0.18" : "1";
    const weights = new Map();
    if (now) {
      const [side, at] = now;
      store.lineHeads.forEach(([layer, head], lineAt) => {
        const found = cells(side, at, layer, head);
        const largest = found.length ? Math.abs(found[0].w) : 1;
        for (const cell of found) {
          pen(context, lineAt, cell.w, largest, true);
          const [i, j] = side === "query" ? [at, cell.j] : [cell.i, at];
          curve(context, i, j);
          const other = side === "query" ? j : i;
          if (!weights.has(other)) weights.set(other, []);
          weights.get(other).push({ w: cell.w, lineAt });
        }
      });
    }
    write(now, weights);
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
        const said = hit ? weights.get(i).slice(0, 2).map(({ w }) => spoken(w)) : [];
        slot.textContent = said.join(" · ");
      }
    }
  }

  function drawLegend() {
    const heads = store.lineHeads;
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
        return el("li", {}, mark, el("span", { text: headName(layer, head) }));
      }),
    );
    if (store.signed && heads.length === 1) {
      legend.replaceChildren(el("li", { text: `${headName(...heads[0])}: orange solid = positive, blue dashed = negative` }));
    }
    const k = store.get("top_k");
    const map = store.map(...heads[0]);
    const limits = k ? `the ${k} strongest per token` : "every line";
    const kept = map.whole ? "" : ` Of this long input, each row's ${map.kept} largest weights are held.`;
    hint.textContent = `Width is weight. Shown: ${limits}, from ${Math.round(store.get("threshold") * 100)} % of the row's largest on.${kept}`;
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

  function reveal(side, i) {
    const place = i * ROW;
    if (place < scroll.scrollTop || place + ROW > scroll.scrollTop + scroll.clientHeight) {
      scroll.scrollTop = Math.max(0, place - scroll.clientHeight / 2);
    }
  }

  return { node, draw, hover };
}
