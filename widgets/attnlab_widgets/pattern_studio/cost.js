// What it costs, and its receptive field: numbers, and a small map after each layer.
import { blocksOf, keysOf, pairsOf, percent, receptiveFieldText, runs } from "./mask.js";
import { el, labelled, sized, slider, toggle } from "#parts/dom.js";

const MOST = 300; // pixels of the receptive field's side
const whole = (number) => number.toLocaleString("en");

export function costPanel(study, view) {
  const width = el("input", { type: "number", class: "av-number", min: 1, step: 1, "data-testid": "head-dim", onchange: () => {
    const wanted = Math.round(Number(width.value));
    study.set({ head_dim: wanted >= 1 && wanted <= 65536 ? wanted : study.get("head_dim") });
    view.changed();
  } });
  const list = el("div", { class: "ps-costs", role: "list", "data-testid": "costs" });
  const node = el("section", { class: "av-panel ps-cost-panel", "aria-label": "What it costs" },
    el("h3", { text: "What it costs" }), list);

  function draw() {
    const { n, pairs } = study;
    const d = study.get("head_dim");
    if (document.activeElement !== width) width.value = d;
    const share = pairs / n ** 2;
    const facts = [
      ["Pairs", `${whole(pairs)} of ${whole(n ** 2)}`, "pairs", share],
      ["Density", percent(share), "density"],
      ["FLOPs, 4·d·pairs", `${whole(4 * d * pairs)} of ${whole(4 * d * n ** 2)}`, "flops"],
      ["Saved", percent(1 - share), "saved"],
    ];
    const size = study.get("block");
    if (size) {
      const { counts, kinds } = blocksOf(study.mask, n, size);
      const touched = counts.full + counts.mixed;
      facts.push([`Blocks of ${size}`, `${counts.full} full, ${counts.mixed} mixed, ${counts.empty} empty`, "blocks"]);
      facts.push(["Blocks computed", `${touched} of ${kinds.length} (${percent(touched / kinds.length)})`, "touched"]);
    }
    facts.push(["Layers", receptiveFieldText(study.receptiveField, n), "layers"]);
    list.replaceChildren(...facts.map(([name, value, testid, bar]) =>
      el("div", { class: "ps-cost", role: "listitem" },
        el("span", { class: "ps-cost-name", text: name }),
        el("span", { class: "ps-cost-value", "data-testid": testid, text: value }),
        bar === undefined ? null : meter(bar))));
  }

  return { node, draw, more: [labelled("Head width d", width)] };
}

function meter(share) {
  const fill = el("span", { class: "ps-meter-fill" });
  fill.style.width = `${100 * share}%`;
  return el("span", { class: "ps-meter", "aria-hidden": "true" }, fill);
}

export function receptiveFieldPanel(study, view) {
  const residual = toggle("With residual", "residual", (value) => study.set({ residual: value }));
  const layer = slider("After layer", "layer", { min: 1, step: 1 }, (value) => study.set({ layer: value }));
  const canvas = el("canvas", { "aria-hidden": "true" });
  const picture = el("div", { role: "img", class: "ps-receptive-field", "data-testid": "receptive-field" }, canvas);
  const said = el("p", { class: "ps-field-said", "data-testid": "receptive-field-text", role: "status" });
  const node = el("section", { class: "av-panel ps-field-panel", "aria-label": "Receptive field" },
    el("h3", { text: "Receptive field" }), el("div", { class: "av-row" }, layer.node, residual.node), picture, said);

  function draw() {
    const { n } = study;
    const { frames } = study.receptiveField;
    const at = study.layer;
    const now = frames[at - 1];
    const before = at > 1 ? frames[at - 2] : new Uint8Array(n * n);
    layer.input.max = frames.length;
    layer.input.value = at;
    layer.input.disabled = frames.length === 1;
    layer.output.textContent = `${at} of ${frames.length}`;
    residual.box.checked = study.get("residual");
    paint(now, before);
    const fresh = now.reduce((sum, one, place) => sum + (one && !before[place] ? 1 : 0), 0);
    const known = keysOf(now, n, study.row);
    const text = `After ${at} ${at === 1 ? "layer" : "layers"} ${whole(pairsOf(now))} of ${whole(n * n)} pairs are connected (${percent(pairsOf(now) / n ** 2)}), ${whole(fresh)} of them new. Output ${study.row} knows ${known.length ? runs(known) : "nothing"}.`;
    if (said.textContent !== text) said.textContent = text;
    picture.setAttribute("aria-label", text);
  }

  function paint(now, before) {
    const { n } = study;
    const room = Math.max(120, Math.min(MOST, (picture.clientWidth || 210) - 2));
    const side = n <= room / 2 ? Math.floor(room / n) : room / n;
    const pen = sized(canvas, n * side + 2, n * side + 2);
    pen.fillStyle = view.colour("--av-panel");
    pen.fillRect(1, 1, n * side, n * side);
    const inset = side >= 3 ? side * 0.22 : 0;
    for (const late of [false, true]) {
      pen.fillStyle = view.colour(late ? "--av-accent" : "--av-faint");
      const gap = late ? 0 : inset;
      for (let i = 0; i < n; i += 1) {
        for (let j = 0; j < n; j += 1) {
          if (!now[i * n + j] || Boolean(before[i * n + j]) === late) continue;
          pen.fillRect(1 + j * side + gap, 1 + i * side + gap, side - 2 * gap, side - 2 * gap);
        }
      }
    }
    pen.strokeStyle = view.colour("--av-quiet");
    pen.strokeRect(0.5, 0.5, n * side + 1, n * side + 1);
    pen.strokeStyle = view.colour("--av-ink");
    pen.strokeRect(0.5, 0.5 + study.row * side, n * side + 1, side + 1);
  }

  return { node, draw };
}
