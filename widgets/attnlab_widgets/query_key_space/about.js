// The chosen head in numbers: its statistics, and its mean attention from position to position.
import { el, bitmap, sized } from "#parts/dom.js";
import { hatched } from "#lib/hatch.js";
import { painted } from "#lib/colours.js";
import { weight } from "#lib/words.js";

const SIDE = 176;
const AXIS = 18;

export function aboutPanel(study, view) {
  const list = el("dl", { class: "qk-figures", "data-testid": "statistics" });
  const canvas = el("canvas", { role: "img", "data-testid": "by-position" });
  const said = el("p", { class: "qk-said av-quiet" });
  const node = el("div", { class: "qk-about" }, list, el("h4", { text: "Mean attention by position" }), canvas, said);

  function draw() {
    const at = study.chosen;
    const { statistics } = study.layerOf(at);
    const [, head] = study.heads[at].is;
    const rows = Object.entries(statistics).map(([name, values]) => [name.replaceAll("_", " "), values[head]]);
    const scaling = study.head.scaling;
    list.replaceChildren(
      ...[["kind", study.kind(at) || null], ...rows, ["scaling c", scaling]].filter(([, value]) => value !== null)
        .flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: typeof value === "number" ? weight(value, 0.001) : value })]),
    );
    const { weights, rows: high, columns: wide } = study.byPosition();
    const pen = sized(canvas, SIDE + AXIS, SIDE + AXIS);
    pen.imageSmoothingEnabled = false;
    const later = (at) => at % wide > Math.floor(at / wide);
    const past = wide > 1 && weights.every((weight, at) => !later(at) || weight === 0);
    const masked = Uint8Array.from(weights, (_, at) => Number(past && (later(at) || at === 0)));
    const largest = weights.reduce((a, b, at) => (masked[at] ? a : Math.max(a, b)), 0);
    if (past) hatched(pen, AXIS, 0, SIDE, SIDE, view.colour("--av-hatch"));
    pen.drawImage(bitmap(painted(weights.map((weight, at) => (masked[at] ? 0 : weight)), 1, false, view.dark, masked), wide, high), AXIS, 0, SIDE, SIDE);
    if (past) framed(pen, AXIS, 0, SIDE / wide, SIDE / high);
    pen.font = view.small;
    pen.fillStyle = view.colour("--av-quiet");
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    pen.fillText(`key position 0 … ${wide - 1} →`, AXIS + SIDE / 2, SIDE + 10);
    pen.rotate(-Math.PI / 2);
    pen.fillText(`← query 0 … ${high - 1}`, -SIDE / 2, 8);
    canvas.setAttribute("aria-label", `Mean attention of query positions (down) to key positions (across), at most ${weight(largest, 0.01)}`);
    said.textContent = `Mean over all ${study.sets().q.images ? "images" : "sequences"}: dark is 0, yellow 1, by the root of the weight; the largest is ${weight(largest, 0.01)}.${past ? " Hatched: masked. The framed cell is the only key of its query: always 1." : ""}`;
  }

  /** The only key of the first query has a frame in place of a colour. */
  function framed(pen, x, y, across, down) {
    pen.fillStyle = view.colour("--av-paper");
    pen.fillRect(x, y, across, down);
    pen.strokeStyle = view.colour("--av-quiet");
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, Math.max(1, across - 1), Math.max(1, down - 1));
  }

  return { node, draw };
}
