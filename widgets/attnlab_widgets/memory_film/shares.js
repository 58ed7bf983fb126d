// What every token gives to its segment and to the memories, one above the other, over the whole text.
import { FAR, NEAR, SEGMENT, percent, sharesOf } from "#lib/film.js";
import { el, sized } from "#parts/dom.js";
import { ZONES } from "./columns.js";

const LEFT = 46;

export function sharesPanel(study, view) {
  const canvas = el("canvas", { class: "mf-shares", role: "img", "data-testid": "shares" });
  const legend = el("p", { class: "mf-legend av-quiet" });
  const node = el("section", { class: "av-panel mf-all" }, el("h3", { text: "Where the weight goes, token by token" }), canvas, legend);
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return Math.min(study.n - 1, Math.max(0, Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * study.n)));
  };
  canvas.addEventListener("click", (event) => study.set({ query: at(event) }));

  function draw(wide, high) {
    const { layer, n, state: { query, head } } = study;
    const context = sized(canvas, wide, high);
    const cell = (wide - LEFT) / n;
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    for (let i = 0; i < n; i += 1) {
      let top = high;
      sharesOf(layer, head, i).forEach((share, zone) => {
        context.fillStyle = view.colour(ZONES[[SEGMENT, NEAR, FAR][zone]]);
        context.fillRect(LEFT + i * cell, top - high * share, cell + 0.4, high * share);
        top -= high * share;
      });
    }
    context.fillStyle = view.colour("--av-paper");
    for (const start of layer.starts.slice(1)) context.fillRect(LEFT + start * cell - 0.5, 0, 1, high);
    context.fillStyle = view.colour("--av-quiet");
    context.textAlign = "right";
    context.fillText("100 %", LEFT - 5, 10);
    context.fillText("0", LEFT - 5, high);
    context.strokeStyle = view.colour("--av-ink");
    context.lineWidth = 2;
    context.strokeRect(LEFT + query * cell, 1, Math.max(2, cell), high - 2);
    canvas.setAttribute("aria-label", `Shares of the weight over ${n} tokens; the tables have the numbers. Click to go to a token.`);
    const shares = sharesOf(layer, head, query);
    const names = ["its segment", layer.near, ...(layer.far ? [layer.far] : [])];
    legend.replaceChildren(...names.map((name, zone) => el("span", {}, el("i", { style: `background: var(${ZONES[[SEGMENT, NEAR, FAR][zone]]})` }), ` ${name} ${percent(shares[zone])}`)));
  }

  return { node, draw };
}
