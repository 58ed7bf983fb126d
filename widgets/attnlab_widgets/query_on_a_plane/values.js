// The values and their weighted mean, which never leaves their hull.
import { hull, two } from "#lib/plane.js";
import { el } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { board, grip, hatchOf, square, tell } from "#parts/board.js";

export function valuesPanel(study, view) {
  const it = board("values", "The values and the output in the plane");
  const sum = el("section", { class: "av-panel qp-sum", "aria-label": "The output as a sum", "data-testid": "output" });
  const node = el("section", { class: "av-panel qp-values", "aria-label": "Values and output" },
    el("h3", {}, el("span", { class: "qp-ink-output", text: "✚ Output" }), ": mean of the ", el("span", { class: "qp-ink-value", text: "■ values" })),
    el("div", { class: "qp-stage" }, it.node));
  const pulls = drawn("g", {});
  const output = drawn("g", { class: "qp-output", "data-testid": "output-point" },
    drawn("circle", { class: "qp-ring", r: 11 }), drawn("path", { class: "qp-cross", d: "M-7 0H7M0 -7V7" }));
  let values = [];
  let shown = "";

  function build() {
    const { names } = study.state;
    if (JSON.stringify(names) === shown) return;
    shown = JSON.stringify(names);
    values = names.map((name, j) => {
      const one = grip(it, {
        label: `value of key ${name}: arrow keys move it`,
        testid: `value-${j}`,
        at: () => study.state.values[j],
        move: (point) => study.move("value_vectors", j, point),
        point: (on) => view.point(on ? j : null),
      });
      one.append(drawn("path", { class: "qp-dot" }), drawn("path", { class: "qp-hatch" }), drawn("text", { class: "qp-name qp-letter" }), drawn("circle", { class: "qp-reach", r: 15 }));
      return one;
    });
    it.over.replaceChildren(pulls, ...values, output);
  }

  function draw(side) {
    build();
    const { state: { values: all, masked, names }, found: { weights, output: mean, seen } } = study;
    it.size(side, study.halves.values);
    const corners = hull(seen.map((j) => all[j]));
    it.under.replaceChildren(
      drawn("rect", { class: "qp-ground", width: side, height: side }),
      ...it.axes(),
      drawn("polygon", { class: "qp-hull", points: corners.map((point) => `${it.x(point)},${it.y(point)}`).join(" ") }),
    );
    pulls.replaceChildren(...seen.map((j) => {
      const line = it.line(mean, all[j], "qp-pull");
      line.setAttribute("stroke-width", (0.5 + 6 * weights[j]).toFixed(1));
      return line;
    }));
    all.forEach((value, j) => {
      const [dot, hatch, name, reach] = values[j].children;
      const off = masked.includes(j);
      const r = off ? 6 : 5 + 5 * Math.sqrt(weights[j]);
      [dot, hatch, reach].forEach((mark) => mark.setAttribute("transform", `translate(${it.x(value)} ${it.y(value)})`));
      dot.setAttribute("d", square(r));
      hatch.setAttribute("d", off ? hatchOf.square(r) : "");
      values[j].classList.toggle("qp-masked", off);
      values[j].classList.toggle("qp-at", study.at === j);
      name.textContent = names[j];
      it.label(name, value, r, names[j]);
      tell(values[j], it, value, off ? ", masked" : `, weight ${two(weights[j])}`);
    });
    output.setAttribute("transform", `translate(${it.x(mean)} ${it.y(mean)})`);
    const term = (weight, [x, y], name) => el("tr", {}, ...[weight, name, `(${two(x)}, ${two(y)})`].map((text) => el("td", { text })));
    sum.replaceChildren(el("h3", { text: "as a sum" }), el("table", { class: "qp-terms" },
      ...seen.map((j, at) => term(`${at ? "+ " : ""}${two(weights[j])} ·`, all[j], names[j])),
      el("tr", { class: "qp-total" }, el("td", { text: "=" }), el("td", { text: "✚" }), el("td", { text: `(${two(mean[0])}, ${two(mean[1])})` }))));
  }

  return { node, sum, draw };
}
