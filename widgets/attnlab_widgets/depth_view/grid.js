// A row for each token and a column for each step; above them how many tokens are still on the way.
import { power, rowsOf, running } from "./depth.js";
import { CIVIDIS, mixed } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { two } from "#lib/plane.js";
import { el, hatchKey, plain, sized } from "#parts/dom.js";

const [LEFT, BARS] = [108, 44];
const FONT = '11px system-ui, "DejaVu Sans", sans-serif';
const WORDS = {
  distance: ["how far from the state with which it leaves", "there", "far"],
  change: ["by how much the step changed the state", "little", "much"],
  probability: ["how sure the model would be of its answer", "0", "1"],
};

export function gridPanel(study, view) {
  const head = el("canvas", { class: "dv-head", "aria-hidden": "true" });
  const canvas = el("canvas", { class: "dv-grid", role: "application", tabindex: 0, "aria-roledescription": "grid", "data-testid": "grid" });
  const frame = el("div", { class: "dv-frame" }, canvas);
  const legend = el("p", { class: "dv-legend av-quiet", "data-testid": "legend" });
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": "readout" });
  const node = el("section", { class: "av-panel dv-ways" }, head, frame, legend, readout);
  let [cell, row] = [20, 20];

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [line, at] = [Math.floor((event.clientY - box.top) / row), Math.floor((event.clientX - box.left - LEFT) / cell)];
    if (line < 0 || line >= study.rows.length || at >= study.depth.s) return null;
    return [study.rows[line], Math.max(0, at)];
  }
  canvas.addEventListener("pointermove", (event) => view.point(under(event)));
  canvas.addEventListener("pointerleave", () => view.point(null));
  canvas.addEventListener("click", (event) => {
    const found = under(event);
    if (found) study.set({ token: found[0] });
  });
  canvas.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    // Keys may come faster than pictures, so that what was drawn last is not what is chosen.
    const [token, step, order] = ["token", "step", "order"].map((name) => study.model.get(name));
    const down = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    const across = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!down && !across) return;
    event.preventDefault();
    const rows = rowsOf(study.depth, order);
    const line = rows.indexOf(token) + (down ?? 0);
    if (down) study.set({ token: rows[Math.min(rows.length - 1, Math.max(0, line))] });
    else study.set({ step: Math.min(study.depth.s - 1, Math.max(0, step + across)) });
  });

  function draw(wide, high) {
    const { depth, rows, state } = study;
    row = Math.max(depth.n > 40 ? 15 : 18, Math.min(24, Math.floor(high / depth.n)));
    cell = Math.min(84, (wide - LEFT - 14) / depth.s);
    const context = sized(canvas, LEFT + depth.s * cell + 2, rows.length * row + 2);
    context.font = FONT;
    drawHead(wide);
    rows.forEach((i, line) => drawRow(context, i, line * row + 1));
    const y = rows.indexOf(state.token) * row + 1;
    context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 2;
    context.strokeRect(LEFT, y, depth.s * cell, row - 1);
    frame.style.maxHeight = `${high}px`;
    if (frame.scrollHeight > frame.clientHeight && (y < frame.scrollTop || y + row > frame.scrollTop + frame.clientHeight)) frame.scrollTop = y - frame.clientHeight / 2;
    canvas.setAttribute("aria-label", `${depth.n} tokens by ${depth.s} ${depth.what}s. ${study.sentence} Arrow keys go from token to token, and from ${depth.what} to ${depth.what}.`);
    drawLegend();
    readout.textContent = said(...(study.at ?? [state.token, Math.min(state.step, depth.left[state.token] - 1)]));
  }

  function drawHead(wide) {
    const { depth, early, state } = study;
    const high = early ? BARS + 18 : 18;
    const context = sized(head, wide, high);
    context.font = FONT;
    const write = (text, x, y, align, strong = false) => {
      context.fillStyle = view.colour(strong ? "--av-ink" : "--av-quiet");
      context.textAlign = align;
      context.fillText(text, x, y);
    };
    if (early) {
      write("still on the way", LEFT - 8, BARS - 8, "right");
      running(depth).forEach((count, at) => {
        const tall = (BARS - 16) * (count / depth.n);
        context.fillStyle = view.colour("--av-series-0");
        context.globalAlpha = at > state.step ? 0.3 : 1;
        context.fillRect(LEFT + at * cell, BARS - tall, Math.max(1, cell - 1), tall);
        context.globalAlpha = 1;
        if (cell >= 26) write(String(count), LEFT + (at + 0.5) * cell, BARS - tall - 4, "center");
      });
    }
    write(depth.what, LEFT - 8, high - 5, "right");
    const every = Math.max(1, Math.ceil(26 / cell));
    depth.steps.forEach((name, at) => {
      if (at % every === 0 || at === state.step) write(at === state.step || Math.abs(at - state.step) * cell > 24 ? name : "", LEFT + (at + 0.5) * cell, high - 5, "center", at === state.step);
    });
  }

  function drawRow(context, i, y) {
    const { depth, state, scale } = study;
    const left = depth.left[i];
    context.font = i === state.token ? `600 ${FONT}` : FONT;
    context.fillStyle = view.colour(i === state.token ? "--av-ink" : "--av-quiet");
    context.textAlign = "right";
    context.fillText(depth.tokens[i], LEFT - 8, y + row / 2 + 3, LEFT - 12);
    context.font = FONT;
    for (let at = 0; at < left; at += 1) {
      const value = study.value(i, at);
      const share = scale.share(value);
      const box = [LEFT + at * cell, y, cell + 0.3, row - 1];
      context.globalAlpha = at > state.step ? 0.12 : 1;
      context.fillStyle = Number.isNaN(value) ? view.colour("--av-panel") : `rgb(${mixed(CIVIDIS, share).join(" ")})`;
      context.fillRect(...box);
      context.globalAlpha = 1;
      if (at <= state.step && depth.guesses && cell >= 34) {
        context.fillStyle = Number.isNaN(value) ? view.colour("--av-ink") : share < 0.55 ? "#ffffff" : "#101418";
        context.textAlign = "center";
        context.fillText(depth.guesses[i][at], LEFT + (at + 0.5) * cell, y + row / 2 + 3, cell - 6);
      }
    }
    if (left === depth.s) return;
    const x = LEFT + left * cell;
    context.fillStyle = view.colour("--av-hatch-ground");
    context.fillRect(x, y, (depth.s - left) * cell, row - 1);
    hatched(context, x, y, (depth.s - left) * cell, row - 1, view.colour("--av-hatch"));
    context.fillStyle = view.colour("--av-series-1"); // the exit
    if (left <= state.step + 1) context.fillRect(x - 3, y - 0.5, 3, row);
  }

  function drawLegend() {
    const { scale, state, early } = study;
    const [words, least, most] = WORDS[state.colour];
    const strip = el("i", { class: "dv-strip", style: `background: linear-gradient(90deg, ${CIVIDIS.join(", ")})` });
    const ends = state.colour === "probability" ? [least, most] : [`${least}${scale.log ? `, ${power(scale.low)}` : ", 0"}`, `${most}, ${power(scale.high)}`];
    const parts = [el("span", { text: `${words[0].toUpperCase()}${words.slice(1)}: ${ends[0]}` }), strip, el("span", { text: `${ends[1]}${scale.log ? " (log)" : ""}` })];
    if (early) parts.push(hatchKey(view, " after the token has left"));
    legend.replaceChildren(...parts);
  }

  function said(i, at) {
    const { depth } = study;
    const name = `Token ${i} “${depth.tokens[i]}”`;
    const step = `${depth.what} ${depth.steps[at]}`;
    if (at >= depth.left[i]) return `${name} left after ${depth.what} ${depth.steps[depth.left[i] - 1]}: nothing is computed at ${step}.`;
    const change = depth.change[i * depth.s + at];
    const changed = Number.isNaN(change) ? "" : `, changed by ${power(change)}`;
    const guess = depth.guesses ? `; answer “${depth.guesses[i][at]}” with ${two(depth.probability[i * depth.s + at])}` : "";
    return `${name} after ${step}: ${power(depth.distance[i * depth.s + at])} from its final state${changed}${guess}.`;
  }

  return { node, draw };
}
