// The map of a head: full attention, in the colours of the scale where a key is read, orange where it is lost.
import { hatched } from "#lib/hatch.js";
import { level, lookup, parse } from "#lib/colours.js";
import { bitmap, el, sized } from "#parts/dom.js";

export function mapPanel(study, view, legend) {
  const canvas = el("canvas", { "aria-hidden": "true", "data-testid": "map" });
  const readout = el("p", { class: "av-readout av-hint av-quiet", "data-testid": "readout" });
  const node = el("section", { class: "av-panel lc-map" }, el("h3", { text: "Queries (rows) and keys" }), el("figure", { "aria-label": "Full attention, by whether it is read" }, canvas), readout, legend);
  let tall = 1;
  const pair = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (share, many) => Math.min(many - 1, Math.max(0, Math.floor(share * many)));
    return [at((event.clientY - box.top) / box.height, study.n), at((event.clientX - box.left) / box.width, study.m)];
  };
  canvas.addEventListener("pointermove", (event) => view.point(pair(event)));
  canvas.addEventListener("pointerleave", () => view.point(null));
  canvas.addEventListener("click", (event) => study.ask(pair(event)[0] + study.m - study.n));

  function draw(side) {
    const { n, m, layer, part, head, row } = study;
    const cell = side / m;
    node.style.width = `${side}px`;
    tall = Math.max(8, Math.round(cell * n));
    const context = sized(canvas, side, tall);
    context.fillStyle = view.colour("--av-panel");
    context.fillRect(0, 0, side, tall);
    const colours = lookup(false, false);
    const [r, g, b] = parse(view.colour("--lc-missed"));
    const full = layer.full.subarray(head * n * m, (head + 1) * n * m);
    const read = part.read.subarray(head * n * m, (head + 1) * n * m);
    const largest = full.reduce((most, one) => Math.max(most, one), 0);
    const pixels = new Uint32Array(n * m);
    const high = tall / n;
    for (let i = 0; i < n; i += 1) {
      let from = -1;
      for (let j = 0; j <= m; j += 1) {
        const at = i * m + j;
        const open = j < m && layer.allowed[at];
        if (open) {
          const strength = level(full[at], largest, false);
          pixels[at] = read[at] ? colours[strength] : ((strength << 24) | (b << 16) | (g << 8) | r) >>> 0;
        }
        if (j < m && !open && from < 0) from = j;
        if ((j === m || open) && from >= 0) {
          hatched(context, from * cell, i * high, (j - from) * cell, high, view.colour("--av-hatch"));
          from = -1;
        }
      }
    }
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(pixels, m, n), 0, 0, side, tall);
    if (layer.of === "block") borders(context, cell);
    context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 2;
    context.strokeRect(1, row * high, side - 2, high);
    if (study.unitAt !== null) mark(context, study.keysOf(study.unitAt), cell, row * high, high);
    if (study.pointed) {
      context.strokeStyle = view.colour("--lc-point");
      context.strokeRect(study.pointed[1] * cell, study.pointed[0] * high, cell, high);
    }
    readout.textContent = study.pointed ? study.pair(study.pointed) : "Point at a pair to read it; a click makes its row the query.";
  }

  function borders(context, cell) {
    context.strokeStyle = view.colour("--av-ink");
    context.globalAlpha = 0.4;
    context.lineWidth = 1;
    context.beginPath();
    study.layer.unit.forEach((one, key, all) => {
      if (key && one !== all[key - 1]) (context.moveTo(key * cell, 0), context.lineTo(key * cell, tall));
    });
    context.stroke();
    context.globalAlpha = 1;
  }

  function mark(context, keys, cell, y, high) {
    context.strokeStyle = view.colour("--lc-point");
    context.strokeRect(keys[0] * cell, y, keys.length * cell, high);
  }

  return { node, draw };
}
