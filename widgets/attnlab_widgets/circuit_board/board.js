// The board: chips with a small map of each head, and the wires, which are cut by a click.
import { painted } from "#lib/colours.js";
import { bitmap, el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { boardOf, markOf, written } from "./layout.js";
import { caption, change, idle, percent, wire } from "./words.js";

const [THIN, THICK] = [1.5, 9];
const MAP = 38;
export const POINTS = [["focus", true], ["blur", null], ["pointerenter", true], ["pointerleave", null]];
const KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export function boardPanel(study, view) {
  const svg = drawn("svg", { class: "cb-board", role: "group", "aria-label": "The board: arrow keys go from wire to wire, Space cuts one", "data-testid": "board" });
  const readout = el("p", { class: "cb-readout av-quiet", testid: "readout" });
  const node = el("section", { class: "av-panel", "aria-label": "The board" }, svg, readout);
  const lines = study.wires.map((_, at) => {
    const [seen, hit] = [drawn("path", { class: "cb-wire" }), drawn("path", { class: "cb-hit" })];
    const cross = drawn("g", { class: "cb-cross", "aria-hidden": "true" }, drawn("circle", { r: 7 }), drawn("path", { d: "M-3 -3L3 3M3 -3L-3 3" }));
    const group = drawn("g", { class: "cb-line", role: "switch", tabindex: -1, "data-testid": `wire-${at}`, "data-wire": at }, seen, hit, cross);
    group.addEventListener("click", () => study.flip(at));
    for (const [event, to] of POINTS) group.addEventListener(event, () => point(to && at, event));
    return { group, seen, hit, cross };
  });
  const [under, over] = [drawn("g", {}), drawn("g", { class: "cb-chips" })];
  svg.append(under, over);
  let shape = null; // for which width the board is laid out
  let chips = new Map();
  let order = [];
  let stop = 0; // the wire that Tab reaches
  let painting = ""; // of which pass, and in which colours, the chips show the maps
  let [passes, lastPass] = [0, null];

  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const at = lines.findIndex(({ group }) => group === event.target);
    if (at < 0) return;
    const place = order.indexOf(at);
    let to = KEYS[event.key] ? place + KEYS[event.key] : { Home: 0, End: order.length - 1 }[event.key];
    if (event.key === " " || event.key === "Enter") event.repeat || study.flip(at); // a key that is held cuts once
    else if (to === undefined) return;
    event.preventDefault();
    if (to === undefined) return;
    to = Math.min(order.length - 1, Math.max(0, to));
    focusOn(order[to]);
  });

  function focusOn(at) {
    lines[stop].group.setAttribute("tabindex", -1);
    stop = at;
    lines[at].group.setAttribute("tabindex", 0);
    lines[at].group.focus({ preventScroll: true });
  }

  /** On which wire the mouse is, or the focus, here or in the list. */
  function point(at, event) {
    const what = event.startsWith("pointer") ? "pointed" : "focused";
    if (study[what] === at) return;
    study[what] = at;
    view.later(hover);
  }

  function hover() {
    const here = study.pointed ?? study.focused;
    lines.forEach(({ group }, at) => group.classList.toggle("cb-pointed", at === here));
    readout.textContent = here === null ? hint() : sentence(here);
  }

  function hint() {
    if (study.idle) return idle(study.state.instead, study.same);
    if (!study.complete) return "The cut of every wire is being computed …";
    const few = (x, digits) => (x < 0.1 ? x.toPrecision(1) : x.toFixed(digits));
    const by = study.state.measure === "logit" ? `its logit by less than ${few(study.bound, 2)}` : `it by less than ${few(100 * study.bound, 1)} percentage points`;
    return `Blue wires raise “${study.network.shown[study.watched]}”, orange ones lower it; grey ones change ${by}. Click a wire to cut it.`;
  }

  /** The sentence of one wire. */
  function sentence(at) {
    const cut = study.alone[at];
    const name = `The wire ${wire(study.wires[at])}${study.isCut(at) ? " is cut" : ""}`;
    if (!cut) return `${name}.`;
    const letter = study.network.shown[study.watched];
    if (study.state.instead === "another text" && study.wires[at][0] === "places") return `${name}${study.isCut(at) ? "" : ": cut alone"}, it carries the same as before, as places are the same in both texts.`;
    return `${name}${study.isCut(at) ? "; alone" : ": cut alone"}, ${change(letter, study.before, cut, study.state.measure)}.`;
  }

  function chip({ name, x, y, wide, high, row }) {
    const group = drawn("g", { class: `cb-chip${row === 0 || name === "logits" ? " cb-end" : ""}`, transform: `translate(${x} ${y})`, "data-testid": `chip-${name}` }, drawn("rect", { width: wide, height: high, rx: 6 }));
    const put = (cls, tx, ty, text, more = {}) => {
      const node = drawn("text", { class: cls, x: tx, y: ty, text, ...more });
      group.append(node);
      return node;
    };
    if (row === 0 || name === "logits") {
      const title = put("cb-name", wide / 2, high / 2 + 5, name, { "text-anchor": "middle" });
      return { group, title, wide };
    }
    ["query", "key", "value"].forEach((into, at) => put("cb-into", (wide / 3) * (at + 0.5), high - 5, into, { "text-anchor": "middle" }));
    const image = drawn("image", { x: 5, y: 4, width: MAP, height: MAP, preserveAspectRatio: "none", style: "image-rendering: pixelated" });
    group.append(drawn("line", { x1: 0, x2: wide, y1: high - 16, y2: high - 16, class: "cb-rule" }), image);
    put("cb-name", MAP + 12, 17, name);
    return { group, image, wide, words: [put("cb-says", MAP + 12, 30, ""), put("cb-says", MAP + 12, 41, "")] };
  }

  function lay(wide) {
    const board = boardOf(study.rows, study.wires, wide);
    shape = { wide, board };
    svg.setAttribute("viewBox", `0 0 ${wide} ${board.high}`);
    svg.setAttribute("width", wide);
    svg.setAttribute("height", board.high);
    chips = new Map(Object.values(board.chips).map((one) => [one.name, chip(one)]));
    over.replaceChildren(...[...chips.values()].map(({ group }) => group));
    board.paths.forEach((path, at) => {
      const d = written(path);
      lines[at].seen.setAttribute("d", d);
      lines[at].hit.setAttribute("d", d);
      lines[at].cross.setAttribute("transform", `translate(${markOf(path).join(" ")})`);
    });
  }

  function draw(room) {
    const wide = Math.max(280, Math.floor(room));
    if (shape?.wide !== wide) lay(wide);
    order = study.ordered;
    const held = lines.find(({ group }) => group === svg.getRootNode().activeElement);
    const largest = study.largest;
    // The strongest come last, so that they lie over the others; but moving what has the focus would take it away.
    if (!held) {
      under.replaceChildren(...[...order].reverse().map((at) => lines[at].group));
      stop = order[0];
    }
    lines.forEach(({ group, seen }, at) => {
      const effect = study.effect(at) ?? 0;
      const [cut, grey] = [study.isCut(at), study.isGrey(at)];
      const share = study.state.measure === "logit" ? Math.abs(effect) / (largest || 1) : Math.abs(effect);
      seen.setAttribute("stroke-width", grey ? 1 : THIN + (THICK - THIN) * Math.min(1, share));
      group.classList.toggle("cb-grey", grey && !cut);
      group.classList.toggle("cb-against", !grey && effect < 0);
      group.classList.toggle("cb-cut", cut);
      group.setAttribute("tabindex", at === stop ? 0 : -1);
      group.setAttribute("aria-checked", String(!cut));
      group.setAttribute("aria-label", sentence(at));
    });
    if (lastPass !== study.pass) [lastPass, passes] = [study.pass, passes + 1];
    const now = `${passes} ${study.at} ${wide} ${view.dark}`;
    if (now !== painting) drawChips();
    painting = now;
    hover();
  }

  function drawChips() {
    const { shown, noun } = study.network;
    for (const [name, { image, words, title, wide: across }] of chips) {
      if (title) {
        title.textContent = name === "letters" ? (across > 165 ? "letters: which one" : "letters") : name === "places" ? (across > 165 ? "places: where it is" : "places") : `logits: “${shown[study.after.first]}” ${percent(study.after.most)}`;
        fitted(title, across - 10, 14);
        continue;
      }
      const weights = study.pass.weights[name];
      paint(image, weights);
      const room = across - MAP - 14;
      split(caption(weights, study.tokens, noun, room < 115), room).forEach((text, line) => {
        words[line].textContent = text;
        fitted(words[line], room, 10.5);
      });
    }
  }

  /** A text so small that it fits. */
  function fitted(node, room, size) {
    node.style.fontSize = "";
    const long = node.getComputedTextLength();
    if (long > room) node.style.fontSize = `${Math.max(5, (size * room) / long)}px`;
  }

  /** A caption in two lines. */
  function split(text, room) {
    const parts = text.replace(" %", "\u00a0%").split(" ");
    let first = parts.shift();
    while (parts.length && (first.length + 1 + parts[0].length) * 5.6 < room) first += ` ${parts.shift()}`;
    return [first, parts.join(" ")];
  }

  function paint(image, weights) {
    const { n } = study;
    const ground = view.colour("--av-hatch-ground");
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [n, n];
    const context = canvas.getContext("2d");
    context.fillStyle = ground;
    context.fillRect(0, 0, n, n);
    const mask = Uint8Array.from({ length: n * n }, (_, at) => Number(at % n > Math.floor(at / n)));
    context.drawImage(bitmap(painted(weights, 1, false, view.dark, mask), n, n), 0, 0);
    image.setAttribute("href", canvas.toDataURL());
  }

  return { node, draw, point, sentence, hover };
}
