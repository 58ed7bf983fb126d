// The tree: words side by side, phrases above them; the columns are those of the tables below.
import { above, branch, shares } from "./trees.js";
import { css } from "#lib/colours.js";
import { el, plain } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { said, short } from "./study.js";

export const LEFT = 92, RIGHT = 64;
const TOP = 4, MOST_HIGH = 220, DEEP_HIGH = 320, STRIP = 58;
const PALE = 3;

/** The width of one word's column. */
export const columnOf = (wide, n) => Math.min(92, (wide - LEFT - RIGHT) / n);

/** The selected keys: one, or a run of neighbours under one parent. */
export function neighbours(study) {
  const { keys, nodes, parents } = study.tree;
  const key = study.selected;
  if (study.until === null || parents[key] < 0) return [key];
  const all = nodes[parents[key]].children.map((child) => keys.indexOf(child));
  const [a, b] = [all.indexOf(key), all.indexOf(study.until)].sort((x, y) => x - y);
  return a < 0 ? [key] : all.slice(a, b + 1);
}

export function drawingPanel(study, view) {
  const picture = drawn("svg", { class: "te-drawing", role: "tree", "aria-label": "The tree", "data-testid": "drawing" });
  const strip = drawn("g", {});
  const node = el("section", { class: "te-tree", "aria-label": "Drawing" }, picture);
  let places = [];
  let column = 40;
  let bottom = 0;
  let gap = 5; // from a phrase down to the bend of its lines
  let boxes = [];

  const narrow = () => column < 34;

  function place() {
    const { n, m, keys, nodes } = study.tree;
    const depths = keys.map((_, key) => above(study.tree, key).length);
    const deepest = Math.max(...depths);
    const leaf = narrow() ? 58 : 34;
    const full = narrow() ? 20 : 34;
    // Deep trees may be taller than others, and their phrases flatter.
    const wished = (MOST_HIGH - leaf) / deepest;
    const level = wished >= full + 6 ? Math.min(54, wished) : Math.min(full + 6, (DEEP_HIGH - leaf) / deepest);
    const box = Math.min(full, level - 3);
    gap = Math.min(5, (level - box) / 2);
    places = keys.map((_, key) => ({ x: LEFT + (key + 0.5) * column, y: TOP + level * (key < n ? deepest : depths[key]), box: key < n ? leaf : box }));
    for (let i = m - 1; i >= 0; i -= 1) {
      const xs = nodes[i].children.map((child) => places[keys.indexOf(child)].x);
      places[n + i].x = (Math.min(...xs) + Math.max(...xs)) / 2;
    }
    boxes = keys.map((one, key) => {
      const room = (key < n ? 1 : leavesBelow(study.tree, key - n)) * column - 4;
      const upright = narrow() && key < n;
      const name = short(study.tree.names[key], upright ? 58 : Math.min(110, room) / (narrow() ? 0.85 : 1));
      return { name, wide: Math.max(16, Math.min(room, Math.max(38, Array.from(name).length * 8 + 12))) };
    });
    bottom = TOP + level * deepest + leaf;
    study.tall = Math.max(0, bottom - MOST_HIGH); // what the tables do without
  }

  function draw() {
    const focused = picture.contains(document.activeElement);
    const { n, keys, parents } = study.tree;
    const wide = node.clientWidth;
    column = columnOf(wide, n);
    place();
    const high = bottom + (counting() ? STRIP : 6);
    picture.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    picture.setAttribute("width", wide);
    picture.setAttribute("height", high);
    const [i, j] = study.cell;
    const line = counting() ? branch(study.tree, i, j) ?? [] : [];
    const on = new Set(line.slice(1).map((t) => n + t));
    if (line.length) on.add(j);
    const edges = parents.map((up, key) => {
      if (up < 0) return null;
      const [a, b] = [places[n + up], places[key]];
      const turn = a.y + a.box + gap;
      return drawn("path", { class: on.has(key) ? "te-edge te-on" : "te-edge", d: `M${a.x} ${a.y + a.box}V${turn}H${b.x}V${b.y}` });
    }).filter(Boolean);
    edges.sort((a, b) => a.classList.contains("te-on") - b.classList.contains("te-on"));
    const chosen = neighbours(study);
    const members = new Set(line.length ? [j, ...line.map((t) => n + t)] : []);
    picture.replaceChildren(...edges, ...keys.map((_, key) => box(key, chosen, members)), strip);
    picture.setAttribute("aria-label", `The tree ${study.get("tree")}`);
    if (focused) focusTree();
    hover();
  }

  const counting = () => ["interpolation", "average", "aggregation"].includes(study.get("step"));

  function box(key, chosen, members) {
    const { n, keys, names } = study.tree;
    const { x, y, box: high } = places[key];
    const { name, wide } = boxes[key];
    const look = lookOf(key);
    const selected = key === study.selected;
    const kind = key < n ? "word" : "phrase";
    const classes = ["te-node", `te-${kind}`, chosen.includes(key) && "te-selected", members.has(key) && "te-member"].filter(Boolean).join(" ");
    const one = drawn("g", {
      class: classes, role: "treeitem", "aria-selected": String(chosen.includes(key)), "aria-level": above(study.tree, key).length + 1,
      "aria-label": `${kind} ${names[key]}, ${look.said}`, tabindex: selected ? 0 : -1, "data-key": key, "data-testid": `node-${key}`,
    });
    const frame = { x: x - wide / 2, y, width: wide, height: high, rx: key < n ? 2 : 9 };
    one.append(drawn("rect", { class: "te-box", ...frame, style: look.fill ? `fill:${look.fill}` : null }));
    if (look.hatched) one.append(hatching(frame));
    const ink = look.ink ? `fill:${look.ink}` : null;
    const turned = narrow() && key < n ? `rotate(-90 ${x} ${y + high / 2})` : null;
    const both = high >= 30 && !turned;
    const letters = high < 16 ? `font-size:${high - 2}px;` : "";
    one.append(drawn("text", { class: narrow() ? "te-name te-small" : "te-name", x, y: both ? y + 14 : y + high / 2 + Math.min(4, high / 3), transform: turned, style: letters + (ink ?? ""), text: name }));
    if (both) one.append(drawn("text", { class: "te-number-said", x, y: y + 28, style: ink, text: look.text }));
    one.append(drawn("title", { text: `${names[key]}: ${look.said}` }));
    one.addEventListener("click", (event) => {
      if (event.shiftKey && siblings(key)) extend(key);
      else study.select(key);
      focusTree();
    });
    one.addEventListener("dblclick", () => view.rename());
    one.addEventListener("pointerenter", () => view.point(key < n ? { leaf: key } : { node: key - n }));
    one.addEventListener("pointerleave", () => view.point(null));
    return one;
  }

  /** Colour and number of a node in this step. */
  function lookOf(key) {
    const { n, keys, gathered, leaves } = study.tree;
    const step = study.get("step");
    const dark = view.dark;
    if (step === "mask" || (step === "attention" && !study.attentionFits)) {
      const allowed = study.tree.mask[study.selected][key];
      if (step === "attention") return { text: "", said: "no attention recorded" };
      return { hatched: !allowed, fill: allowed ? "var(--av-mark)" : "var(--av-panel)", text: allowed ? "✓" : "", said: allowed ? "may be attended to" : "may not be attended to" };
    }
    if (step === "attention") {
      const weight = study.weight(study.selected, key);
      if (Number.isNaN(weight)) return { hatched: true, fill: "var(--av-panel)", text: "", said: "may not be attended to" };
      return { ...filled(weight, 1, false, dark), text: small(weight), said: `attended to with weight ${said(weight)}` };
    }
    const sums = step === "aggregation";
    const value = key < n ? leaves[key].value : sums ? gathered[key - n] : keys[key].value;
    const largest = Math.max(...(sums ? [...gathered, ...leaves.map((leaf) => leaf.value)] : keys.map((one) => one.value)).map(Math.abs));
    const what = key < n ? "value" : sums ? "gathers" : "value";
    return { ...filled(value, largest, true, dark), text: said(value), said: `${what} ${said(value)}` };
  }

  /** How much each word below the phrase adds to what it gathers. */
  function drawStrip() {
    strip.replaceChildren();
    if (!counting()) return;
    const { terms, gathered, names, n } = study.tree;
    const i = study.phrase;
    const parts = shares(terms[i]);
    const largest = Math.max(1e-12, ...terms[i].map((term) => Math.abs(term ?? 0)));
    const [top, room] = [bottom + 8, 24];
    strip.append(drawn("text", { class: "te-quiet", x: 0, y: top + 10, text: "each word adds" }));
    strip.append(drawn("text", { class: "te-strong", x: 0, y: top + 25, text: short(`to v̄(${names[n + i]})`, LEFT + 14) }));
    strip.append(drawn("text", { class: "te-quiet", x: 0, y: top + 40, text: `= ${said(gathered[i])}` }));
    terms[i].forEach((term, j) => {
      if (term === null) return;
      const x = LEFT + (j + 0.5) * column;
      const tall = Math.max(1, (Math.abs(term) / largest) * room);
      const wide = Math.min(34, column - 6);
      strip.append(drawn("rect", { class: term < 0 ? "te-bar te-minus" : "te-bar", x: x - wide / 2, y: top + room - tall, width: wide, height: tall, "data-bar": j }));
      if (column >= 34) strip.append(drawn("text", { class: "te-quiet te-middle", x, y: top + room + 13, text: said(term) }));
      if (column >= 34 && parts) strip.append(drawn("text", { class: "te-quiet te-middle", x, y: top + room + 26, text: `${Math.round(100 * parts[j])} %`, "data-share": j }));
    });
  }

  function hover() {
    const { n } = study.tree;
    const { node: i, leaf: j, key } = study.at ?? {};
    const hot = new Set();
    if (key !== undefined) hot.add(key);
    if (i !== undefined) hot.add(n + i);
    if (j !== undefined) hot.add(j);
    if (i !== undefined && j === undefined) study.tree.leaves.forEach((_, leaf) => branch(study.tree, i, leaf) && hot.add(leaf));
    for (const one of picture.querySelectorAll("[data-key]")) one.classList.toggle("te-hot", hot.has(Number(one.dataset.key)));
    drawStrip();
  }

  function focusTree() {
    picture.querySelector('[tabindex="0"]')?.focus();
  }
  view.focusTree = focusTree;

  // Keys

  function siblings(key) {
    const { parents } = study.tree;
    return parents[key] >= 0 && parents[key] === parents[study.selected];
  }

  function extend(key) {
    study.until = key;
    view.changed();
  }

  function move(event) {
    const { keys, nodes, parents, n } = study.tree;
    const key = study.selected;
    const children = parents[key] < 0 ? [] : nodes[parents[key]].children.map((child) => keys.indexOf(child));
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "ArrowUp") return parents[key] < 0 ? null : n + parents[key];
    if (event.key === "ArrowDown") return keys[key].children.length ? keys.indexOf(keys[key].children[0]) : null;
    if (event.key === "Home") return n;
    const beside = children[children.indexOf(key) + by];
    if (beside !== undefined) return beside;
    return key < n && key + by >= 0 && key + by < n ? key + by : null;
  }

  picture.addEventListener("keydown", (event) => {
    const ctrl = event.ctrlKey || event.metaKey;
    const letter = event.key.toLowerCase();
    if (ctrl && (letter === "z" || letter === "y")) {
      event.preventDefault();
      view.act(letter === "y" || event.shiftKey ? "redo" : "undo");
      return;
    }
    if (!plain(event)) return;
    if (event.key.startsWith("Arrow") || event.key === "Home") {
      event.preventDefault();
      if (event.shiftKey && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
        const { keys, nodes, parents } = study.tree;
        if (parents[study.selected] < 0) return;
        const all = nodes[parents[study.selected]].children.map((child) => keys.indexOf(child));
        const next = all[all.indexOf(study.until ?? study.selected) + (event.key === "ArrowLeft" ? -1 : 1)];
        if (next !== undefined) extend(next);
        return;
      }
      const next = move(event);
      if (next !== null) study.select(next);
      return;
    }
    const act = { a: "add", w: "wrap", u: "unwrap", delete: "delete", backspace: "delete" }[letter];
    if (act) view.act(act);
    else if (event.key === "Enter" || event.key === "F2") view.rename();
    else return;
    event.preventDefault();
  });

  return { node, draw, hover };
}

/** A weight of two decimals; one that is too small for them is not 0. */
const small = (weight) => (weight > 0 && weight < 0.005 ? "<0.01" : said(weight));

function leavesBelow(tree, node) {
  return tree.leaves.filter((_, j) => branch(tree, node, j)).length;
}

/** A box in the colour of a number, with the ink that can be read on it; signed colours stay pale. */
export function filled(value, largest, signed, dark) {
  const fill = css(value, signed ? PALE * largest : largest, signed, dark);
  const [r, g, b] = fill.match(/\d+/g).map((part) => (part / 255) ** 2.2);
  return { fill, ink: 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#101418" : "#ffffff" };
}

/** Diagonal lines over a box: masked. */
export function hatching({ x, y, width, height }) {
  let path = "";
  for (let at = -height + 6; at < width; at += 7) {
    const [from, to] = [Math.max(at, 0), Math.min(at + height, width)];
    path += `M${(x + from).toFixed(1)} ${(y + height - (from - at)).toFixed(1)}L${(x + to).toFixed(1)} ${(y + height - (to - at)).toFixed(1)}`;
  }
  return drawn("path", { class: "te-hatch", d: path });
}
