// The poles of the state space: in the plane of A, where they can be dragged, and as Ā in the unit circle.
import { behaves } from "./signals.js";
import { two } from "#lib/plane.js";
import { el } from "#parts/dom.js";
import { board, grip, tell } from "#parts/board.js";
import { drawn } from "#parts/svg.js";

const MANY = 8; // poles that have their numbers beside them

/** The complex number of a point, with its sign between the parts. */
export const complexly = ([re, im]) => `${two(re)} ${im < 0 ? "−" : "+"} ${two(Math.abs(im))}i`;

export function polesPanel(study) {
  const it = board("poles", "The plane of A: poles left of the middle fade");
  const node = el("section", { class: "av-panel sl-poles", "aria-label": "Poles" },
    el("h3", {}, "Poles A ", el("span", { class: "av-quiet av-hint", text: "drag; Delete removes" })), el("div", { class: "qp-stage" }, it.node));
  let grips = [];
  // Real parts are stretched to the width of the board, so that small ones can be told apart.
  const stretch = () => study.reach[0] / study.reach[1];
  const there = ([re, im]) => [re * stretch(), im];
  const back = ([x, y]) => [Math.round((1000 * x) / stretch()) / 1000, y];

  function build() {
    const count = study.state.poles.length;
    if (grips.length === count) return;
    grips = study.state.poles.map((_, r) => {
      const one = grip(it, {
        label: `pole ${r}: arrow keys move it, Delete removes it`, testid: `pole-${r}`,
        at: () => there(study.model.get("poles")[r]), move: (point) => study.movePole(r, back(point)),
      });
      one.addEventListener("keydown", (event) => (event.key === "Delete" || event.key === "Backspace") && study.removePole(r));
      one.append(drawn("circle", { class: "qp-dot", r: 7 }), drawn("text", { class: "sl-name" }), drawn("circle", { class: "qp-reach", r: 14 }));
      return one;
    });
    it.over.replaceChildren(...grips);
  }

  function draw(side) {
    const { reach: [up, across], state: { poles }, found: { modes } } = study;
    it.size(side, up);
    build();
    it.under.replaceChildren(
      drawn("rect", { class: "sl-unstable", x: side / 2, y: 0, width: side / 2, height: side }),
      ...it.axes(),
      drawn("text", { class: "sl-faint", x: side - 6, y: side - 8, "text-anchor": "end", text: "would grow" }),
      drawn("text", { class: "sl-faint", x: 4, y: side / 2 + 14, text: `−${two(across)}` }),
      drawn("text", { class: "sl-faint", x: side / 2 + 4, y: 13, text: `${two(up)}i` }),
      ...poles.map((pole) => drawn("circle", { class: "sl-twin", cx: it.x(there(pole)), cy: it.y(there([pole[0], -pole[1]])), r: 6 })),
    );
    poles.forEach((pole, r) => {
      const [dot, name, reach] = grips[r].children;
      const place = there(pole);
      [dot, reach].forEach((mark) => mark.setAttribute("transform", `translate(${it.x(place)} ${it.y(place)})`));
      name.textContent = poles.length === 1 ? complexly(pole) : poles.length > MANY ? "" : String(r);
      it.label(name, place, 8, name.textContent);
      tell(grips[r], it, place);
      grips[r].setAttribute("aria-valuetext", `${complexly(pole)}${modes.length ? `, ${behaves(modes[r].decay)}` : ""}`);
    });
  }

  return { node, draw };
}

export function circlePanel(study) {
  const it = board("circle", "Ā of every pole in the unit circle; the tables have the numbers");
  const node = el("section", { class: "av-panel sl-circle", "aria-label": "Unit circle" },
    el("h3", {}, "Ā, one step ", el("span", { class: "av-quiet av-hint", text: "inside fades" })), el("div", { class: "qp-stage" }, it.node));

  function draw(side) {
    it.size(side, 1.15);
    const circle = drawn("circle", { class: "sl-circle-line", cx: side / 2, cy: side / 2, r: side / 2 / 1.15 });
    const dots = study.found.modes.flatMap(({ decay }) => [[decay[0], -decay[1]], decay].map((point, at) =>
      drawn("circle", { class: at ? "sl-mode" : "sl-twin", cx: it.x(point), cy: it.y(point), r: at ? 6 : 5 })));
    const low = it.text([0, 0], "slow", "sl-faint", [side / 2 - 22, 12]);
    const high = it.text([0, 0], "fast", "sl-faint", [22 - side / 2, 12]);
    it.under.replaceChildren(circle, ...it.axes(), low, high, ...dots);
  }

  return { node, draw };
}
