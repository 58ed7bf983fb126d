// The equation of a token, the eigenvalues of all tokens, what each key returns, and all rules.
import { two } from "#lib/plane.js";
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { headed } from "#parts/table.js";
import { grid } from "./grid.js";
import { returns } from "./rules.js";
import { number } from "./words.js";

/** A · S + b k vᵀ = S, as four images. */
export function equationPanel(study, view) {
  const parts = el("div", { class: "sv-equation" });
  const formula = el("p", { class: "av-quiet", "data-testid": "formula" });
  const node = el("section", { class: "av-panel", "aria-label": "The state at this token" }, parts, formula);

  function draw(side) {
    const { state: { token }, found, values, largest, rule } = study;
    const channels = found.keys.map((_, r) => String(r));
    const one = (title, rows, columns, most, testid) =>
      el("div", { class: "sv-part" }, el("h3", { text: title }), grid({ rows, names: channels, columns, side, left: 18, largest: most, dark: view.dark, label: title, testid }));
    const sign = (text) => el("span", { class: "sv-sign", text });
    parts.replaceChildren(
      one("A: what is kept", found.transitions[token], channels, 1, "transition"), sign("·"),
      one("S before", found.states[token], values, largest, "before"), sign("+"),
      one(rule.erases === "none" ? "written: k vᵀ" : "written: b k vᵀ", found.writes[token], values, largest, "written"), sign("="),
      one("S after", found.states[token + 1], values, largest, "after"),
    );
    formula.textContent = `${rule.formula}. Rows: channels of the key. Blue is below 0, orange above.`;
  }
  return { node, draw };
}

/** The eigenvalues of A, a column of points for each token. */
export function spectrumPanel(study) {
  const stage = el("div", {});
  const node = el("section", { class: "av-panel" }, el("h3", { text: "Eigenvalues of A" }), stage);
  const [LEFT, TOP, BOTTOM] = [30, 10, 32];

  function draw(wide, high) {
    const { found: { spectra }, n, state: { token } } = study;
    const all = spectra.flat();
    const [low, top] = [Math.min(-1, ...all), Math.max(1, ...all)];
    const x = (t) => LEFT + ((wide - LEFT) * (t + 0.5)) / n;
    const y = (value) => TOP + ((high - TOP - BOTTOM) * (top - value)) / (top - low);
    const chart = drawn("svg", { class: "sv-plot", width: wide, height: high, role: "img", "data-testid": "spectrum", "aria-label": `Eigenvalues of A at token ${token + 1}: ${spectra[token].map(number).join(", ")}; the table has those of all tokens` });
    chart.append(drawn("rect", { class: "sv-stable", x: LEFT, width: wide - LEFT, y: y(1), height: y(-1) - y(1) }));
    for (const value of [-1, 0, 1]) {
      chart.append(drawn("line", { class: "sv-line", x1: LEFT, x2: wide, y1: y(value), y2: y(value) }), drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end", text: String(value).replace("-", "−") }));
    }
    spectra.forEach((spectrum, t) => {
      const now = t === token;
      chart.append(drawn("text", { class: now ? "sv-now" : null, x: x(t), y: high - BOTTOM + 16, "text-anchor": "middle", text: String(t + 1) }));
      spectrum.forEach((value) => chart.append(drawn("circle", { class: now ? "sv-dot sv-at" : "sv-dot", cx: x(t), cy: y(value), r: now ? 5.5 : 4 })));
    });
    chart.append(drawn("text", { x: (LEFT + wide) / 2, y: high - 3, "text-anchor": "middle", text: "token" }));
    stage.replaceChildren(chart);
  }
  return { node, draw };
}

/** The state as a dictionary: keys × values, with the value that was written last. */
export function readingsPanel(study, view) {
  const stage = el("div", { class: "sv-readings" });
  const node = el("section", { class: "av-panel" }, el("h3", { text: "What each key returns" }), stage);

  function draw(side) {
    const { readings, names, values, newest } = study;
    const largest = Math.max(1, ...readings.flat().map(Math.abs));
    const image = grid({ rows: readings, names, columns: values, side, left: 46, largest, dark: view.dark, label: "What each key reads of the state", testid: "readings" });
    const said = newest.map((value, i) => {
      const right = returns(readings[i], value);
      return el("li", { class: right || value === null ? "" : "sv-wrong", style: `height: ${side}px` }, el("bdi", { text: value === null ? "–" : `${values[value]} ${right ? "✓" : "✗"}` }));
    });
    stage.replaceChildren(image, el("div", {}, el("p", { class: "sv-newest av-quiet", text: "newest" }), el("ul", { "data-testid": "newest" }, ...said)));
  }
  return { node, draw };
}

/** How many keys return their newest value under each rule. */
export function rulesPanel(study) {
  const body = el("tbody", {});
  const node = el("section", { class: "av-panel" }, el("h3", { text: "Newest values, by rule" }),
    el("table", { class: "sv-rules", "data-testid": "rules" }, body));

  function draw() {
    body.replaceChildren(...study.rules.map((rule, at) =>
      el("tr", { class: rule === study.rule ? "sv-current" : "" }, el("th", { scope: "row", text: rule.title }), el("td", { text: `${study.right[at]} of ${study.written}` }))));
  }
  return { node, draw };
}

const six = (value) => two(value, 6);

/** The same numbers as tables of text. They are filled when they are opened. */
export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    const { state: { facts, token }, found, readings, names, values, newest } = study;
    const facts_ = facts.map(([key, value, forget], t) => [t + 1, key, value, forget, found.spectra[t].map(number).join(", ")]);
    const state = found.states[token + 1].map((row, r) => [r, ...row.map(six)]);
    const read = readings.map((row, i) => [names[i], ...row.map(six), newest[i] === null ? "–" : values[newest[i]]]);
    body.replaceChildren(
      headed("The facts, and the eigenvalues of A", ["token", "key", "value", "forget", "eigenvalues"], facts_, "facts-table"),
      headed(`The state after token ${token + 1}`, ["channel", ...values], state, "state-table"),
      headed("What each key returns", ["key", ...values, "newest"], read, "readings-table"),
    );
  }
  return { node, draw };
}
