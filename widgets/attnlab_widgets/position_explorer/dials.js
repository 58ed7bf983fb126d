// A query and a key of RoPE: two arrows for each pair of coordinates, turned by their positions.
import { pairsOf, wrapped } from "./rotation.js";
import { el, slider } from "#parts/dom.js";
import { drawn } from "#parts/svg.js";
import { said } from "./study.js";

const RADIUS = 50, ARC = 22, STEP = Math.PI / 36;
const WHO = ["query", "key"];

export function dialsPanel(study, view) {
  const width = study.get("head_dim");
  const place = (name, value) => Math.min(study.n - 1, Math.max(0, value));
  const mover = (name) => slider(`${name === "query" ? "● Query" : "◆ Key"} at`, name, { min: 0, max: study.n - 1, step: 1 }, (value) => study.set({ [name]: value }));
  const query = mover("query");
  const key = mover("key");
  const both = slider("Move both to", "both", { min: 0, max: study.n - 1, step: 1 }, (value) => {
    const by = value - Math.min(study.get("query"), study.get("key"));
    study.set({ query: place("query", study.get("query") + by), key: place("key", study.get("key") + by) });
  });
  const reset = el("button", { type: "button", class: "av-button", text: "Reset arrows", "data-testid": "reset", onclick: () => study.set({ phases: Array(width).fill(0) }) });
  const dials = Array.from({ length: width / 2 }, (_, t) => dial(t));
  const score = el("p", { class: "pe-score", "data-testid": "score", role: "status" });
  const node = el("section", { class: "av-panel pe-turn", "aria-label": "A query and a key, turned by hand" },
    el("h3", { text: "RoPE by hand: a query and a key, turned by their positions" }),
    el("div", { class: "av-row pe-sliders" }, query.node, key.node, both.node, reset),
    el("div", { class: "pe-dials" }, ...dials.map((one) => one.node)), score);

  function dial(t) {
    const arc = drawn("path", { class: "pe-arc" });
    const arrows = WHO.map((who, at) => arrow(t, who, at));
    const face = drawn("svg", { viewBox: "-62 -62 124 124", role: "group", "aria-label": `Pair ${t}: query and key as arrows`, "data-testid": `dial-${t}` },
      drawn("circle", { class: "pe-rim", r: RADIUS + 8 }), arc, ...arrows);
    const text = el("p", { "data-testid": `pair-${t}` });
    face.addEventListener("pointermove", (event) => {
      const held = arrows.findIndex((one) => one.hasPointerCapture(event.pointerId));
      if (held < 0) return;
      const box = face.getBoundingClientRect();
      const angle = Math.atan2(box.top + box.height / 2 - event.clientY, event.clientX - box.left - box.width / 2);
      turn(t, held, angle - turned(t)[WHO[held]]);
    });
    return { node: el("div", { class: "pe-dial" }, face, text), arc, arrows, text };
  }

  function arrow(t, who, at) {
    const tip = at ? drawn("path", { class: "pe-tip", d: "M52 0L44 -7L36 0L44 7Z" }) : drawn("circle", { class: "pe-tip", cx: 45, r: 6.5 });
    const node = drawn("g", { class: `pe-arrow pe-${who}`, tabindex: 0, role: "slider", "aria-label": `${who}, pair ${t}: direction before turning`, "aria-valuemin": -180, "aria-valuemax": 180, "data-testid": `${who}-${t}` },
      drawn("line", { x2: 40 }), tip, drawn("circle", { class: "pe-grip", cx: 44, r: 14 }));
    node.addEventListener("pointerdown", (event) => node.setPointerCapture(event.pointerId));
    node.addEventListener("keydown", (event) => {
      const by = { ArrowRight: -1, ArrowDown: -1, ArrowLeft: 1, ArrowUp: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      turn(t, at, by * STEP);
    });
    return node;
  }

  const turned = (t) => pairsOf(study.get("query"), study.get("key"), study.get("phases"), width, study.get("base"))[t];

  function turn(t, at, by) {
    const phases = [...study.get("phases")];
    phases[2 * t + at] = wrapped(phases[2 * t + at] + by);
    study.set({ phases });
  }

  function draw() {
    const [i, j] = [study.get("query"), study.get("key")];
    const phases = study.get("phases");
    [[query, i], [key, j], [both, Math.min(i, j)]].forEach(([one, value]) => {
      one.input.value = value;
      one.output.textContent = value;
    });
    both.input.max = study.n - 1 - Math.abs(i - j);
    both.input.value = Math.min(i, j);
    const pairs = pairsOf(i, j, phases, width, study.get("base"));
    pairs.forEach((pair, t) => {
      const { arc, arrows, text } = dials[t];
      WHO.forEach((who, at) => {
        arrows[at].setAttribute("transform", `rotate(${degrees(-pair[who])})`);
        arrows[at].setAttribute("aria-valuenow", Math.round(degrees(phases[2 * t + at])));
      });
      arc.setAttribute("d", bow(pair.query, pair.between));
      text.textContent = `θ = ${number(pair.theta)} · Δ = ${Math.round(degrees(pair.between))}°\nadds ${said(pair.adds)}`.replace("= -", "= −");
    });
    const total = pairs.reduce((sum, { adds }) => sum + adds, 0) / Math.sqrt(width);
    score.textContent = `Distance ${i - j}: the pairs add up to q·k / √${width} = ${said(total)}. Move both, and every Δ stays. Drag an arrow to turn it. Δ: from the query's arrow (●) to the key's (◆).`;
  }

  return { node, draw };
}

const degrees = (angle) => (angle * 180) / Math.PI;
const number = (theta) => (theta >= 0.1 ? theta.toFixed(1) : String(Number(theta.toPrecision(1)))).replace(/\.0$/, "");

/** The arc from the query's arrow to the key's. */
function bow(from, by) {
  const point = (angle) => `${(ARC * Math.cos(angle)).toFixed(1)} ${(-ARC * Math.sin(angle)).toFixed(1)}`;
  return `M${point(from)}A${ARC} ${ARC} 0 0 ${by > 0 ? 0 : 1} ${point(from + by)}`;
}
