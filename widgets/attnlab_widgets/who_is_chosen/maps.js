// Four maps: chosen pairs by weight, heavy ones that were lost in orange; rows are queries.
import { borders, inGroups } from "#lib/choices.js";
import { hatched } from "#lib/hatch.js";
import { level, lookup, parse } from "#lib/colours.js";
import { bitmap, el, sized } from "#parts/dom.js";
import { grouped } from "#lib/wall.js";
import { WAYS, percent } from "./study.js";

export function mapsPanel(study, view) {
  const made = WAYS.map(({ key, title, colour }) => {
    const canvas = el("canvas", { "aria-hidden": "true", "data-testid": `map-${key}` });
    const facts = el("span", { class: "wc-facts" });
    const node = el("figure", { class: "wc-map", style: `--own:var(${colour})` }, el("figcaption", {}, el("strong", { text: title }), facts), canvas);
    const one = { key, canvas, facts, node, rows: [], columns: [] };
    const pair = (event) => {
      const box = canvas.getBoundingClientRect();
      const at = (share, order) => order[Math.min(order.length - 1, Math.max(0, Math.floor(share * order.length)))];
      return [at((event.clientY - box.top) / box.height, one.rows), at((event.clientX - box.left) / box.width, one.columns)];
    };
    canvas.addEventListener("pointermove", (event) => view.point(pair(event)));
    canvas.addEventListener("pointerleave", () => view.point(null));
    canvas.addEventListener("click", (event) => study.set({ query: pair(event)[0] }));
    return one;
  });
  const node = el("section", { class: "wc-maps" }, ...made.map((one) => one.node));

  function paint({ key, canvas, facts, node: figure, ...one }, side, index) {
    const { n, weights, allowed, most, state } = study;
    const { chosen, queryGroups, keyGroups, pairs, recall } = study.found[key];
    const apart = state.order === "groups" && queryGroups;
    const usual = Array.from({ length: n }, (_, i) => i);
    const [rows, columns] = apart ? [inGroups(queryGroups), inGroups(keyGroups)] : [usual, usual];
    made[index].rows = rows;
    made[index].columns = columns;
    const context = sized(canvas, side, side);
    context.fillStyle = view.colour("--av-panel");
    context.fillRect(0, 0, side, side);
    const colours = lookup(false, false);
    const [r, g, b] = parse(view.colour("--wc-missed"));
    const pixels = new Uint32Array(n * n);
    const cell = side / n;
    rows.forEach((i, y) => {
      columns.forEach((j, x) => {
        const at = i * n + j;
        if (!allowed[at]) return;
        if (chosen[at]) pixels[y * n + x] = colours[level(weights[at], 1, false)];
        else if (most[at]) pixels[y * n + x] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
      });
    });
    rows.forEach((i, y) => {
      let from = -1;
      for (let x = 0; x <= n; x += 1) {
        const masked = x < n && !allowed[i * n + columns[x]];
        if (masked && from < 0) from = x;
        if (!masked && from >= 0) {
          hatched(context, from * cell, y * cell, (x - from) * cell, cell, view.colour("--av-hatch"));
          from = -1;
        }
      }
    });
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(pixels, n, n), 0, 0, side, side);
    if (apart) lines(context, borders(queryGroups, rows), borders(keyGroups, columns), cell, side);
    mark(context, rows.indexOf(state.query), cell, side, view.colour("--av-ink"), 2);
    if (study.pointed) {
      const [i, j] = study.pointed;
      context.strokeStyle = view.colour("--wc-point");
      context.lineWidth = 2;
      context.strokeRect(columns.indexOf(j) * cell, rows.indexOf(i) * cell, cell, cell);
    }
    facts.textContent = `${percent(recall)} found · ${grouped(pairs)} pairs`;
    figure.setAttribute("aria-label", `${percent(recall)} of the heaviest weights found, ${grouped(pairs)} pairs computed`);
  }

  function lines(context, across, down, cell, side) {
    context.strokeStyle = view.colour("--av-ink");
    context.globalAlpha = 0.55;
    context.lineWidth = 1;
    context.beginPath();
    for (const at of across) (context.moveTo(0, at * cell), context.lineTo(side, at * cell));
    for (const at of down) (context.moveTo(at * cell, 0), context.lineTo(at * cell, side));
    context.stroke();
    context.globalAlpha = 1;
  }

  function mark(context, row, cell, side, colour, width) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(1, row * cell, side - 2, cell);
  }

  return { node, draw: (side) => made.forEach((one, index) => paint(one, side, index)) };
}
