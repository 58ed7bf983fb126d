// Cost against length, both axes logarithmic: this mechanism beside full attention.
import { drawn } from "#parts/svg.js";
import { grouped, onScale, short } from "#lib/wall.js";

const [WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM] = [340, 176, 52, 72, 12, 34];

/** `series` are {name, values, look}; look is one of "own", "usual", "other". */
export function costChart(lengths, series, here, unit) {
  const all = series.flatMap(({ values }) => values).filter((value) => value > 0);
  const low = 10 ** Math.floor(Math.log10(Math.min(...all)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...all)));
  const x = (n) => LEFT + (WIDE - LEFT - RIGHT) * onScale(n, lengths[0], lengths.at(-1));
  const y = (value) => HIGH - BOTTOM - (HIGH - TOP - BOTTOM) * onScale(Math.max(value, low), low, high);
  const title = `${unit} against the number of tokens: ${series.map(({ name, values }) => `${name}, ${short(values[here])} at ${grouped(lengths[here])} tokens`).join("; ")}`;
  const node = drawn("svg", { class: "wl-chart", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": title });
  const decades = Math.round(Math.log10(high / low));
  const step = Math.ceil(decades / 4);
  for (let power = 0; power <= decades; power += step) {
    const value = low * 10 ** power;
    node.append(
      drawn("line", { class: "wl-grid", x1: LEFT, x2: WIDE - RIGHT, y1: y(value), y2: y(value) }),
      drawn("text", { class: "wl-tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end", text: short(value) }),
    );
  }
  const ends = [lengths[0], ...[64, 1024, 65536].filter((n) => lengths.includes(n) && x(n) - x(lengths[0]) > 40)];
  for (const n of new Set(ends)) {
    node.append(drawn("text", { class: "wl-tick", x: x(n), y: HIGH - BOTTOM + 15, "text-anchor": "middle", text: grouped(n) }));
  }
  node.append(
    drawn("text", { class: "wl-tick", x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 4, "text-anchor": "middle", text: "tokens" }),
    drawn("line", { class: "wl-here", x1: x(lengths[here]), x2: x(lengths[here]), y1: TOP, y2: HIGH - BOTTOM }),
  );
  const labels = [];
  for (const { name, values, look } of series) {
    const points = values.map((value, at) => `${x(lengths[at]).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    node.append(drawn("polyline", { class: `wl-line wl-line-${look}`, points }));
    if (look === "own") node.append(drawn("circle", { class: "wl-dot", cx: x(lengths[here]), cy: y(values[here]), r: 3.5 }));
    labels.push({ name, look, at: y(values.at(-1)) });
  }
  labels.sort((a, b) => a.at - b.at);
  labels.forEach((label, at) => {
    if (at) label.at = Math.max(label.at, labels[at - 1].at + 13);
  });
  for (const { name, look, at } of labels) node.append(drawn("text", { class: `wl-name wl-name-${look}`, x: WIDE - RIGHT + 5, y: at + 4, text: name }));
  return node;
}
