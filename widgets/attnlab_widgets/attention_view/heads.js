// All heads as small maps: choose one, add others as lines, sort and filter by a statistic.
import { bitmap, choice, el, plain, sized, slider } from "#parts/dom.js";
import { painted } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { arranged, known, listed, range, STATISTICS } from "#lib/heads.js";
import { moved } from "#lib/keys.js";
import { shortName, weight } from "#lib/words.js";

const gapOf = (columns) => (columns > 7 ? 3 : 6);
const LEAD = 24; // pixels for the names of layers, more where they say a side
const SIDED = 52;
const LARGEST = 170; // pixels of one map

export function headsPanel(store, view) {
  const sort = choice(
    "by",
    "sort",
    Object.entries(STATISTICS).map(([name, { label }]) => [name, label]),
    (value) => store.set({ sort: value, at_least: null }),
  );
  const filter = slider("at least", "at-least", { min: 0, max: 1, step: "any" }, (value) =>
    store.set({ at_least: value <= Number(filter.input.min) ? null : value }),
  );
  const count = el("span", { class: "av-quiet", testid: "head-count" });
  const grid = el("div", {
    class: "av-heads",
    role: "listbox",
    "aria-multiselectable": "true",
    "aria-label": "Heads: arrow keys choose, space adds a head to the lines",
    testid: "heads",
  });
  // One canvas behind the list, for the heads in view: with one each, the browser would hand over
  // hundreds of layers whenever a line is drawn elsewhere.
  const sheet = el("canvas", { class: "av-canvas", "aria-hidden": "true" });
  const node = el(
    "section",
    { class: "av-panel av-panel-heads", "aria-label": "All heads" },
    el("div", { class: "av-row av-head-row" }, el("h3", { text: "Heads" }), count, sort.node),
    el("div", { class: "av-row av-filter" }, filter.node),
    el("div", { class: "av-heads-frame" }, sheet, grid),
    el("p", { class: "av-quiet av-hint av-heads-hint", text: "Shift- or Ctrl-click adds a head to the lines." }),
  );
  const images = new Map();
  let cells = new Map();
  let drawn = "";
  let painted_ = "";
  let focusNext = false;

  function draw() {
    const { layers } = store;
    const order = store.get("sort");
    const all = listed(layers, store.statistics, order);
    const shown = arranged(all, order, store.get("at_least"));
    tune(all, shown, order);
    const columns = layout(shown, order);
    const signature = JSON.stringify([shown, order, columns, store.layers.map((x) => x.name)]);
    const rebuilt = signature !== drawn;
    if (rebuilt) build(shown, order, columns);
    drawn = signature;
    const look = [store.loads, store.step, store.get("shown"), ...Object.values(store.settings), view.dark, window.devicePixelRatio].join();
    mark();
    if (rebuilt) reveal();
    if (rebuilt || look !== painted_) {
      images.clear();
      paint();
    }
    painted_ = look;
  }

  /** Scrolls this list alone; scrollIntoView would move the notebook as well. */
  function reveal() {
    const chosen = cells.get(`${store.layer}/${store.head}`);
    if (!chosen) return;
    const [top, high] = [chosen.option.offsetTop, chosen.option.offsetHeight];
    if (top < grid.scrollTop || top + high > grid.scrollTop + grid.clientHeight) {
      grid.scrollTop = top - grid.clientHeight / 2;
    }
  }

  function tune(all, shown, order) {
    const told = known(store.statistics);
    for (const option of sort.select.options) option.hidden = !told.includes(option.value);
    sort.select.value = order;
    const span = order === "layer" ? null : range(all);
    filter.node.parentElement.hidden = !span || span[0] === span[1];
    if (span) {
      [filter.input.min, filter.input.max] = span;
      const value = store.get("at_least");
      filter.input.value = value ?? span[0];
      filter.output.textContent = value === null ? "all" : weight(value);
    }
    count.textContent = shown.length === all.length ? "" : `${shown.length} of ${all.length}`;
  }

  /** As large as width and height allow; of many heads a part is in view. */
  function layout(shown, order) {
    const { clientWidth } = node;
    const high = (view.headsHigh ?? 440) - (order === "layer" ? 0 : 40);
    grid.style.maxHeight = `${high}px`;
    const wide = Math.max(160, clientWidth - 12);
    const most = across();
    const GAP = gapOf(most);
    grid.style.gap = `${GAP}px`;
    const fit = (columns, room) => Math.floor((room - (columns - 1) * GAP) / columns);
    if (order === "layer") {
      const across = fit(most, wide - lead() - GAP);
      const down = fit(store.layers.length, high - 34);
      return { columns: most, side: Math.max(20, Math.min(LARGEST, across, Math.max(down, 32))), labelled: true };
    }
    for (let columns = 1; ; columns += 1) {
      const side = Math.min(LARGEST, fit(columns, wide));
      const rows = Math.ceil(Math.max(1, shown.length) / columns);
      if (side <= 46 || rows * (side + 32 + GAP) <= high) return { columns, side: Math.max(32, side), labelled: false };
    }
  }

  function build(shown, order, { columns, side, labelled }) {
    cells = new Map();
    grid.replaceChildren();
    grid.classList.toggle("av-heads-labelled", labelled);
    const first = labelled ? `${lead()}px ` : "";
    grid.style.gridTemplateColumns = `${first}repeat(${columns}, ${side}px)`;
    if (labelled) {
      grid.append(el("span", { "aria-hidden": "true" }));
      for (let head = 0; head < columns; head += 1) grid.append(label(head, "av-head-label"));
    }
    let last = -1;
    for (const { layer, head, value } of shown) {
      if (labelled && layer !== last) {
        const row = label(shortName(store.layers[layer].title, layer), "av-layer-label");
        row.style.gridColumn = "1";
        row.title = `${store.layers[layer].title ?? `layer ${layer}`} (${store.layers[layer].name})`;
        grid.append(row);
        last = layer;
      }
      grid.append(cell(layer, head, value, order, side, labelled));
    }
    if (!shown.length) grid.append(el("p", { class: "av-quiet", text: "No head is above this value." }));
  }

  const lead = () => (store.layers.some(({ title }) => title) ? SIDED : LEAD);
  const label = (text, name) => el("span", { class: name, "aria-hidden": "true", text: String(text) });

  function cell(layer, head, value, order, side, plain) {
    const { label: statistic, unit } = STATISTICS[order];
    const said = value === null ? "" : `, ${statistic} ${weight(value)} ${unit}`.trimEnd();
    const option = el(
      "div",
      {
        class: "av-head",
        role: "option",
        tabindex: "-1",
        title: `${store.called(layer, head)} (${store.layers[layer].name})${said}`,
        "aria-label": store.called(layer, head) + said,
        testid: `head-${layer}-${head}`,
        onclick: (event) => pick(layer, head, event.shiftKey || event.ctrlKey || event.metaKey),
      },
      el("span", { class: "av-head-map", style: `width: ${side}px; height: ${side}px` }),
    );
    if (!plain) {
      option.append(el("span", { class: "av-head-name", text: `${layer}·${head}` }));
      option.append(el("span", { class: "av-head-value", text: value === null ? "—" : weight(value) }));
    }
    cells.set(`${layer}/${head}`, { option, side, layer, head });
    return option;
  }

  function paint() {
    const context = sized(sheet, grid.clientWidth, grid.clientHeight);
    context.imageSmoothingEnabled = false;
    for (const [name, { option, side, layer, head }] of cells) {
      const [x, y] = [option.offsetLeft, option.offsetTop - grid.scrollTop];
      if (y + side < 0 || y > grid.clientHeight) continue;
      if (!images.has(name)) images.set(name, image(layer, head, side));
      if (store.masksOf(layer)) {
        const at = [x - grid.scrollLeft, y, side, side];
        context.fillStyle = view.colour("--av-hatch-ground");
        context.fillRect(...at);
        hatched(context, ...at, view.colour("--av-hatch"));
      }
      context.drawImage(images.get(name), x - grid.scrollLeft, y, side, side);
    }
  }

  function image(layer, head, side) {
    const { n, m } = store.layers[layer];
    const pixels = Math.round(side * Math.min(2, window.devicePixelRatio || 1));
    const [wide, high] = [Math.min(m, pixels), Math.min(n, pixels)];
    const values = store.map(layer, head).picture(0, n, 0, m, wide, high);
    const masked = store.maskPicture(layer, head, 0, n, 0, m, wide, high);
    return bitmap(painted(values, store.largest(layer, head), store.signed, view.dark, masked), wide, high);
  }

  function mark() {
    const chosen = `${store.layer}/${store.head}`;
    const others = new Map(store.lineHeads.map(([layer, head], at) => [`${layer}/${head}`, at]));
    let reachable = null;
    for (const [name, { option }] of cells) {
      option.setAttribute("aria-selected", String(others.has(name)));
      option.classList.toggle("av-chosen", name === chosen);
      option.dataset.line = others.has(name) && others.size > 1 ? String(others.get(name) + 1) : "";
      option.tabIndex = name === chosen ? 0 : -1;
      if (name === chosen) reachable = option;
    }
    if (!reachable && cells.size) [...cells.values()][0].option.tabIndex = 0;
    if (focusNext && reachable) reachable.focus({ preventScroll: false });
    focusNext = false;
  }

  function pick(layer, head, add) {
    if (!add) {
      const { n, m } = store.layers[layer];
      const [query, key] = [store.get("query"), store.get("key")];
      const kept = { query: query !== null && query >= n ? null : query, key: key !== null && key >= m ? null : key };
      store.set({ layer, head, ...kept });
      view.announce(`${store.called(layer, head)}, ${store.layers[layer].name}`);
      return;
    }
    const others = store.get("heads");
    const known = others.some(([l, h]) => l === layer && h === head);
    store.set({
      heads: known ? others.filter(([l, h]) => l !== layer || h !== head) : [...others, [layer, head]],
    });
    view.announce(`${store.called(layer, head)} ${known ? "is no longer" : "is"} shown with the chosen head`);
  }

  grid.addEventListener("scroll", () => view.later(paint));
  grid.addEventListener("keydown", (event) => {
    const order = [...cells.values()];
    const at = order.findIndex(({ option }) => option === event.target);
    if (at < 0 || !plain(event)) return;
    if (event.key === " " || event.key === "Enter") {
      event.preventDefault();
      pick(order[at].layer, order[at].head, event.key === " ");
      return;
    }
    const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length - (store.get("sort") === "layer" ? 1 : 0);
    const next = moved(at, order.length, event.key, columns);
    if (next === null) return;
    event.preventDefault();
    focusNext = true;
    pick(order[next].layer, order[next].head, false);
    order[next].option.focus();
  });

  /** Pixels that the maps would fill, were there room enough. */
  function wanted() {
    const most = across();
    const GAP = gapOf(most);
    const high = ((view.headsHigh ?? 440) - 34 - (store.layers.length - 1) * GAP) / store.layers.length;
    return lead() + 16 + most * (Math.max(32, Math.min(LARGEST, high)) + GAP);
  }

  const across = () => Math.max(...store.layers.map(({ h }) => h));

  return { node, draw, hover() {}, wanted, across };
}
