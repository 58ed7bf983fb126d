// The same numbers as tables of text. They are filled when they are opened.
import { FAR, LOST, columnOf, countOf, holdsOf, percent, sharesOf, short, stateAt, weightOf, zoneOf } from "#lib/film.js";
import { exactly } from "#lib/words.js";
import { el } from "#parts/dom.js";
import { headed } from "#parts/table.js";

export function tablesPanel(study, view) {
  const body = el("div", { class: "av-tables" });
  const node = el("details", { class: "av-as-tables", testid: "as-tables" }, el("summary", { text: "As tables" }), body);
  node.addEventListener("toggle", () => view.changed());

  function draw() {
    if (!node.open) return;
    body.replaceChildren(...(study.attends ? [keys(), segments()] : [channels()]));
  }

  function keys() {
    const { layer, tokens, state: { query, head } } = study;
    const names = ["", "segment", layer.near, layer.far, "lost"];
    const rows = [];
    for (let j = 0; j <= query; j += 1) {
      const zone = zoneOf(layer, query, j);
      const column = columnOf(layer, query, j);
      const own = column === j && zone !== LOST;
      const said = zone === LOST ? "–" : own ? exactly(weightOf(layer, head, query, j)) : `with token ${column}`;
      rows.push([j, tokens[j], names[zone], said]);
    }
    return headed(`Token ${query}: every token that it could have attended to`, ["token", "text", "where it is", "weight"], rows, "keys-table");
  }

  function segments() {
    const { layer, n, state: { head } } = study;
    const rows = layer.starts.map((start, segment) => {
      const last = Math.min(n, start + layer.segment) - 1;
      const count = last - start + 1;
      const mean = [0, 1, 2].map((zone) => Array.from({ length: count }, (_, at) => sharesOf(layer, head, start + at)[zone]).reduce((a, b) => a + b, 0) / count);
      return [segment + 1, `${start} to ${last}`, percent(mean[0]), percent(mean[1]), ...(layer.far ? [percent(mean[2])] : []), countOf(layer, last, FAR) / layer.covers, countOf(layer, last, LOST)];
    });
    const columns = ["segment", "tokens", "to itself", `to the ${layer.near}`, ...(layer.far ? [`to the ${layer.far}`] : []), "far columns", "tokens lost"];
    return headed("Segment by segment, on the mean of its tokens", columns, rows, "segments-table");
  }

  function channels() {
    const { layer, channels: order, state: { query, vector } } = study;
    const holds = holdsOf(layer, vector);
    const rows = order.map((channel) => [channel, stateAt(layer, vector, query, channel).toPrecision(3), short(holds[channel])]);
    return headed(`The state after token ${query}`, ["channel", "value", layer.half_lives ? "half-life in tokens" : "change of state, in standard deviations"], rows, "channels-table");
  }

  return { node, draw };
}
