// A weight matrix before and after, in one colour scale.
import { painted } from "#lib/colours.js";
import { bitmap, choice, el, sized } from "#parts/dom.js";

const short = (name) => name.replace(/^(encoder|decoder)\.blocks\.(\d+)\./, "layer $2: ").replace(/attention\.heads\.|feed_forward\.|\.weight$/g, "");

export function matrixPanel(study, view) {
  const pick = choice("Matrix", "matrix", [], (name) => study.set({ matrix: name }));
  const [before, after] = ["before", "after"].map((word) => {
    const canvas = el("canvas", { role: "img" });
    return { canvas, node: el("div", { class: "cp-one" }, el("span", { class: "cp-caption", text: word }), canvas), word };
  });
  const said = el("p", { class: "av-quiet cp-said", "data-testid": "matrix-said" });
  const node = el("section", { class: "av-panel cp-matrix", "data-testid": "matrices" }, pick.node, el("div", { class: "cp-pair" }, before.node, after.node), said);
  let listed = "";

  function draw(wide, room) {
    const { state, network, masks } = study;
    const { matrices } = network.told;
    if (listed !== network.told.name) {
      pick.select.replaceChildren(...matrices.map((name) => el("option", { value: name, text: short(name) })));
      listed = network.told.name;
    }
    pick.select.value = state.matrix;
    const [rows, columns] = network.shape(state.matrix);
    const values = network.values(state.matrix);
    const made = network.made(state.matrix, masks, state);
    let top = 0;
    for (const x of values) top = Math.max(top, Math.abs(x));
    const across = room === "one" ? wide : Math.floor((wide - 40) * (room === "three" ? 0.38 : 0.48));
    const side = Math.min(170, Math.floor((across - 14) / 2));
    paint(before, values);
    paint(after, made);
    const levels = new Set(made).size;
    const zeros = made.reduce((sum, x) => sum + (x === 0 ? 1 : 0), 0);
    said.textContent = `${rows} × ${columns}; after: ${zeros} of ${made.length} are 0, ${levels} different numbers.`;

    function paint({ canvas, word }, list) {
      const [w, h] = columns >= rows ? [side, Math.max(8, (side * rows) / columns)] : [Math.max(8, (side * columns) / rows), side];
      const context = sized(canvas, w, h);
      context.imageSmoothingEnabled = false;
      context.drawImage(bitmap(painted(list, top, true, view.dark), columns, rows), 0, 0, w, h);
      canvas.setAttribute("aria-label", `The matrix ${short(state.matrix)} ${word}: ${rows} rows and ${columns} columns, from blue at −${top.toFixed(2)} to orange at ${top.toFixed(2)}.`);
    }
  }

  return { node, draw };
}
