// The score against the distance: a line for each scheme, and one for each head of the chosen one.
import { apart, rangeOf, ticks } from "./distances.js";
import { drawn } from "#parts/svg.js";
import { el } from "#parts/dom.js";
import { said } from "./study.js";

const HIGH = 262, LEFT = 46, TOP = 10, BOTTOM = 40;

export function curvesPanel(study, view) {
  const list = el("div", { class: "pe-schemes", role: "group", "aria-label": "Schemes whose curves are drawn" });
  const chips = study.names.map((name) => {
    const box = el("input", { type: "checkbox", "data-testid": `show-${name}`, onchange: () => study.show(name, box.checked) });
    const { colour, dash } = study.look(name);
    const sample = drawn("svg", { width: 30, height: 10, "aria-hidden": "true" }, drawn("line", { x1: 1, x2: 29, y1: 5, y2: 5, "stroke-width": 2.5, "stroke-dasharray": dash, style: `stroke:${colour}` }));
    list.append(el("label", { class: "pe-chip" }, box, sample, el("span", { text: name })));
    return { name, box };
  });
  const plot = drawn("svg", { class: "pe-plot", role: "img", "data-testid": "curves" });
  const readout = el("p", { class: "pe-readout av-quiet", "data-testid": "curve-readout" });
  const node = el("section", { class: "av-panel", "aria-label": "Score against distance" },
    el("h3", { text: "Score against distance" }), list, plot, readout);
  let across = () => 0;
  let wide = 0;

  function draw() {
    const { n } = study;
    const shown = study.get("shown").map((name) => study.schemes.get(name));
    chips.forEach(({ name, box }) => (box.checked = study.get("shown").includes(name)));
    wide = Math.max(280, node.clientWidth);
    const right = Math.min(120, 24 + 7 * Math.max(0, ...shown.map(({ name }) => name.length)));
    const lines = shown.flatMap((scheme) => {
      const heads = scheme === study.scheme ? [...Array(scheme.heads).keys()] : [study.head(scheme)];
      return heads.map((head) => ({ scheme, head, curve: study.curve(scheme, head), main: head === study.head(scheme) }));
    });
    const range = rangeOf(lines.map(({ curve }) => curve));
    across = (t) => LEFT + (t / Math.max(1, n - 1)) * (wide - LEFT - right);
    const down = (score) => TOP + ((range[1] - score) / (range[1] - range[0])) * (HIGH - TOP - BOTTOM);
    plot.setAttribute("viewBox", `0 0 ${wide} ${HIGH}`);
    const mains = lines.filter(({ main }) => main);
    const ends = apart(mains.map(({ curve }) => down(curve[n - 1])), 14, TOP + 4, HIGH - BOTTOM);
    plot.replaceChildren(
      ...ticks(range, 5).flatMap((score) => [
        drawn("line", { class: score === 0 ? "pe-zero" : "pe-grid", x1: LEFT, x2: wide - right, y1: down(score), y2: down(score) }),
        drawn("text", { x: LEFT - 6, y: down(score) + 4, "text-anchor": "end", text: String(score).replace("-", "−") }),
      ]),
      ...ticks([0, n - 1], 6).map((t) => drawn("text", { x: across(t), y: HIGH - BOTTOM + 18, "text-anchor": "middle", text: t })),
      drawn("text", { x: LEFT, y: HIGH - 4, text: "distance: query position − key position" }),
      ...lines.map(({ scheme, curve, main }) => {
        const { colour, dash } = study.look(scheme.name);
        const path = curve.map((score, t) => `${t ? "L" : "M"}${across(t).toFixed(1)} ${down(score).toFixed(1)}`).join("");
        return drawn("path", { d: path, "stroke-width": main ? 2.5 : 1.4, "stroke-opacity": main ? 1 : 0.7, "stroke-dasharray": dash, style: `stroke:${colour}` });
      }),
      ...mains.map(({ scheme }, at) => drawn("text", { class: "pe-name", x: wide - right + 7, y: ends[at] + 4, style: `fill:${study.look(scheme.name).colour}`, text: scheme.name })),
    );
    plot.setAttribute("aria-label", `Score against distance: ${mains.map(({ scheme, curve }) => `${scheme.name} ${said(curve[n - 1])} at distance ${n - 1}`).join(", ")}`);
    hover();
  }

  function hover() {
    const { at, n } = study;
    plot.querySelector(".pe-at")?.remove();
    if (at === null) {
      readout.textContent = `The score at distance 0 is subtracted. Thick: head ${study.head(study.scheme)}; thin: the other heads of ${study.scheme.name}. Point at a distance.`;
      return;
    }
    plot.append(drawn("line", { class: "pe-at", x1: across(at), x2: across(at), y1: TOP, y2: HIGH - BOTTOM }));
    const parts = study.get("shown").map((name) => {
      const scheme = study.schemes.get(name);
      return `${name} ${said(study.curve(scheme, study.head(scheme))[at])}`;
    });
    readout.textContent = `Distance ${at} of ${n - 1}: ${parts.join(" · ")}`;
  }

  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * wide;
    const share = (x - across(0)) / (across(study.n - 1) - across(0) || 1);
    study.at = Math.min(study.n - 1, Math.max(0, Math.round(share * (study.n - 1))));
    view.later(hover);
  });
  plot.addEventListener("pointerleave", () => {
    study.at = null;
    view.later(hover);
  });

  return { node, draw };
}
