// The chosen head as a matrix: queries down, keys across, a crosshair and the value under it.
import { NONE } from "#lib/active.js";
import { bitmap, button, el, hatchKey, plain, sized } from "#parts/dom.js";
import { lookup, painted } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { exactly, weight } from "#lib/words.js";
import { holding, labelStep, shifted, whole, zoomed } from "#lib/window.js";

const MOST = 104; // pixels for the longest label
const HIGH = 420; // of labels and map together
const BESIDE = 12; // of the column of what the weights of a row leave of one
const APART = 5; // between it and the map
const REST = "rest of 1";
const REST_HIGH = 70; // of its label, upright

/** What "±" means, for everybody who meets one. */
export const ROUNDING = "± is the most that storing each weight in 8 bits can have changed it.";

export function matrixPanel(store, view) {
  const base = el("canvas", { class: "av-canvas", "aria-hidden": "true" });
  const cross = el("canvas", { class: "av-canvas", "aria-hidden": "true" });
  const stage = el(
    "div",
    {
      class: "av-matrix",
      role: "application",
      tabindex: "0",
      "aria-roledescription": "matrix",
      testid: "matrix",
    },
    base,
    cross,
  );
  const readout = el("p", { class: "av-readout", testid: "readout" });
  const zoomer = (text, label, act) => button({ text, title: label, "aria-label": label, onclick: act });
  const zoomButtons = el(
    "div",
    { class: "av-row av-zoom", role: "group", "aria-label": "Zoom" },
    zoomer("−", "Zoom out", () => zoom(1.6)),
    zoomer("+", "Zoom in", () => zoom(1 / 1.6)),
    zoomer("Fit", "Show the whole matrix", () => fit()),
  );
  const scale = el("div", { class: "av-scale", testid: "scale" });
  const title = el("h3", { text: "Matrix" });
  const node = el(
    "section",
    { class: "av-panel av-panel-matrix", "aria-label": "Matrix" },
    el("div", { class: "av-row av-head-row" }, title, zoomButtons),
    readout,
    stage,
    scale,
  );
  let place = null; // of the plot: {x, y, wide, high}
  let window_ = null;
  let known = "";
  let LEFT = MOST;
  let TOP = MOST;
  let cell = null; // under the pointer or the keyboard

  function draw() {
    const { n, m } = store.shape;
    const { q, k } = store.shape;
    const left = store.left(store.layer, store.head);
    const name = [n, m, q.set, q.start, k.set, store.loads, Boolean(left)].join();
    if (name !== known) {
      LEFT = room("q", n) + (left ? BESIDE + APART : 0);
      TOP = Math.max(room("k", m), left ? REST_HIGH : 0);
      window_ = whole(n, m);
      cell = null;
    }
    known = name;
    const wide = Math.max(200, stage.clientWidth);
    const most = (view.matrixHigh ?? HIGH) - TOP - 10;
    const across = wide - LEFT - 6;
    const aspect = (window_.i1 - window_.i0) / (window_.j1 - window_.j0);
    let [plotWide, plotHigh] = [across, across * aspect];
    if (plotHigh > most) [plotWide, plotHigh] = [Math.max(across * 0.3, most / aspect), most];
    plotWide = Math.min(plotWide, across, Math.max(40, (window_.j1 - window_.j0) * 48));
    plotHigh = Math.min(Math.max(plotHigh, 24), Math.max(24, (window_.i1 - window_.i0) * 48));
    place = { x: LEFT, y: TOP, wide: Math.round(plotWide), high: Math.round(plotHigh) };
    stage.style.height = `${TOP + place.high + 10}px`;
    title.textContent = `Matrix of ${store.called(store.layer, store.head)}`;
    stage.setAttribute("aria-label", `${title.textContent}: ${n} queries by ${m} keys. Arrow keys move over cells, enter pins, plus and minus zoom.`);
    paint(wide);
    paintScale();
    hover();
  }

  /** Pixels for the labels of one side (of a long input, of a sample). */
  function room(side, count) {
    const context = base.getContext("2d");
    context.font = view.font;
    let most = 12;
    for (let at = 0; at < count; at += Math.ceil(count / 500)) {
      most = Math.max(most, context.measureText(store.token(side, at).short).width);
    }
    return Math.ceil(Math.min(MOST, most + 14));
  }

  function paint(wide) {
    const context = sized(base, wide, TOP + place.high + 10);
    const map = store.map(store.layer, store.head);
    const largest = topOfScale();
    const ratio = window.devicePixelRatio || 1;
    // Whole cells are drawn, and the rest of the first and last is clipped.
    const [i0, j0] = [Math.floor(window_.i0), Math.floor(window_.j0)];
    const [i1, j1] = [Math.ceil(window_.i1), Math.ceil(window_.j1)];
    const columns = Math.min(j1 - j0, Math.round(place.wide * ratio));
    const rows = Math.min(i1 - i0, Math.round(place.high * ratio));
    const values = map.picture(i0, i1, j0, j1, columns, rows);
    const masked = store.maskPicture(store.layer, store.head, i0, i1, j0, j1, columns, rows);
    const image = bitmap(painted(values, largest, store.signed, view.dark, masked), columns, rows);
    context.save();
    context.beginPath();
    context.rect(place.x, place.y, place.wide, place.high);
    context.clip();
    context.imageSmoothingEnabled = false;
    if (masked) {
      blank(context, place.x, place.y, place.wide, place.high, "--av-hatch-ground");
      hatched(context, place.x, place.y, place.wide, place.high, view.colour("--av-hatch"));
    }
    const [cw, ch] = pixels();
    context.drawImage(image, xOf(j0), yOf(i0), (j1 - j0) * cw, (i1 - i0) * ch);
    context.restore();
    context.strokeStyle = view.colour("--av-line");
    context.strokeRect(place.x - 0.5, place.y - 0.5, place.wide + 1, place.high + 1);
    paintLeft(context, i0, i1, largest);
    labels(context);
  }

  /** The map and the column beside it have one scale. */
  function topOfScale() {
    const left = store.left(store.layer, store.head) ?? [];
    return left.reduce((most, share) => Math.max(most, share), store.largest(store.layer, store.head));
  }

  const leftOf = () => place.x - BESIDE - APART;

  /** What each row leaves of one (for a sink, a gate, or subtracted), as a column apart from the keys. */
  function paintLeft(context, i0, i1, largest) {
    const left = store.left(store.layer, store.head);
    if (!left) return;
    const shares = left.slice(i0, Math.min(i1, left.length));
    const image = bitmap(painted(shares, largest, store.signed, view.dark, null), 1, shares.length);
    context.save();
    context.beginPath();
    context.rect(leftOf(), place.y, BESIDE, place.high);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(image, leftOf(), yOf(i0), BESIDE, shares.length * pixels()[1]);
    context.restore();
    context.strokeRect(leftOf() - 0.5, place.y - 0.5, BESIDE + 1, place.high + 1);
    context.font = view.font;
    context.fillStyle = view.colour("--av-quiet");
    context.textBaseline = "middle";
    columnText(context, REST, leftOf() + BESIDE / 2);
  }

  /** Where the labels of the queries end. */
  const labelled = () => (store.left(store.layer, store.head) ? leftOf() : place.x);

  const pixels = () => [place.wide / (window_.j1 - window_.j0), place.high / (window_.i1 - window_.i0)];
  const xOf = (j) => place.x + (j - window_.j0) * pixels()[0];
  const yOf = (i) => place.y + (i - window_.i0) * pixels()[1];

  function labels(context) {
    const [cw, ch] = pixels();
    context.font = view.font;
    context.fillStyle = view.colour("--av-quiet");
    context.textBaseline = "middle";
    const down = labelStep(ch, 14);
    for (let i = Math.ceil(window_.i0 / down) * down; i < window_.i1; i += down) {
      const y = yOf(i + 0.5);
      if (y < place.y || y > place.y + place.high) continue;
      rowLabel(context, i, y);
    }
    const across = labelStep(cw, 14);
    for (let j = Math.ceil(window_.j0 / across) * across; j < window_.j1; j += across) {
      const x = xOf(j + 0.5);
      if (x < place.x || x > place.x + place.wide) continue;
      columnLabel(context, j, x);
    }
  }

  function rowLabel(context, i, y) {
    context.textAlign = "right";
    context.fillText(clipped(context, store.token("q", i).short, labelled() - 12), labelled() - 6, y);
  }

  const columnLabel = (context, j, x) => columnText(context, store.token("k", j).short, x);

  function columnText(context, text, x) {
    context.save();
    context.translate(x, place.y - 6);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(clipped(context, text, TOP - 10), 0, 0);
    context.restore();
  }

  function clipped(context, text, room) {
    if (context.measureText(text).width <= room) return text;
    const letters = Array.from(text);
    while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > room) letters.pop();
    return `${letters.join("")}…`;
  }

  function active() {
    const { query, key } = store.hover;
    if (cell) return cell;
    const i = query ?? (key === null ? store.pinned("query") : null);
    const j = key ?? (query === null ? store.pinned("key") : null);
    return { i, j };
  }

  function hover() {
    if (!place) return;
    const { i, j } = active();
    const context = sized(cross, Math.max(200, stage.clientWidth), TOP + place.high + 10);
    const [cw, ch] = pixels();
    const { n, m } = store.shape;
    const row = i !== null && i < n && i >= window_.i0 - 1 && i < window_.i1;
    const column = j !== null && j < m && j >= window_.j0 - 1 && j < window_.j1;
    context.lineWidth = 1;
    context.font = view.font;
    context.textBaseline = "middle";
    const frame = (x, y, wide, high) => {
      context.strokeStyle = view.colour("--av-paper");
      context.lineWidth = 3.5;
      context.strokeRect(x, y, wide, high);
      context.strokeStyle = view.colour("--av-ink");
      context.lineWidth = 1.5;
      context.strokeRect(x, y, wide, high);
    };
    context.save();
    context.beginPath();
    context.rect(place.x - 2, place.y - 2, place.wide + 4, place.high + 4);
    context.clip();
    if (row) frame(place.x, yOf(i), place.wide, Math.max(2, ch));
    if (column) frame(xOf(j), place.y, Math.max(2, cw), place.high);
    context.restore();
    if (row) {
      const y = yOf(i + 0.5);
      near(i, labelStep(ch, 14), 15 / ch).forEach((other) => blank(context, 0, yOf(other + 0.5) - 8, labelled() - 2, 16));
      badge(context, () => rowLabel(context, i, y), 0, y - 8, labelled() - 2, 16);
    }
    if (column) {
      const x = xOf(j + 0.5);
      near(j, labelStep(cw, 14), 15 / cw).forEach((other) => blank(context, xOf(other + 0.5) - 8, 0, 16, TOP - 2));
      badge(context, () => columnLabel(context, j, x), x - 8, 0, 16, TOP - 2);
    }
    say(i, j);
  }

  /** The labelled places within `reach` cells: they would be written over. */
  function near(at, step, reach) {
    const found = [];
    for (let other = Math.ceil((at - reach) / step) * step; other < at + reach; other += step) {
      if (other >= 0) found.push(other);
    }
    return found;
  }

  function blank(context, x, y, wide, high, colour = "--av-paper") {
    context.fillStyle = view.colour(colour);
    context.fillRect(x, y, wide, high);
  }

  function badge(context, write, x, y, wide, high) {
    context.fillStyle = view.colour("--av-ink");
    context.fillRect(x, y, wide, high);
    context.fillStyle = view.colour("--av-paper");
    write();
  }

  function say(i, j) {
    const { n, m } = store.shape;
    const parts = [];
    if (i !== null && i < n) parts.push(`query ${i} “${store.token("q", i).short}”`);
    if (j !== null && j < m) parts.push(`key ${j} “${store.token("k", j).short}”`);
    const left = i !== null && i < n ? store.left(store.layer, store.head) : null;
    const rest = left ? ` · rest ${weight(left[i], 0.01)}` : "";
    if (parts.length === 2) {
      readout.textContent = `${parts.join(" → ")}: ${valueOf(i, j)}${rest}`;
    } else {
      readout.textContent = (parts[0] && `${parts[0]}${rest}`) ?? "Point at a cell, or walk with the arrow keys.";
    }
    readout.title = readout.textContent.includes("±") ? `${readout.textContent}\n${ROUNDING}` : readout.textContent;
  }

  function valueOf(i, j) {
    const found = store.map(store.layer, store.head).value(i, j);
    const allowed = store.allowed(store.layer, store.head);
    return allowed && !allowed(i, j) && !found.w ? "masked: it may not attend there" : exactly(found, store.signed);
  }

  function paintScale() {
    const largest = topOfScale();
    const signed = store.signed;
    const bar = el("canvas", { "aria-hidden": "true" });
    const tight = stage.clientWidth < 360;
    const long = tight ? (signed ? 190 : 130) : Math.min(signed ? 260 : 180, Math.max(120, stage.clientWidth - LEFT - 12));
    const context = sized(bar, long, 10);
    const colours = lookup(signed, view.dark);
    context.drawImage(bitmap(Uint32Array.from(colours), 256, 1), 0, 0, long, 10);
    const shares = signed ? [-1, -0.5, 0, 0.5, 1] : [0, 0.5, 1];
    const said = (share) => {
      const value = Math.sign(share) * share * share * largest;
      return value === 0 ? "0" : `${signed && value > 0 ? "+" : ""}${value.toPrecision(2)}`.replace("-", "−");
    };
    scale.style.paddingLeft = tight ? "0" : `${LEFT}px`;
    const ticks = el("div", { class: "av-ticks", style: `width: ${long}px` }, ...shares.map((share) => el("span", { text: said(share) })));
    const words = store.get("shown") === "difference"
      ? `difference: ${store.recording.names[1]} − ${store.recording.names[0]}`
      : "weight";
    scale.title = "The colour goes by the square root of the weight, so that small weights show.";
    scale.replaceChildren(el("div", { class: "av-scale-bar" }, bar, ticks), el("span", { class: "av-quiet", text: words }), ...(store.masksOf(store.layer) ? [hatchKey(view, "masked")] : []));
  }

  function at(event) {
    const box = stage.getBoundingClientRect();
    const [cw, ch] = pixels();
    const j = Math.floor(window_.j0 + (event.clientX - box.left - place.x) / cw);
    const i = Math.floor(window_.i0 + (event.clientY - box.top - place.y) / ch);
    const inside = event.clientX - box.left >= place.x && event.clientY - box.top >= place.y;
    const { n, m } = store.shape;
    return inside && i < Math.min(n, Math.ceil(window_.i1)) && j < Math.min(m, Math.ceil(window_.j1)) ? { i, j } : null;
  }

  let drag = null;
  stage.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, window: window_, moved: false };
  });
  stage.addEventListener("pointermove", (event) => {
    if (drag && event.buttons === 1) {
      const [cw, ch] = pixels();
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (Math.abs(dx) + Math.abs(dy) > 4) drag.moved = true;
      if (drag.moved) {
        window_ = shifted(drag.window, -dy / ch, -dx / cw, store.shape.n, store.shape.m);
        view.later(draw);
        return;
      }
    }
    point(at(event));
  });
  stage.addEventListener("pointerleave", () => point(null));
  stage.addEventListener("click", (event) => {
    const dragged = drag?.moved;
    drag = null;
    const found = at(event);
    if (dragged || !found) return;
    pin(found);
  });
  stage.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const found = at(event);
      if (found) zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, found);
    },
    { passive: false },
  );

  function point(found) {
    cell = found;
    view.hover(found ? { query: found.i, key: null } : NONE);
  }

  function pin({ i, j }) {
    const again = store.pinned("query") === i && store.pinned("key") === j;
    store.set(again ? NONE : { query: i, key: j });
    view.announce(again ? "nothing is pinned" : `pinned: ${readout.textContent}`);
  }

  stage.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    const { n, m } = store.shape;
    const now = cell ?? { i: store.pinned("query") ?? 0, j: store.pinned("key") ?? 0 };
    const steps = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
      PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -m], End: [0, m],
    };
    if (event.key in steps) {
      event.preventDefault();
      const [down, right] = cell ? steps[event.key] : [0, 0];
      const next = { i: Math.min(n - 1, Math.max(0, now.i + down)), j: Math.min(m - 1, Math.max(0, now.j + right)) };
      const held = holding(window_, next.i, next.j, n, m);
      const moved = held.i0 !== window_.i0 || held.j0 !== window_.j0;
      window_ = held;
      if (moved) draw();
      point(next);
      view.announce(readout.textContent);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pin(now);
    } else if (event.key === "+" || event.key === "=") zoom(1 / 1.6);
    else if (event.key === "-") zoom(1.6);
    else if (event.key === "0") fit();
    else if (event.key === "Escape") {
      store.set(NONE);
      point(null);
    }
  });
  stage.addEventListener("blur", () => point(null));

  function zoom(factor, around = cell) {
    const { n, m } = store.shape;
    const { i, j } = around ?? { i: (window_.i0 + window_.i1) / 2, j: (window_.j0 + window_.j1) / 2 };
    window_ = zoomed(window_, factor, i + 0.5, j + 0.5, n, m);
    draw();
  }

  function fit() {
    window_ = whole(store.shape.n, store.shape.m);
    draw();
  }

  /** Pixels across that a map as high as there is room fills. */
  const wanted = () => room("q", store.shape.n) + (store.left(store.layer, store.head) ? BESIDE + APART : 0) + (view.matrixHigh - room("k", store.shape.m) - 10) * Math.min(1.4, store.shape.m / store.shape.n) + 8;

  return { node, draw, hover, wanted };
}
