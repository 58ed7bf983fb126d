// How far the map of the chosen head can be trusted: one sentence, and the numbers behind it.
import { el } from "#parts/dom.js";

const FIGURES = {
  top_share: ["strongest keys among the nearest", "the share of each query's strongest keys that are among its nearest keys of its own sequence on this map; 100 % is best"],
  chance: ["the same by chance", "what that share would be if keys lay anywhere"],
  rank_correlation: ["distance against score", "Spearman's correlation of distances on the map with the scores q·k, for each query within its sequence; −1 is best"],
  full_correlation: ["the same before the map was drawn", "Spearman's correlation of distances in the full space with the scores; −1 is best"],
  trustworthiness: ["trustworthiness", "1 where points that are near on the map were near before it was drawn flat"],
  continuity: ["continuity", "1 where points that were near before are still near on the map"],
  other_sequences: ["nearest keys of other sequences", "the share of a query's nearest keys on the whole map that it never attended to, because they belong to another sequence"],
};
const SHARES = ["top_share", "chance", "other_sequences"];

export function faithPanel(study) {
  const sentence = el("span", { "data-testid": "faithfulness" });
  const table = el("dl", { class: "qk-figures" });
  const details = el("details", { class: "qk-details", "data-testid": "faithfulness-details" }, el("summary", { text: "numbers" }), table);
  const outside = el("p", { class: "qk-outside", "data-testid": "outside" });
  const node = el("div", { class: "qk-faith av-status", role: "note" }, el("div", {}, sentence, " ", details), outside);

  function draw() {
    const { said, faithfulness } = study.head;
    sentence.textContent = said;
    const layer = study.layerOf(study.chosen);
    const more = [layer.outside, study.space.points[study.map.points].sampled].filter(Boolean);
    outside.textContent = more.join(" ");
    outside.hidden = !more.length;
    table.replaceChildren(...Object.entries(FIGURES).flatMap(([name, [short, long]]) => {
      const value = faithfulness[name];
      const shown = value === null ? "—" : SHARES.includes(name) ? `${Math.round(100 * value)} %` : value.toFixed(2).replace("-", "−");
      return [el("dt", { text: short, title: long }), el("dd", { text: shown })];
    }));
  }

  return { node, draw };
}
