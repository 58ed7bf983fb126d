// The stack with what each layer keeps, how the bytes grow, and the same numbers as tables.
import { el, plain } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { headed } from "#parts/table.js";
import { bytesOf, extent, LEAST } from "./bills.js";
import { size, thousands } from "./words.js";

const [INDEX, GAP, AMOUNT] = [26, 14, 62];

/** A row for each layer, the first at the bottom: its tokens, and its bytes. */
export function stackPanel(study) {
  const legend = el("ul", { class: "cv-legend", "data-testid": "legend" });
  const stage = el("div", { tabindex: "0", class: "cv-stack", role: "slider", "aria-label": "The chosen layer; arrow keys choose another", "data-testid": "stack", onkeydown: key });
  const node = el("section", { class: "av-panel cv-left", "aria-label": "What each layer keeps" }, el("h3", { text: "Tokens that each layer keeps, and their bytes" }), stage, legend);

  function key(event) {
    if (!plain(event)) return;
    const step = { ArrowUp: 1, ArrowDown: -1, PageUp: 5, PageDown: -5 }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? study.layers.length - 1 : step && study.layer + step;
    if (to === undefined) return;
    event.preventDefault();
    study.choose(to);
  }

  function draw(wide, high) {
    const { layers, kinds, sizes, layer, names, state: { tokens } } = study;
    const row = Math.min(26, Math.floor(((high - 28) / layers.length) * 10) / 10);
    const tall = Math.ceil(row * layers.length) + 28; // six of them above the highest number
    const kept = Math.floor((wide - INDEX - GAP - AMOUNT) * 0.62);
    const right = INDEX + kept + GAP;
    const room = wide - right - AMOUNT;
    const largest = Math.max(1, ...sizes);
    const svg = drawn("svg", { class: "cv-plot", width: wide, height: tall, "aria-hidden": "true" });
    layers.forEach((name, at) => {
      const y = tall - 22 - row * (at + 1);
      const bar = Math.max(1, row - (row > 8 ? 2 : 1));
      const colour = `cv-kind-${names.indexOf(name) % 6}`;
      const now = at === layer;
      const [begin, end] = extent(kinds[name], tokens, kept);
      const amount = sizes[at] ? Math.max(LEAST, (room * sizes[at]) / largest) : 0;
      const group = drawn("g", { "data-testid": `layer-${at}`, class: now ? "cv-row cv-now" : "cv-row", onclick: () => study.choose(at) });
      group.append(drawn("rect", { class: "cv-hit", x: 0, y, width: wide, height: row }), drawn("rect", { class: "cv-ground", x: INDEX, y, width: kept, height: bar }));
      if (end > begin) group.append(drawn("rect", { class: colour, x: INDEX + begin, y, width: end - begin, height: bar }));
      group.append(drawn("rect", { class: colour, x: right, y, width: amount, height: bar }));
      if (now) group.append(drawn("rect", { class: "cv-frame", x: INDEX - 2, y: y - 1, width: wide - INDEX - AMOUNT + 2, height: bar + 2 }));
      if (row >= 11 || now || (at % 5 === 0 && Math.abs(at - layer) * row > 10)) group.append(drawn("text", { x: INDEX - 6, y: y + bar / 2 + 4, "text-anchor": "end", text: String(at) }));
      if (row >= 11 || now) group.append(drawn("text", { x: right + room + 6, y: y + bar / 2 + 4, text: size(sizes[at]) }));
      group.append(drawn("title", { text: `Layer ${at}: ${kinds[name].title}, ${size(sizes[at])}` }));
      svg.append(group);
    });
    svg.append(drawn("text", { x: INDEX, y: tall - 6, text: "first token" }), drawn("text", { x: INDEX + kept, y: tall - 6, "text-anchor": "end", text: "newest" }));
    svg.append(drawn("text", { x: right, y: tall - 6, text: "bytes" }));
    stage.replaceChildren(svg);
    const said = `Layer ${layer}: ${kinds[layers[layer]].title}, ${size(sizes[layer])}`;
    for (const [name, value] of Object.entries({ valuenow: layer, valuemin: 0, valuemax: layers.length - 1, valuetext: said })) stage.setAttribute(`aria-${name}`, value);
    const used = names.filter((name) => layers.includes(name));
    legend.replaceChildren(...used.map((name) => el("li", {}, el("span", { class: `cv-swatch cv-kind-${names.indexOf(name) % 6}`, "aria-hidden": "true" }), el("span", { text: `${layers.filter((one) => one === name).length} × ${kinds[name].title}: ${size(layers.reduce((sum, one, at) => sum + (one === name ? sizes[at] : 0), 0))}` }))));
  }
  return { node, draw };
}

/** All layers together, from one token to a million. */
export function growthPanel(study) {
  const stage = el("div", {});
  const source = el("p", { class: "av-quiet av-hint", "data-testid": "source" });
  const node = el("section", { class: "av-panel", "aria-label": "How the bytes grow" }, el("h3", { text: "All layers together" }), stage,
    el("p", { class: "av-quiet av-hint", text: "Solid: as chosen. Dashed: the model in 16 bits." }), source);
  const [LEFT, TOP, BOTTOM, RIGHT] = [54, 8, 34, 30];

  function draw(wide, high) {
    const { growth, whole, state: { tokens } } = study;
    const all = growth.flatMap(([, now, model]) => [now, model]).filter((bytes) => bytes > 0);
    const low = Math.floor(Math.log10(Math.max(1, Math.min(...all, 1e15))));
    const top = Math.max(low + 1, Math.ceil(Math.log10(Math.max(1, ...all))));
    const x = (n) => LEFT + ((wide - LEFT - RIGHT) * Math.log2(n)) / 20;
    const y = (bytes) => TOP + ((high - TOP - BOTTOM) * (top - Math.log10(Math.max(bytes, 10 ** low)))) / (top - low);
    const svg = drawn("svg", { class: "cv-plot", width: wide, height: high, role: "img", "data-testid": "growth", "aria-label": `All layers keep ${size(growth[0][1])} after one token, ${size(growth[10][1])} after 1,024 and ${size(growth[20][1])} after 1,048,576` });
    for (let power = low; power <= top; power += Math.max(1, Math.floor((top - low) / 6))) {
      svg.append(drawn("line", { class: "cv-grid", x1: LEFT, x2: wide - RIGHT, y1: y(10 ** power), y2: y(10 ** power) }), drawn("text", { x: LEFT - 6, y: y(10 ** power) + 4, "text-anchor": "end", text: size(10 ** power) }));
    }
    for (const power of [0, 10, 20]) svg.append(drawn("text", { x: x(2 ** power), y: high - BOTTOM + 16, "text-anchor": "middle", text: thousands(2 ** power) }));
    svg.append(drawn("text", { x: (LEFT + wide - RIGHT) / 2, y: high - 3, "text-anchor": "middle", text: "tokens" }));
    const line = (at) => growth.map((one) => `${x(one[0])},${y(one[at])}`).join(" ");
    svg.append(drawn("polyline", { class: "cv-line cv-model", points: line(2) }), drawn("polyline", { class: "cv-line", points: line(1) }), drawn("circle", { class: "cv-dot", cx: x(tokens), cy: y(whole), r: 5 }));
    stage.replaceChildren(svg);
    source.textContent = `Source: ${study.preset.source}.`;
  }
  return { node, draw };
}

/** The same numbers as tables of text. They are filled when they are opened. */
export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    const { layers, kinds, sizes, names, growth, state: { tokens, bits } } = study;
    const rows = layers.map((name, at) => [at, kinds[name].title, Math.round(sizes[at])]);
    const menu = names.map((name) => [kinds[name].title, size(bytesOf(kinds[name], tokens, bits)), size(bytesOf(kinds[name], 2 ** 20, bits))]);
    body.replaceChildren(
      headed(`What each layer keeps after ${thousands(tokens)} tokens`, ["layer", "kind", "bytes"], rows, "layers-table"),
      headed("What a layer of each kind keeps", ["kind", "now", "after 1,048,576"], menu, "kinds-table"),
      headed("All layers together", ["tokens", "as chosen", "the model"], growth.map(([n, now, model]) => [thousands(n), size(now), size(model)]), "growth-table"),
    );
  }
  return { node, draw };
}
