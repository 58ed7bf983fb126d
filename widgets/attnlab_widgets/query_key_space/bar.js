// The controls above the map: which head, which map, colours, order, search.
import { choice, el, labelled, toggle } from "#parts/dom.js";
import { savers } from "#parts/picture.js";
import { COLOURS } from "#lib/colouring.js";

const LOOK = {
  panels: ".qk-map, .qk-side, .qk-faith",
  words: ".qk-side h3, .qk-side h4, .qk-figures dt, .qk-figures dd, .qk-side p, .qk-cell span, .qk-heads span, .qk-legend bdi, .qk-faith span, .qk-outside, .av-token-text, .av-token-weight, .av-columns-title span, .qk-shared th, .qk-shared bdi",
};

export function barPanel(study, view) {
  const back = el("button", { type: "button", class: "av-button", text: "All heads", "data-testid": "all-heads", onclick: () => study.set({ view: "all" }) });
  const layer = choice("Layer", "layer", [], (value) => go(Number(value), study.get("head")));
  const head = choice("Head", "head", [], (value) => go(study.get("layer"), Number(value)));
  const shown = choice("Map", "map", [], (value) => study.set({ shown: Number(value) }));
  const order = choice("Order", "order", [], (value) => study.set({ order: value }));
  const colour = choice("Colour", "colour", [], (value) => study.set({ colour: value }));
  const modulo = el("input", { type: "number", class: "av-number qk-modulo", min: 2, max: 512, "aria-label": "Modulo", "data-testid": "modulo" });
  modulo.addEventListener("change", () => study.set({ modulo: Math.min(512, Math.max(2, Math.round(Number(modulo.value)) || 5)) }));
  const search = el("input", { type: "search", class: "av-number qk-search", placeholder: "a token, or th*", "aria-label": "Search a token", "data-testid": "search" });
  search.addEventListener("input", () => view.searched(search.value));
  const count = el("output", { class: "av-value", "data-testid": "search-count" });
  const lasso = el("button", { type: "button", class: "av-button", text: "Draw around", "aria-pressed": "false", title: "Draw around points to see what they share (or hold Shift)", "data-testid": "lasso" });
  lasso.addEventListener("click", () => lasso.setAttribute("aria-pressed", String(!pressed())));
  const pressed = () => lasso.getAttribute("aria-pressed") === "true";
  const node = el("div", { class: "av-controls qk-bar", role: "group", "aria-label": "What is shown" },
    back, layer.node, head.node, shown.node, order.node, colour.node, modulo, labelled("Search", search, count));
  const labels = toggle("Labels", "labels", (value) => study.set({ labels: value }));
  const tools = el("span", { class: "qk-tools" }, labels.node, lasso, savers(view, "query_key_space", LOOK));

  /** The wanted head, or the first of the wanted layer that is mapped. */
  function go(wantedLayer, wantedHead) {
    const at = study.heads.findIndex(({ is }) => is[0] === wantedLayer && is[1] === wantedHead);
    study.choose(at >= 0 ? at : study.heads.findIndex(({ is }) => is[0] === wantedLayer));
  }

  function fill({ select }, options, value) {
    const key = JSON.stringify(options);
    if (select.dataset.options !== key) {
      select.dataset.options = key;
      select.replaceChildren(...options.map(([one, said]) => el("option", { value: one, text: said })));
    }
    select.value = String(value);
  }

  function draw() {
    const own = study.heads.filter(({ is }) => is[0] === study.get("layer"));
    const layers = [...new Set(study.heads.map(({ is }) => is[0]))];
    fill(layer, layers.map((at) => [at, String(at)]), study.get("layer"));
    fill(head, own.map(({ is }) => [is[1], String(is[1])]), study.get("head"));
    fill(shown, study.space.maps.map(({ name }, at) => [at, name]), study.shown);
    shown.node.hidden = study.space.film || study.space.maps.length < 2;
    const statistics = study.space.statistics.map((name) => [name, name.replaceAll("_", " ")]);
    const kinds = study.kinds.length ? [["kind", "kind of head"]] : [];
    fill(order, [["layer", "layer and head"], ...kinds, ...statistics], study.get("order"));
    const colours = Object.entries(COLOURS).filter(([name]) => name !== "class" || study.space.classes);
    fill(colour, colours, study.get("colour"));
    modulo.hidden = study.get("colour") !== "modulo";
    if (document.activeElement !== modulo) modulo.value = study.get("modulo");
    const one = study.get("view") === "one";
    back.hidden = layer.node.hidden = head.node.hidden = lasso.hidden = labels.node.hidden = !one;
    labels.box.checked = study.get("labels");
    order.node.hidden = one;
    if (document.activeElement !== search) search.value = study.get("search");
    const { query, key } = study.counted();
    count.textContent = study.get("search").trim() ? (query + key ? `${query} queries, ${key} keys in each head` : "nowhere") : "";
  }

  return { node, tools, draw, lasso: pressed };
}
