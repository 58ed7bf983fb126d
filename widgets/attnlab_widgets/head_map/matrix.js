// The map of the chosen head over the text: a row for each query, a column for each key.
import { painted } from "#lib/colours.js";
import { hatched } from "#lib/hatch.js";
import { moved } from "#lib/keys.js";
import { bitmap, el, hatchKey, plain, sized } from "#parts/dom.js";
import { MASKED, weightOf } from "./study.js";
import { called, ofQuery } from "./words.js";

const FONT = '11px system-ui, "DejaVu Sans", sans-serif';

export function matrixPanel(study, view) {
  const { found } = study;
  const title = el("h3", {});
  const canvas = el("canvas", { class: "hm-matrix", tabindex: "0", role: "application", "aria-roledescription": "attention map", "data-testid": "matrix" });
  const legend = el("p", { class: "hm-key av-quiet" });
  const readout = el("p", { class: "av-readout av-quiet", "data-testid": "readout" });
  const node = el("section", { class: "av-panel", "aria-label": "The map of the chosen head" }, title, canvas, legend, readout);
  let [left, upper, cell] = [0, 0, 1];

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [i, j] = [Math.floor((event.clientY - box.top - upper) / cell), Math.floor((event.clientX - box.left - left) / cell)];
    return i < 0 || i >= found.n || j >= found.n ? null : [i, j];
  }
  canvas.addEventListener("pointermove", (event) => say(under(event)));
  canvas.addEventListener("pointerleave", () => say(null));
  canvas.addEventListener("click", (event) => {
    const at = under(event);
    if (at) study.chooseQuery(at[0]);
  });
  canvas.addEventListener("keydown", (event) => {
    const next = plain(event) ? moved(study.model.get("query"), found.n, event.key) : null;
    if (next === null) return;
    event.preventDefault();
    study.chooseQuery(next);
  });

  function say(at) {
    if (!at || at[1] < 0) readout.textContent = ofQuery(found, study.at, at ? at[0] : study.state.query);
    else {
      const code = study.code(...at);
      readout.textContent = `“${found.tokens[at[0]]}” (${at[0]}) to “${found.tokens[at[1]]}” (${at[1]}): ${code === MASKED ? "masked" : weightOf(code).toFixed(2)}.`;
    }
  }

  function draw(wide, high) {
    const { n } = found;
    const labels = Math.min((wide - 90) / n, (high - 84) / n) >= 9;
    [left, upper] = labels ? [86, 80] : [20, 20];
    cell = Math.min((wide - left - 4) / n, (high - upper - 4) / n, 26);
    const side = cell * n;
    const context = sized(canvas, left + side + 4, upper + side + 4);
    const values = new Float32Array(n * n);
    const masked = new Uint8Array(n * n);
    for (let at = 0; at < n * n; at += 1) {
      const code = found.codes[study.at * n * n + at];
      values[at] = weightOf(code);
      masked[at] = Number(code === MASKED);
    }
    const some = masked.some(Boolean);
    context.fillStyle = view.colour("--av-hatch-ground");
    context.fillRect(left, upper, side, side);
    if (some) hatched(context, left, upper, side, side, view.colour("--av-hatch"));
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(painted(values, 1, false, view.dark, masked), n, n), left, upper, side, side);
    names(context, labels, side);
    context.strokeStyle = view.colour("--av-series-1");
    context.lineWidth = 2;
    context.strokeRect(left - 1, upper + study.state.query * cell - 1, side + 2, cell + 2);
    title.textContent = `${called(found.heads[study.at]).replace("h", "H")}: what each query attends to`;
    canvas.setAttribute("aria-label", `The map of ${called(found.heads[study.at])} over ${n} tokens. ${ofQuery(found, study.at, study.state.query)} Arrow keys choose the query.`);
    legend.replaceChildren(el("span", { text: "rows: queries, columns: keys; light: large weights" }), ...(some ? [hatchKey(view, "masked")] : []));
    say(null);
  }

  function names(context, labels, side) {
    context.font = FONT;
    context.textBaseline = "middle";
    if (!labels) {
      context.fillStyle = view.colour("--av-quiet");
      context.textAlign = "center";
      context.fillText("key", left + side / 2, upper / 2);
      turned(context, left / 2, upper + side / 2, () => context.fillText("query", 0, 0));
      return;
    }
    found.tokens.forEach((text, i) => {
      const now = i === study.state.query;
      const middle = (i + 0.5) * cell;
      context.fillStyle = view.colour(now ? "--av-ink" : "--av-quiet");
      context.font = now ? `600 ${FONT}` : FONT;
      context.textAlign = "right";
      context.fillText(text, left - 6, upper + middle, left - 10);
      context.font = FONT;
      context.fillStyle = view.colour("--av-quiet");
      context.textAlign = "left";
      turned(context, left + middle, upper - 6, () => context.fillText(text, 0, 0, upper - 10));
    });
  }
  return { node, draw };
}

function turned(context, x, y, write) {
  context.save();
  context.translate(x, y);
  context.rotate(-Math.PI / 2);
  write();
  context.restore();
}
