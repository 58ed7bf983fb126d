// The scores of one query, unit by unit, above full attention on the same units; and both as a table.
import { el, plain } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { moved } from "#lib/keys.js";
import { three } from "#lib/wall.js";
import { percent } from "./study.js";

const [TOP, GAP, LEFT] = [16, 26, 4];
const MOST = 8; // rows of the table

export function unitsPanel(study, view) {
  const title = el("h3", {});
  const stage = el("div", { class: "lc-units", tabindex: "0", role: "slider", "data-testid": "units", onkeydown: key, onpointerleave: () => view.unit(null) });
  const body = el("tbody", {});
  const head = el("tr", {});
  const table = el("table", { class: "lc-table", "data-testid": "table" }, el("thead", {}, head), body);
  const node = el("section", { class: "av-panel lc-scores" }, title, stage, table);

  function key(event) {
    if (!plain(event)) return;
    const next = moved(study.unitAt ?? 0, study.layer.u, event.key, study.layer.u);
    if (next === null) return;
    event.preventDefault();
    view.unit(study.unitAt === null ? 0 : next);
  }

  function draw(wide, high) {
    const { layer, state } = study;
    const units = study.units;
    title.textContent = `Scores of query ${state.query}, ${layer.of} by ${layer.of}`;
    const each = (high - TOP - GAP) / 2;
    const step = (wide - 2 * LEFT) / layer.u;
    const svg = drawn("svg", { class: "lc-plot", width: wide, height: high, "aria-hidden": "true" });
    const scored = units.filter(({ score }) => Number.isFinite(score));
    const bars = (values, top, name, words) => {
      const [low, most] = [Math.min(0, ...values), Math.max(0, ...values)];
      const scale = (each - 2) / (most - low || 1);
      const zero = top + most * scale;
      svg.append(drawn("text", { x: LEFT, y: top - 5, text: words }), drawn("line", { class: "lc-zero", x1: LEFT, x2: wide - LEFT, y1: zero, y2: zero }));
      units.forEach((one, at) => {
        const value = values[at];
        const tall = Math.max(Math.abs(value) * scale, one.open ? 1 : 0);
        svg.append(drawn("rect", { class: `${name} ${one.chosen ? "lc-on" : "lc-off"}`, x: LEFT + at * step, y: value < 0 ? zero : zero - tall, width: Math.max(1, step - (step > 4 ? 1 : 0)), height: tall }));
      });
    };
    bars(units.map(({ score }) => (Number.isFinite(score) ? score : 0)), TOP, "lc-score", scored.length ? "score" : "score: none, the own block alone is read");
    bars(units.map(({ share }) => share), TOP + each + GAP, "lc-share", "full attention");
    units.forEach((one, at) => {
      const x = LEFT + at * step;
      if (one.always) svg.append(drawn("circle", { class: "lc-always", cx: x + step / 2, cy: TOP + each + 6, r: Math.min(3, step / 2) }));
      svg.append(drawn("rect", { class: `lc-hit${study.unitAt === at ? " lc-at" : ""}`, x, y: 0, width: step, height: high, "data-testid": `unit-${at}`, onpointerenter: () => view.unit(at) }));
    });
    stage.replaceChildren(svg);
    const at = study.unitAt ?? 0;
    for (const [name, value] of Object.entries({ label: `The ${layer.of}s; arrow keys choose one`, valuenow: at, valuemin: 0, valuemax: layer.u - 1, valuetext: said(units[at]) })) stage.setAttribute(`aria-${name}`, value);
    fill(units);
  }

  const state = ({ chosen, always, open }) => (always ? "always read" : chosen ? "chosen" : open ? "left out" : "after the query");
  const amount = ({ score }) => (Number.isFinite(score) ? three(score) : "–");
  const named = (one) => (one.first === undefined ? "padding" : study.unitName(one));
  const said = (one) => `${named(one)}: score ${amount(one)}, ${percent(one.share)} of full attention, ${state(one)}`;

  /** The unit that is pointed at first, then those of the largest scores. */
  function fill(units) {
    const rank = ({ unit, always, score }) => (unit === study.unitAt ? Infinity : always ? Number.MAX_VALUE : score);
    const rows = units.filter(({ open, unit }) => open || unit === study.unitAt).sort((a, b) => (rank(b) > rank(a) ? 1 : rank(b) < rank(a) ? -1 : a.unit - b.unit)).slice(0, MOST);
    head.replaceChildren(...[study.layer.of, "score", "full attention", ""].map((text) => el("th", { scope: "col", text })));
    body.replaceChildren(...rows.map((one) => el("tr", { class: one.unit === study.unitAt ? "lc-row-at" : "" },
      el("th", { scope: "row", text: named(one) }), el("td", { text: amount(one) }), el("td", { text: percent(one.share) }), el("td", { text: state(one) }))));
  }
  return { node, draw };
}
