// A row for each objective and a column for each token of the text.
import { el, plain, sized } from "#parts/dom.js";
import { drawCell, drawPaid } from "./cell.js";
import { HIDDEN, OPEN, REPLACED, SHOWN } from "./study.js";

const [LEFT, RIGHT, HEAD] = [128, 84, 58];
const FONT = '11px system-ui, "DejaVu Sans", sans-serif';
const KEYS = [[SHOWN, "shown"], [HIDDEN, "hidden"], [REPLACED, "replaced"], [OPEN, "read from both sides"]];

export function overviewPanel(study, view) {
  const canvas = el("canvas", { class: "wh-grid", role: "application", tabindex: 0, "aria-roledescription": "grid", "data-testid": "grid" });
  const legend = el("p", { class: "wh-legend av-quiet", "data-testid": "legend" });
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": "readout" });
  const node = el("section", { class: "av-panel" }, canvas, legend, readout);
  let [cell, row] = [20, 18];

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [line, token] = [Math.floor((event.clientY - box.top - HEAD) / row), Math.floor((event.clientX - box.left - LEFT) / cell)];
    if (line < 0 || line >= study.rows.length || token >= study.told.tokens.length) return null;
    return [line, token];
  }
  canvas.addEventListener("pointermove", (event) => {
    const found = under(event);
    readout.textContent = found && found[1] >= 0 ? study.became(study.rows[found[0]], found[1]) : said();
  });
  canvas.addEventListener("pointerleave", () => (readout.textContent = said()));
  canvas.addEventListener("click", (event) => {
    const found = under(event);
    if (found) study.choose(...found);
  });
  canvas.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const across = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!down && !across) return;
    event.preventDefault();
    // Keys may come faster than pictures, so that what was drawn last is not what is chosen.
    const now = study.now();
    const line = study.rows.findIndex((each) => each.name === now.objective);
    if (across) {
      const most = study.drawOf(study.rows[line], now).asked.length - 1;
      study.set({ place: Math.min(most, Math.max(0, now.place + across)) });
    } else study.choose(Math.min(study.rows.length - 1, Math.max(0, line + down)));
  });

  const said = () => study.readout();

  function draw(wide) {
    const { rows, told, state } = study;
    const n = told.tokens.length;
    row = rows.length > 18 ? 15 : 18;
    cell = Math.min(40, (wide - LEFT - RIGHT) / n);
    const context = sized(canvas, wide, HEAD + rows.length * row + 3);
    context.font = FONT;
    told.tokens.forEach((token, at) => {
      context.save();
      context.translate(LEFT + (at + 0.5) * cell, HEAD - 5);
      context.rotate(-Math.PI / 3.2);
      context.fillStyle = view.colour("--av-quiet");
      context.textAlign = "left";
      context.fillText(token, 0, 0, 62);
      context.restore();
    });
    rows.forEach((each, line) => drawRow(context, each, HEAD + line * row, n, wide));
    context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 2;
    context.strokeRect(LEFT - 2, HEAD + study.line * row - 1, n * cell + 3, row);
    canvas.setAttribute("aria-label", `${rows.length} objectives by ${n} tokens. ${study.sentence} ${said()} Arrow keys go from objective to objective, and from place to place.`);
    legend.replaceChildren(...KEYS.map(([kind, words]) => key(kind, words)), paidKey());
    readout.textContent = said();
  }

  function drawRow(context, each, y, n, wide) {
    const found = study.drawOf(each, study.state);
    const chosen = each.name === study.state.objective;
    context.font = chosen ? `600 ${FONT}` : FONT;
    context.fillStyle = view.colour(chosen ? "--av-ink" : "--av-quiet");
    context.textAlign = "left";
    context.fillText(each.name, 0, y + row / 2 + 3, LEFT - 8);
    for (let at = 0; at < found.kinds.length; at += 1) {
      drawCell(context, view, Number(found.kinds[at]), LEFT + at * cell, y + 1, cell - 1, row - 3);
      if (found.pays[at] === "1") drawPaid(context, view, LEFT + (at + 0.5) * cell - 0.5, y + row / 2 - 0.5);
    }
    for (let at = found.kinds.length; at < n; at += 1) { // a text of several parts may leave a few out
      context.fillStyle = view.colour("--av-line");
      context.fillRect(LEFT + (at + 0.5) * cell - 1, y + row / 2 - 1, 2, 2);
    }
    const paid = [...found.pays].filter((each) => each === "1").length;
    context.fillStyle = view.colour("--av-quiet");
    context.textAlign = "right";
    context.fillText(found.whole || `${paid} of ${found.kinds.length}`, wide - 1, y + row / 2 + 3, RIGHT - 10);
  }

  function key(kind, words) {
    const box = el("canvas", { "aria-hidden": "true" });
    drawCell(sized(box, 18, 12), view, kind, 0, 0, 18, 12);
    return el("span", {}, box, el("span", { text: words }));
  }

  function paidKey() {
    const box = el("canvas", { "aria-hidden": "true" });
    drawPaid(sized(box, 10, 12), view, 5, 6);
    return el("span", {}, box, el("span", { text: "asked for: it pays" }));
  }

  return { node, draw };
}
