// The image of the chosen patch: where its strongest keys are, as a heat map over the patches.
import { bitmap, el, plain, sized } from "#parts/dom.js";
import { moved } from "#lib/keys.js";
import { imageOf } from "./space.js";
import { weight } from "#lib/words.js";
import { aroundIt } from "./words.js";

const SIDE = 300;
const ERROR = 0.02;

export function imagePanel(study, view) {
  const canvas = el("canvas", { class: "qk-image", tabindex: "0", role: "img", "data-testid": "image" });
  const told = el("p", { class: "qk-said", "data-testid": "image-said" });
  const near = el("p", { class: "qk-said av-quiet", "data-testid": "image-near" });
  const node = el("div", {}, canvas, told, near);

  canvas.addEventListener("click", (event) => {
    const { columns, rows } = grid();
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    choose(row * columns + column);
  });
  canvas.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    const { columns, rows } = grid();
    const next = moved(patchOf(side(), study.selected.row) ?? 0, rows * columns, event.key, columns);
    if (next === null) return;
    event.preventDefault();
    choose(next);
  });

  /** The side whose tokens are patches: that of the chosen point where both are. */
  function side() {
    const own = study.selected.side;
    return study.setOf(own).images ? own : own === "query" ? "key" : "query";
  }

  function grid() {
    const [rows, columns] = study.setOf(side()).images.grid;
    return { rows, columns };
  }

  /** Tokens before the patches of each image: [CLS], say. */
  const special = (set) => (set.special ??= set.position.reduce((a, b) => Math.max(a, b), 0) + 1 - set.images.grid[0] * set.images.grid[1]);

  /** The number of a token's patch in reading order; null where it is none. */
  function patchOf(which, row) {
    const set = study.setOf(which);
    const at = set.images ? set.position[row] - special(set) : -1;
    return at < 0 ? null : at;
  }

  function choose(patch) {
    const set = study.setOf(side());
    const row = set.rows[study.sequence].find((one) => set.position[one] === patch + special(set));
    if (row !== undefined) study.select(side(), row);
  }

  function draw() {
    const { columns, rows } = grid();
    const own = study.selected;
    const images = study.setOf(side()).images;
    const [high, wide] = images.size;
    const cell = Math.min(SIDE / columns, SIDE / rows);
    const pen = sized(canvas, cell * columns, cell * rows);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(bitmap(coloursOf(imageOf(study.data, images, study.sequence), images.colours), wide, high), 0, 0, cell * columns, cell * rows);
    const place = (patch) => [(patch % columns) * cell, Math.floor(patch / columns) * cell];
    const other = own.side === "query" ? "key" : "query";
    const partners = study.partners(own.side, own.row);
    for (const { row, w } of partners) {
      const patch = patchOf(other, row);
      if (patch === null) continue;
      pen.globalAlpha = 0.2 + 0.7 * Math.sqrt(w);
      pen.fillStyle = view.colour(other === "key" ? "--av-series-1" : "--av-series-0");
      pen.fillRect(...place(patch), cell, cell);
    }
    pen.globalAlpha = 1;
    const mine = patchOf(own.side, own.row);
    if (mine !== null) {
      for (const [colour, width] of [["#fff", 5], ["#000", 2]]) {
        pen.strokeStyle = colour;
        pen.lineWidth = width;
        pen.strokeRect(...place(mine).map((x) => x + 2), cell - 4, cell - 4);
      }
    }
    tell(partners, other, columns);
  }

  function tell(partners, other, columns) {
    const { side: own, row } = study.selected;
    const named = (which, at) => {
      const patch = patchOf(which, at);
      return patch === null ? study.setOf(which).short(at) : `row ${Math.floor(patch / columns)}, column ${patch % columns}`;
    };
    const list = partners.slice(0, 4).map((one) => `${named(other, one.row)} (${weight(one.w, ERROR)})`).join("; ");
    const verb = own === "query" ? "attends most to" : "is among the strongest keys of";
    told.textContent = `Image ${study.sequence}: the ${own} ${named(own, row)} ${verb} ${list || "nothing that was kept"}.`;
    canvas.setAttribute("aria-label", `${told.textContent} Arrow keys move to the next patch.`);
    near.textContent = aroundIt(study);
  }

  return { node, draw };
}

/** Bytes of grey or of three colours as pixels. */
function coloursOf(bytes, colours) {
  const out = new Uint32Array(bytes.length / colours);
  for (let i = 0; i < out.length; i += 1) {
    const [r, g, b] = colours === 3 ? [bytes[3 * i], bytes[3 * i + 1], bytes[3 * i + 2]] : [bytes[i], bytes[i], bytes[i]];
    out[i] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  return out;
}
