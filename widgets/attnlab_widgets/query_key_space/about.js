// The chosen head in numbers: its statistics, and its mean attention from position to position.
import { el, bitmap, sized } from "#parts/dom.js";
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
    const largest = weights.reduce((a, b) => Math.max(a, b), 0);
    pen.drawImage(bitmap(painted(weights, largest, false, view.dark), wide, high), AXIS, 0, SIDE, SIDE);
    pen.font = view.small;
    pen.fillStyle = view.colour("--av-quiet");
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    pen.fillText(`key position 0 … ${wide - 1} →`, AXIS + SIDE / 2, SIDE + 10);
    pen.rotate(-Math.PI / 2);
    pen.fillText(`← query 0 … ${high - 1}`, -SIDE / 2, 8);
    canvas.setAttribute("aria-label", `Mean attention of query positions (down) to key positions (across), at most ${weight(largest, 0.01)}`);
    said.textContent = `Mean over all ${study.sets().q.images ? "images" : "sequences"}; yellow is ${weight(largest, 0.01)}.`;
  }

  return { node, draw };
}
