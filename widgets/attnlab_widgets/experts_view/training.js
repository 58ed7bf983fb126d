// How evenly the experts were used while the model was trained: the share of each, one above the
// other, and the balance loss as a line.
import { two } from "#lib/plane.js";
import { el, sized } from "#parts/dom.js";
import { colourOf } from "./study.js";

const [LEFT, RIGHT, TOP, LOW] = [78, 36, 8, 18];

export function trainingPanel(study, view) {
  const canvas = el("canvas", { class: "ex-training", role: "img", "data-testid": "training" });
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": "training-readout" });
  const node = el("section", { class: "av-panel" }, el("h3", { text: "While it was trained: share of the tokens by expert, and the balance loss" }), canvas, readout);
  let [at, across] = [null, 1];
  node.hidden = study.history === null;

  canvas.addEventListener("pointermove", (event) => {
    const { steps } = study.history;
    const x = (event.clientX - canvas.getBoundingClientRect().left - LEFT) / across;
    const step = steps[0] + x * (steps.at(-1) - steps[0]);
    at = steps.reduce((best, one, place) => (Math.abs(one - step) < Math.abs(steps[best] - step) ? place : best), 0);
    view.changed();
  });
  canvas.addEventListener("pointerleave", () => {
    at = null;
    view.changed();
  });

  function draw(wide, high) {
    if (node.hidden) return;
    const { history: { steps, shares: all, balance: losses }, state: { layer } } = study;
    const [shares, balance] = [all[layer], losses && losses[layer]];
    const experts = study.layer.experts;
    const context = sized(canvas, wide, high);
    across = wide - LEFT - RIGHT;
    const deep = high - TOP - LOW;
    const x = (step) => LEFT + (across * (step - steps[0])) / (steps.at(-1) - steps[0]);
    const below = steps.map(() => 0);
    for (let expert = 0; expert < experts; expert += 1) {
      const points = steps.map((step, i) => [x(step), TOP + deep * (1 - below[i])]);
      steps.forEach((_, i) => (below[i] += shares[i][expert]));
      const over = steps.map((step, i) => [x(step), TOP + deep * (1 - below[i])]);
      context.beginPath();
      [...points, ...over.reverse()].forEach(([a, b], i) => (i ? context.lineTo(a, b) : context.moveTo(a, b)));
      context.fillStyle = colourOf(expert, view.dark);
      context.globalAlpha = 0.55;
      context.fill();
      context.globalAlpha = 1;
    }
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    const write = (text, a, b, align, colour = "--av-quiet") => {
      context.fillStyle = view.colour(colour);
      context.textAlign = align;
      context.fillText(text, a, b);
    };
    write("100 %", LEFT - 6, TOP + 8, "right");
    write("0", LEFT - 6, TOP + deep, "right");
    write(`step ${steps[0]}`, LEFT, high - 4, "left");
    write(String(steps.at(-1)), wide - RIGHT, high - 4, "right");
    if (balance) {
      const most = Math.max(experts, ...balance);
      const y = (loss) => TOP + deep * (1 - (loss - 1) / (most - 1 || 1));
      context.strokeStyle = view.colour("--av-ink");
      context.lineWidth = 2;
      context.beginPath();
      balance.forEach((loss, i) => (i ? context.lineTo(x(steps[i]), y(Math.max(1, loss))) : context.moveTo(x(steps[i]), y(Math.max(1, loss)))));
      context.stroke();
      write(two(most, most % 1 ? 1 : 0), wide - RIGHT + 5, TOP + 8, "left", "--av-ink");
      write("1", wide - RIGHT + 5, TOP + deep, "left", "--av-ink");
    }
    if (at !== null) {
      context.fillStyle = view.colour("--av-ink");
      context.fillRect(x(steps[at]) - 0.5, TOP, 1, deep);
    }
    canvas.setAttribute("aria-label", `Share of the tokens by expert over ${steps.length} steps of training; the tables have the numbers.`);
    const here = at ?? steps.length - 1;
    const most = shares[here].indexOf(Math.max(...shares[here]));
    const loss = balance ? ` The balance loss, the line, is ${two(balance[here])}: 1 if all ${experts} experts are used alike, ${experts} if one has all tokens.` : "";
    readout.textContent = `Step ${steps[here]}: expert ${most} has most, ${two(100 * shares[here][most], 0)} %.${loss}`;
  }

  return { node, draw };
}
