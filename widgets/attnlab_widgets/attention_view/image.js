// The image that a model saw, with the attention of one patch or word laid over it: point at a patch,
// and those that it attends to, or that attend to it, light up. Tokens that are no patches stand above
// it as buttons; a text, in which patches stand or which looks at them, above the panels.
import { button, el, plain, sized } from "#parts/dom.js";
import { activeOf, NONE } from "#lib/active.js";
import { css } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { boxAt, boxOf, gridOf, neighbour, together, tokenAt, tokensOf, weightsBetween } from "#lib/patches.js";
import { exactly } from "#lib/words.js";

const VEIL = 0.68; // how dark a patch of no weight is
const GLOW = 0.4; // how much of the colour a patch of the largest weight takes
const ABOVE = 86; // pixels for the title and the readout

export function imagePanel(store, view) {
  const picture = el("img", { class: "av-image-picture", alt: "What the model saw", draggable: "false" });
  const sheet = el("canvas", { class: "av-canvas", "aria-hidden": "true" });
  const stage = el("div", { class: "av-image", role: "application", tabindex: "0", "aria-roledescription": "image", testid: "image" }, picture, sheet);
  const special = el("div", { class: "av-row av-image-special", role: "group", "aria-label": "Tokens that are no patches" });
  const readout = el("p", { class: "av-readout", testid: "image-readout" });
  const node = el(
    "section",
    { class: "av-panel av-panel-lines av-panel-image", "aria-label": "Image" },
    el("div", { class: "av-row av-head-row" }, el("h3", { text: "Image" }), special),
    readout,
    stage,
  );
  let side = null; // of a patch that is pointed at: "query", or "key" where queries are no patches
  let grid = null;
  let written = "";
  let size = [0, 0];

  /** Whether the chosen layer reads the image. */
  function shown() {
    const { shape, recording } = store;
    const [q, k] = ["q", "k"].map((one) => gridOf(recording, shape, one));
    side = q && !(k && view.way() === "by") ? "query" : "key";
    grid = side === "query" ? q : k;
    return grid !== null;
  }

  /** Whether the chosen layer reads words, too, and not the image alone. */
  const words = () =>
    ["query", "key"].some((of) => {
      const own = gridOfSide(of);
      return !own || own.text;
    });

  const gridOfSide = (of) => gridOf(store.recording, store.shape, of === "query" ? "q" : "k");

  function draw() {
    const { url, width, height } = store.recording.image;
    if (picture.src !== url) picture.src = url;
    const room = Math.max(120, (view.high ?? 440) - ABOVE);
    const wide = Math.min(node.clientWidth, (room * width) / height);
    size = [Math.round(wide), Math.round((wide * height) / width)];
    [stage.style.width, stage.style.height] = size.map((length) => `${length}px`);
    stage.setAttribute("aria-label", `Image of ${grid.rows} by ${grid.columns} patches. Arrow keys move over patches, enter pins.`);
    name();
    hover();
  }

  /** The buttons of tokens that are no patches: a class token, registers. */
  function name() {
    const before = words() ? 0 : grid.first;
    const key = [store.loads, side, store.shape[side === "query" ? "q" : "k"].set, before].join();
    if (key === written) return;
    written = key;
    special.replaceChildren(
      ...Array.from({ length: before }, (_, at) =>
        button({
          text: token(side, at).short,
          "aria-pressed": "false",
          testid: `image-token-${at}`,
          onpointerenter: () => point(at),
          onpointerleave: () => point(null),
          onfocus: () => point(at),
          onblur: () => point(null),
          onclick: () => pin(at),
        }),
      ),
    );
  }

  const token = (of, at) => store.token(of === "query" ? "q" : "k", at);
  const count = (of) => (of === "query" ? store.shape.n : store.shape.m);

  function hover() {
    const context = sized(sheet, ...size);
    const now = activeOf(store);
    const active = now && now[1] < count(now[0]) ? now : null;
    if (active) lay(context, ...active);
    else readout.textContent = `Point at a patch to see what ${side === "query" ? "it attends to" : "attends to it"}.`;
    readout.title = readout.textContent;
    for (const [at, one] of [...special.children].entries()) {
      one.setAttribute("aria-pressed", String(active !== null && active[0] === side && active[1] === at));
    }
  }

  /** The weights of a query's keys over their patches, or of a key's queries over theirs. */
  function lay(context, of, at) {
    const other = of === "query" ? "key" : "query";
    const over = gridOfSide(other);
    const map = store.map(store.layer, store.head);
    const home = gridOfSide(of);
    const own = together(home, at);
    const found = weightsBetween(map, of, own, over);
    if (over) {
      paint(context, over, found);
      mask(context, over, of, own);
    }
    const box = home ? boxOf(home, at, ...size) : null;
    if (box) frame(context, box);
    say(of, own, other, found);
  }

  function paint(context, over, found) {
    const most = found.reduce((most, [, w]) => Math.max(most, Math.abs(w)), 0);
    const weights = new Map(found.map(([tokens, w]) => [tokens[0], w]));
    for (let patch = 0; patch < over.rows * over.columns; patch += 1) {
      const w = weights.get(tokensOf(over, patch)[0]) ?? 0;
      const share = most > 0 ? Math.sqrt(Math.abs(w) / most) : 0;
      const box = boxAt(over, patch, ...size);
      context.globalAlpha = VEIL * (1 - share);
      context.fillStyle = "#00102c";
      context.fillRect(...box);
      context.globalAlpha = GLOW * share;
      context.fillStyle = css(Math.sign(w) * most, most, store.signed, true);
      context.fillRect(...box);
    }
    context.globalAlpha = 1;
  }

  function mask(context, over, of, own) {
    const allowed = store.allowed(store.layer, store.head);
    if (!allowed) return;
    for (let patch = 0; patch < over.rows * over.columns; patch += 1) {
      if (tokensOf(over, patch).some((there) => own.some((here) => (of === "query" ? allowed(here, there) : allowed(there, here))))) continue;
      hatched(context, ...boxAt(over, patch, ...size), "rgba(230, 237, 242, 0.45)");
    }
  }

  function frame(context, [x, y, wide, high]) {
    for (const [colour, thick] of [["#000000", 4], ["#ffffff", 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = thick;
      context.strokeRect(x + 1, y + 1, wide - 2, high - 2);
    }
  }

  function say(of, own, other, found) {
    const best = found.reduce((a, b) => (a && Math.abs(a[1]) >= Math.abs(b[1]) ? a : b), null);
    const named = (side, [place, ...more]) => `${token(side, place).full.replace(/^patch in /, "")}${more.length ? ` (${1 + more.length} vectors)` : ""}`;
    if (!best) readout.textContent = `${named(of, own)}: no weight`;
    else {
      const value = of === "query" ? between(own, best[0]) : between(best[0], own);
      readout.textContent = `${named(of, own)} ${of === "query" ? "→" : "←"} ${named(other, best[0])}: ${exactly(value, store.signed)}`;
    }
  }

  /** The weight of all of these queries, on the mean, on all of these keys, with its error. */
  function between(queries, keys) {
    const map = store.map(store.layer, store.head);
    const cells = queries.flatMap((i) => keys.map((j) => map.value(i, j)));
    if (cells.length === 1) return cells[0];
    const mean = (of) => cells.reduce((sum, cell) => sum + of(cell), 0) / queries.length;
    return { w: mean(({ w }) => w ?? 0), error: mean(({ error, below }) => below ?? error) };
  }

  const point = (at) => view.hover(at === null ? NONE : { ...NONE, [side]: at });
  const pin = (at) => store.set({ ...NONE, [side]: together(grid, at).includes(store.pinned(side)) ? null : at });

  function under(event) {
    const box = stage.getBoundingClientRect();
    return tokenAt(grid, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  }

  stage.addEventListener("pointermove", (event) => point(under(event)));
  stage.addEventListener("pointerleave", () => point(null));
  stage.addEventListener("click", (event) => {
    const at = under(event);
    if (at !== null) pin(at);
  });
  stage.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    const now = activeOf(store);
    const at = now && now[0] === side ? now[1] : null;
    if (event.key === "Enter" && at !== null) pin(at);
    else if (event.key === "Escape") store.set(NONE);
    else {
      const next = at === null ? (event.key.startsWith("Arrow") ? tokensOf(grid, 0)[0] : null) : neighbour(grid, at, event.key);
      if (next === null) return;
      point(next);
      view.announce(token(side, next).full);
    }
    event.preventDefault();
  });
  stage.addEventListener("blur", () => point(null));

  return { node, shown, words, draw, hover };
}
