// The way of all tokens as lines on a logarithmic scale, the chosen one bold; of a solver the residual.
import { power } from "./depth.js";
import { el, sized } from "#parts/dom.js";

const [LEFT, RIGHT, TOP, LOW] = [50, 8, 8, 20];

export function curvesPanel(study, view) {
  const title = el("h3", {});
  const canvas = el("canvas", { class: "dv-curves", role: "img", "data-testid": "curves" });
  const key = el("p", { class: "dv-legend av-quiet" });
  const node = el("section", { class: "av-panel dv-side" }, title, canvas, key);

  function draw(wide, high) {
    const { depth, state } = study;
    const { n, s, residual } = depth;
    const context = sized(canvas, wide, high);
    const [across, deep] = [wide - LEFT - RIGHT, high - TOP - LOW];
    const known = [...study.values, ...(residual ?? [])].filter((value) => value > 0);
    const top = known.length ? known.reduce((a, b) => Math.max(a, b)) : 1;
    const low = Math.min(top / 10, Math.max(known.length ? known.reduce((a, b) => Math.min(a, b)) : 0.1, top / 1e6));
    const x = (at) => LEFT + (across * (at + 0.5)) / s;
    const y = (value) => TOP + deep * (1 - Math.log(value / low) / Math.log(top / low));
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    context.textAlign = "right";
    const between = top / low < 50 ? [1, 2, 5] : [1]; // little more than one power of ten
    for (let place = Math.floor(Math.log10(low)); place <= Math.log10(top); place += 1) {
      for (const value of between.map((digit) => Number((digit * 10 ** place).toPrecision(1)))) {
        if (value < low || value > top) continue;
        context.fillStyle = view.colour("--av-line");
        context.fillRect(LEFT, y(value), across, 0.6);
        context.fillStyle = view.colour("--av-quiet");
        context.fillText(power(value), LEFT - 5, y(value) + 4);
      }
    }
    const line = (value, colour, width, dash = []) => {
      context.strokeStyle = view.colour(colour);
      context.lineWidth = width;
      context.setLineDash(dash);
      context.beginPath();
      let open = false;
      for (let at = 0; at <= Math.min(state.step, s - 1); at += 1) {
        if (!(value(at) >= low)) continue;
        if (open) context.lineTo(x(at), y(value(at)));
        else context.moveTo(x(at), y(value(at)));
        open = true;
      }
      context.stroke();
      context.setLineDash([]);
    };
    for (let i = 0; i < n; i += 1) line((at) => study.value(i, at), "--av-line", 1);
    const shown = study.at ? study.at[0] : state.token;
    if (residual) line((at) => residual[at], "--av-series-0", 2, [6, 4]);
    line((at) => study.value(shown, at), "--av-series-1", 2.5);
    context.fillStyle = view.colour("--av-quiet");
    context.textAlign = "left";
    context.fillText(`${depth.what} ${depth.steps[0]}`, LEFT, high - 5);
    context.textAlign = "right";
    context.fillText(depth.steps.at(-1), wide - RIGHT, high - 5);
    const names = { distance: "Distance to the final state", change: "Change by each step", probability: "Probability of the answer" };
    title.textContent = `${names[state.colour]}, log scale`;
    key.replaceChildren(
      el("span", {}, el("i", { class: "dv-line dv-chosen" }), ` token ${shown}`),
      el("span", {}, el("i", { class: "dv-line dv-others" }), " all tokens"),
      ...(residual ? [el("span", {}, el("i", { class: "dv-line dv-residual" }), " residual of the solver")] : []),
    );
    canvas.setAttribute("aria-label", `${title.textContent}: a line for each token, token ${shown} bold; the tables have the numbers.`);
  }

  return { node, draw };
}
