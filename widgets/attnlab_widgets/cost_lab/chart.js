// Cost against length, both axes logarithmic: formulas, counted and timed points, and the reader's claim.
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { GROWTHS, seconds } from "./costs.js";
import { grouped, short } from "#lib/wall.js";

const [LEFT, TOP, BOTTOM] = [56, 14, 42];

export function chartPanel(store) {
  const node = el("div", { class: "cl-chart", testid: "chart" });

  function draw(wide, high) {
    const { about, lengths, claim, state } = store;
    const all = about.lengths;
    const right = store.times && claim ? 62 : 16;
    const shown = claim !== null;
    const values = [...all.map(store.baseCost), ...(shown ? all.map(store.cost) : [])];
    const start = store.cost(lengths[0]);
    const [low, high10] = [Math.floor(Math.log10(Math.min(...values, start))), Math.ceil(Math.log10(Math.max(...values)))];
    const x = (n) => LEFT + (wide - LEFT - right) * (Math.log2(n / all[0]) / Math.log2(all.at(-1) / all[0]));
    const y = (value) => high - BOTTOM - (high - TOP - BOTTOM) * ((Math.log10(value) - low) / (high10 - low));
    const unit = state.quantity === "time" ? "FLOPs" : "elements of the largest tensor";
    const svg = drawn("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": `${unit} against the length n, both axes logarithmic. The numbers stand in the table below.` });
    const line = (from, to, name) => drawn("line", { class: name, x1: from[0], y1: from[1], x2: to[0], y2: to[1] });
    const text = (words, at, name, anchor = "middle") => drawn("text", { class: name, x: at[0], y: at[1], "text-anchor": anchor, text: words });
    const clip = `cl-${Math.random().toString(36).slice(2)}`;
    svg.append(drawn("clipPath", { id: clip }, drawn("rect", { x: LEFT, y: TOP, width: wide - LEFT - right, height: high - TOP - BOTTOM })));
    svg.append(drawn("rect", { class: "cl-window", x: x(lengths[0]), y: TOP, width: Math.max(2, x(lengths.at(-1)) - x(lengths[0])), height: high - TOP - BOTTOM }));
    const step = Math.ceil((high10 - low) / 6);
    for (let power = low; power <= high10; power += step) {
      svg.append(line([LEFT, y(10 ** power)], [wide - right, y(10 ** power)], "cl-grid"), text(short(10 ** power), [LEFT - 6, y(10 ** power) + 4], "cl-tick", "end"));
    }
    all.forEach((n, at) => {
      if (at % (wide < 480 ? 4 : 2) === 0) svg.append(line([x(n), TOP], [x(n), high - BOTTOM], "cl-grid"), text(n >= 1024 ? `${n / 1024 >= 1024 ? `${n / 1024 / 1024} Mi` : `${n / 1024} Ki`}` : n, [x(n), high - BOTTOM + 15], "cl-tick"));
    });
    svg.append(text(`${unit}  against  length n (tokens; 1 Ki = 1,024)`, [(LEFT + wide - right) / 2, high - 6], "cl-tick"));
    const inside = drawn("g", { "clip-path": `url(#${clip})` });
    svg.append(inside);
    const curve = (f, name, over = all) => inside.append(drawn("polyline", { class: name, points: over.map((n) => `${x(n).toFixed(1)},${y(f(n)).toFixed(1)}`).join(" ") }));
    curve(store.baseCost, "cl-line cl-base");
    const from = lengths[0];
    const candidate = (name) => (n) => (start * GROWTHS[name](n)) / GROWTHS[name](from);
    const ahead = all.filter((n) => n >= from);
    if (!shown) {
      for (const name of Object.keys(GROWTHS)) {
        curve(candidate(name), "cl-line cl-claim", ahead);
        const end = [...ahead].reverse().find((n) => y(candidate(name)(n)) > TOP + 8) ?? from;
        svg.append(text(name, [Math.min(x(end) - 4, wide - right - 4), y(candidate(name)(end)) + (name === "n" ? 16 : -6)], "cl-name cl-name-claim", "end"));
      }
      inside.append(drawn("circle", { class: "cl-start", cx: x(from), cy: y(start), r: 5 }));
    } else {
      if (!store.isBase) curve(store.cost, "cl-line cl-own");
      curve(candidate(claim), "cl-line cl-claim", ahead);
      for (const n of all) if (store.counted[n]) inside.append(drawn("circle", { class: "cl-counted", cx: x(n), cy: y(store.counted[n]), r: 4.5 }));
      if (store.times && state.quantity === "time") timed();
    }
    svg.append(line([x(state.n), TOP], [x(state.n), high - BOTTOM], "cl-here"));
    node.replaceChildren(svg);

    /** Seconds lie on the scale of FLOPs so that full attention's longest time meets its line. */
    function timed() {
      const { rows } = store.times;
      const [last, , , , base] = rows.at(-1);
      const work = store.baseCost(last) / base;
      const mark = (n, [middle, down, up], name) => {
        const at = (value) => y(value * work);
        inside.append(line([x(n), at(down)], [x(n), at(up)], `cl-bar ${name}`), drawn("rect", { class: `cl-timed ${name}`, x: x(n) - 4, y: at(middle) - 4, width: 8, height: 8 }));
      };
      for (const [n, ...times] of rows) {
        mark(n, times.slice(3), "cl-of-base");
        if (!store.isBase) mark(n, times.slice(0, 3), "cl-of-own");
      }
      for (let power = -6; power <= 4; power += 1) {
        const at = y(10 ** power * work);
        if (at > TOP && at < high - BOTTOM) svg.append(text(seconds(10 ** power), [wide - right + 6, at + 4], "cl-tick", "start"));
      }
    }
  }

  return { node, draw };
}

/** What the marks mean. */
export function legend(store) {
  const node = el("div", { class: "cl-legend" });
  const entry = (name, words) => el("span", {}, drawn("svg", { class: "cl-key", width: 26, height: 12, "aria-hidden": "true" }, ...marks(name)), words);
  const marks = (name) => {
    if (name === "counted") return [drawn("circle", { class: "cl-counted", cx: 13, cy: 6, r: 4.5 })];
    if (name === "timed") return [drawn("rect", { class: "cl-timed cl-of-own", x: 9, y: 2, width: 8, height: 8 })];
    return [drawn("line", { class: `cl-line cl-${name}`, x1: 0, x2: 26, y1: 6, y2: 6 })];
  };

  function draw() {
    const shown = store.claim !== null;
    node.replaceChildren(
      entry("base", "full attention"),
      ...(shown && !store.isBase ? [entry("own", store.own.title)] : []),
      entry("claim", shown ? `your claim, ${store.claim}` : "which of these?"),
      ...(shown && Object.keys(store.counted).length ? [entry("counted", "counted")] : []),
      ...(shown && store.times ? [entry("timed", "time of the layer")] : []),
    );
  }

  return { node, draw };
}

/** The table beside the picture. */
export function rowsOf(store) {
  return store.about.lengths.map((n) => {
    const times = store.times?.rows.find(([at]) => at === n);
    const hidden = store.claim === null && n !== store.lengths[0];
    return [grouped(n), hidden ? "?" : short(store.cost(n)), short(store.baseCost(n)), hidden || !store.counted[n] ? "–" : short(store.counted[n]), times && !hidden ? seconds(times[1]) : "–", times && !hidden ? seconds(times[4]) : "–"];
  });
}
