// ComplexWordExplorer: words as arrows that turn along the sentence, and what two of them add up to.
import base from "#parts/base.css";
import legendStyle from "#parts/legend.css";
import style from "./complex_words.css";
import { at, largest, period, together, wave } from "./waves.js";
import { choice, el, slider } from "#parts/dom.js";
import { labelledSaying } from "#parts/legend.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";

const TRAITS = ["first", "second", "dimension", "stage", "positions"];
const [LEFT, RIGHT, HIGH] = [64, 16, 520];
const NS = "http://www.w3.org/2000/svg";

function svg(tag, attributes, text) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function render({ model, el: host }) {
  const view = viewOf("attnlab-waves", "Complex word explorer", "complex-words");
  const { root } = view;
  const words = model.get("words");
  const waves = model.get("_waves");
  const set = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  const named = words.map((word, index) => [String(index), word]);
  const first = choice("word", "first", named, (value) => set("first", Number(value)));
  const second = choice("beside", "second", [["-1", "no other word"], ...named], (value) => set("second", Number(value)));
  const stages = Object.keys(waves).map((name) => [name, name]);
  const stage = choice("frequencies", "stage", stages, (value) => set("stage", value));
  const last = waves[stages[0][0]].amplitude[0].length - 1;
  const dimension = slider("dimension", "dimension", { min: 0, max: last, step: 1 }, (value) => set("dimension", value));
  const summary = el("p", { class: "av-summary", "data-testid": "summary", "aria-live": "polite" });
  const said = el("p", { class: "av-quiet", "data-testid": "said" });
  const drawing = svg("svg", { class: "cw-svg", role: "img", "data-testid": "drawing" });
  root.append(
    el("style", { text: base + legendStyle + style }),
    el("header", { class: "av-top" }, summary, el("div", { class: "av-controls" }, first.node, second.node, dimension.node, stage.node)),
    drawing,
    said,
  );
  host.replaceChildren(root);
  let room = 920; // pixels across: the drawing gets wider with its place, but no higher

  function draw() {
    const [j, k, d, n] = [model.get("first"), model.get("second"), model.get("dimension"), model.get("positions")];
    const tables = waves[model.get("stage")];
    const chosen = k < 0 ? [j] : [j, k];
    first.select.value = String(j);
    second.select.value = String(k);
    stage.select.value = model.get("stage");
    dimension.input.value = String(d);
    dimension.output.textContent = String(d);
    const pair = chosen.map((word) => wave(tables, word, d));
    const saying = chosen.map((word, index) => `“${words[word]}”: amplitude ${Math.abs(pair[index].r).toFixed(2)}, ${period(pair[index])}`).join(" · ");
    summary.replaceChildren(...labelledSaying(saying, model.get("untrained") || model.get("stage") === "initial"));
    room = Math.max(360, drawing.clientWidth || room);
    drawing.setAttribute("viewBox", `0 0 ${room} ${HIGH}`);
    drawing.replaceChildren();
    arrows(tables, chosen, pair, d, n);
    interference(pair, n);
    spectrum(tables, chosen, d);
    drawing.setAttribute("aria-label", saying);
    said.textContent = k < 0
      ? "Choose a second word to see what two words at one position add up to. Click a point to choose its dimension."
      : `Where the arrows agree the sum is long, where they oppose each other it is short. ${beat(pair)}`;
  }

  function arrows(tables, chosen, pair, d, n) {
    const step = (room - LEFT - RIGHT) / n;
    const radius = Math.min(step / 2 - 3, 30);
    const most = Math.max(...pair.map(({ r }) => Math.abs(r)), 1e-6);
    drawing.append(svg("text", { x: 0, y: 14 }, `Dimension ${d} at each position: the arrow turns by the same angle from one position to the next`));
    for (let p = 0; p < n; p += 1) {
      const [x, y] = [LEFT + step * (p + 0.5), 58];
      drawing.append(svg("circle", { class: "cw-rim", cx: x, cy: y, r: radius }));
      pair.forEach((one, index) => {
        const [a, b] = at(one, p).map((value) => (value / most) * radius);
        const kind = index ? "second" : "first";
        drawing.append(svg("line", { class: `cw-${kind}`, x1: x, y1: y, x2: x + a, y2: y - b, "data-arrow": `${index}-${p}` }));
        drawing.append(svg("circle", { class: `cw-tip-${kind}`, cx: x + a, cy: y - b, r: index ? 2.5 : 3.5 }));
      });
      drawing.append(svg("text", { class: "cw-quiet", x, y: 106, "text-anchor": "middle" }, String(p)));
    }
    drawing.append(svg("text", { class: "cw-quiet", x: 0, y: 106 }, "position"));
  }

  function interference(pair, n) {
    const [top, high] = [146, 120];
    const sizes = pair.map(({ r }) => Math.abs(r));
    const most = sizes.reduce((a, b) => a + b, 0) || 1;
    const x = (p) => LEFT + ((room - LEFT - RIGHT) / n) * (p + 0.5);
    const y = (value) => top + high - (value / most) * high;
    const path = (value) => Array.from({ length: (n - 1) * 8 + 1 }, (_, i) => `${i ? "L" : "M"}${x(i / 8).toFixed(1)} ${y(value(i / 8)).toFixed(1)}`).join("");
    if (pair.length === 2) {
      const [low, up] = [Math.abs(sizes[0] - sizes[1]), most];
      drawing.append(svg("text", { x: 0, y: top - 10 }, "Interference: the length of the sum of both words, between the difference and the sum of their amplitudes"));
      drawing.append(svg("rect", { class: "cw-band", x: LEFT, y: y(up), width: room - LEFT - RIGHT, height: Math.max(1, y(low) - y(up)) }));
      drawing.append(svg("path", { class: "cw-sum", d: path((p) => together(...pair, p)), "data-testid": "sum" }));
      for (let p = 0; p < n; p += 1) drawing.append(svg("circle", { cx: x(p), cy: y(together(...pair, p)), r: 3.5, fill: "var(--av-series-2)" }));
    } else {
      const real = (value) => top + high / 2 - (value / most) * (high / 2);
      drawing.append(svg("text", { x: 0, y: top - 10 }, "Its real part (solid) and imaginary part (dashed) along the sentence: two waves"));
      drawing.append(svg("line", { class: "cw-axis", x1: LEFT, x2: room - RIGHT, y1: real(0), y2: real(0) }));
      for (const part of [0, 1]) {
        const points = Array.from({ length: (n - 1) * 8 + 1 }, (_, i) => `${i ? "L" : "M"}${x(i / 8).toFixed(1)} ${real(at(pair[0], i / 8)[part]).toFixed(1)}`).join("");
        drawing.append(svg("path", { class: part ? "cw-second" : "cw-first", style: "stroke: var(--av-series-0)", d: points }));
      }
    }
    drawing.append(svg("line", { class: "cw-axis", x1: LEFT, x2: room - RIGHT, y1: top + high, y2: top + high }));
    drawing.append(svg("text", { class: "cw-quiet", x: LEFT - 8, y: top + 10, "text-anchor": "end" }, most.toFixed(2)));
    drawing.append(svg("text", { class: "cw-quiet", x: LEFT - 8, y: top + high, "text-anchor": "end" }, pair.length === 2 ? "0" : (-most).toFixed(2)));
  }

  function spectrum(tables, chosen, d) {
    const [top, high] = [310, 160];
    const all = Object.values(waves).flatMap((one) => chosen.flatMap((word) => one.frequency[word].map(Math.abs)));
    const fastest = Math.max(1e-6, ...all);
    const most = Math.max(...Object.values(waves).map((one) => largest(one, chosen)));
    const x = (w) => LEFT + Math.sqrt(Math.abs(w) / fastest) * (room - LEFT - RIGHT - 10);
    const y = (r) => top + high - (Math.abs(r) / most) * high;
    drawing.append(svg("text", { x: 0, y: top - 12 }, "All dimensions: how fast each turns, and how long its arrow is (click one)"));
    drawing.append(svg("path", { class: "cw-axis", d: `M${LEFT} ${top}V${top + high}H${room - RIGHT}` }));
    drawing.append(svg("text", { class: "cw-quiet", x: LEFT - 8, y: top + 10, "text-anchor": "end" }, most.toFixed(2)));
    drawing.append(svg("text", { class: "cw-quiet", x: LEFT - 8, y: top + high, "text-anchor": "end" }, "0"));
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const w = fastest * share * share;
      drawing.append(svg("text", { class: "cw-quiet", x: x(w), y: top + high + 18, "text-anchor": share === 1 ? "end" : "middle" }, w.toFixed(share && w < 0.095 ? 3 : 2)));
    }
    drawing.append(svg("text", { class: "cw-quiet", x: room - RIGHT, y: top + high + 38, "text-anchor": "end" }, "frequency, radians per position (square-root scale)"));
    const legend = svg("text", { x: LEFT, y: top + high + 38 });
    chosen.forEach((word, index) => {
      const look = index ? "var(--av-series-1)" : "var(--av-series-0)";
      legend.append(svg("tspan", { style: `fill: ${look}; font-weight: 600` }, `${index ? "\u2003◇" : "●"} ${words[word]}`));
    });
    drawing.append(legend);
    chosen.forEach((word, index) => {
      for (let place = 0; place <= last; place += 1) {
        const one = wave(tables, word, place);
        const [cx, cy, size] = [x(one.w), y(one.r), index ? 5 : 4];
        const look = { class: `cw-dot cw-dot-${index ? "second" : "first"}`, "data-point": `${index}-${place}` };
        const mark = index
          ? svg("path", { ...look, d: `M${cx} ${cy - size}L${cx + size} ${cy}L${cx} ${cy + size}L${cx - size} ${cy}Z` })
          : svg("circle", { ...look, cx, cy, r: size });
        mark.append(svg("title", {}, `dimension ${place}: frequency ${Math.abs(one.w).toFixed(3)}, amplitude ${Math.abs(one.r).toFixed(2)}`));
        mark.addEventListener("click", () => set("dimension", place));
        drawing.append(mark);
        if (place === d) drawing.append(svg("circle", { class: "cw-chosen", cx, cy, r: 9 }));
      }
    });
  }

  function beat([a, b]) {
    const gap = Math.abs(a.w - b.w);
    if (gap < 1e-4) return "Here both turn equally fast, so the length of the sum stays the same.";
    const positions = (2 * Math.PI) / gap;
    return `The pattern repeats after ${positions > 999 ? "more than 999" : positions.toFixed(1)} positions.`;
  }

  return live({ model, view, traits: TRAITS, draw });
}

export default { render, page: (document) => mountPage({ render }, document) };
