// Where the loss comes from: a row for each step of a training, a column for each place of one draw.
import { CIVIDIS, mixed } from "#lib/colours.js";
import { two } from "#lib/plane.js";
import { el, sized } from "#parts/dom.js";

const [LEFT, RIGHT, LOW] = [52, 74, 16];
const FONT = '11px system-ui, "DejaVu Sans", sans-serif';

export function historyPanel(study, view) {
  const title = el("h3", { text: "Where the loss comes from, as the model learns" });
  const canvas = el("canvas", { class: "wh-history", role: "img", "data-testid": "history" });
  const note = el("p", { class: "av-quiet wh-note", "data-testid": "history-note" });
  const node = el("section", { class: "av-panel wh-side" }, title, canvas, note);

  function draw(wide) {
    const found = study.history();
    node.hidden = !study.rows.some((row) => row.history);
    canvas.hidden = found === null;
    if (node.hidden) return;
    if (found === null) {
      note.textContent = study.draw.whole ? "One answer for the whole text: no place of it has a loss of its own." : "No training of this objective is stored.";
      return;
    }
    const { steps, losses, beside, same, draw: drawn } = found;
    const high = Math.min(18, 100 / steps.length);
    const context = sized(canvas, wide, steps.length * high + LOW);
    const most = Math.max(...losses.flat(), 1e-6);
    const cell = (wide - LEFT - RIGHT) / losses[0].length;
    context.font = FONT;
    steps.forEach((step, line) => {
      const y = line * high;
      context.fillStyle = view.colour("--av-quiet");
      context.textAlign = "right";
      context.fillText(String(step), LEFT - 6, y + high / 2 + 4);
      losses[line].forEach((loss, at) => {
        context.fillStyle = drawn.asked[at][1] < 0 ? view.colour("--av-panel") : `rgb(${mixed(CIVIDIS, Math.sqrt(loss / most)).join(" ")})`;
        context.fillRect(LEFT + at * cell, y, Math.max(1, cell - 0.5), high - 1);
      });
      const sum = losses[line].reduce((a, b) => a + b, 0) + beside[line];
      context.fillStyle = view.colour("--av-ink");
      context.fillText(two(sum), wide - 2, y + high / 2 + 4);
    });
    if (same) {
      context.strokeStyle = view.colour("--av-ink");
      context.lineWidth = 2;
      context.strokeRect(LEFT + study.state.place * cell, 0.5, Math.max(2, cell - 0.5), steps.length * high - 1);
    }
    context.fillStyle = view.colour("--av-quiet");
    context.textAlign = "left";
    context.fillText("step", 14, steps.length * high + 12);
    context.fillText("places, the first at the left", LEFT, steps.length * high + 12);
    context.textAlign = "right";
    context.fillText("sum, nats", wide - 2, steps.length * high + 12);
    const place = same && drawn.asked[study.state.place][1] >= 0 ? ` At place ${study.state.place} from ${two(losses[0][study.state.place])} to ${two(losses.at(-1)[study.state.place])} nats.` : "";
    const other = beside.some((value) => value > 0) ? " The sum includes what belongs to no place." : "";
    note.textContent = `Dark: little loss; bright: up to ${two(most)} nats.${place}${other}${same ? "" : " Recorded with seed 0 and rate 0.15."}`;
    canvas.setAttribute("aria-label", `Loss of ${losses[0].length} places at ${steps.length} steps. ${note.textContent} The tables have the numbers.`);
  }

  return { node, draw };
}
