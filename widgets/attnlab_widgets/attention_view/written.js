// "Who wrote it": the score of the pinned pair as bars, by what wrote what is read at its key and at its query.
import { button, el } from "#parts/dom.js";
import { fewest, led, partsOf } from "./origins.js";

const ROWS = 10;

const signed = (value) => (Math.abs(value) < 0.005 ? "0.00" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`);

/** Whether what Python said last is of this query of the chosen head. */
export const isOf = ({ origins, step, layer, head }, query) => String(origins.place) === String([step, layer, head, query]);

/** What is said and drawn for the pair (query, key): {said, body}; `asks` where Python has to be asked for it. */
export function written(store, word, query, key, shown) {
  const { origins, layer, head } = store;
  const here = isOf(store, query);
  if (here && origins.said) return { said: [origins.said] };
  const found = here ? partsOf(origins, key) : null;
  if (!found) return { ...elsewhere(store, origins, here, shown), asks: true };
  const { rows, sum } = found;
  const way = sum.key < 0 ? "below" : "above";
  const said = [
    "The score of ", word("q", query), " and ", word("k", key), ` is ${Math.abs(sum.key).toFixed(2)} ${way} the mean of all keys that the query may attend to. `,
    ...led(rows, sum).flatMap((part) => (part.name ? [el("b", { text: part.name }), ` (${signed(part.value)})`] : [part])),
  ];
  if (store.allowed(layer, head)?.(query, key) === false) said.push(" The mask hides this key, so its score counts for nothing.");
  return { said, body: table(rows, sum, word, query, key) };
}

/** Python has computed another pair than the one that is pinned, or none yet. */
function elsewhere(store, origins, here, shown) {
  if (!origins.parts) return { said: ["Python computes these parts where a kernel runs. It is asked now."] };
  const [step, layer, head, query] = origins.place;
  const scoreOf = (key) => partsOf(origins, key).sum.key;
  const best = () => origins.keys.reduce((a, b) => (scoreOf(b) > scoreOf(a) ? b : a));
  const said = here
    ? ["Of this text the parts are kept for the keys with the largest scores, and this is none of them. Where Python runs, it is asked."]
    : [`Python computes these parts where it runs. This page holds those of query ${query} in ${store.called(layer, head)}. `];
  const show = button({ text: "Show those", testid: "origins-stored", onclick: () => shown({ step, layer, head, query, key: best() }) });
  return { said, body: show };
}

function table(rows, sum, word, query, key) {
  const shown = [...fewest(rows, ROWS), sum];
  const most = shown.reduce((top, row) => Math.max(top, Math.abs(row.key), Math.abs(row.query)), 1e-9);
  const bar = (value) =>
    el("td", {}, el("span", { class: "av-part" },
      el("span", { class: "av-part-track", "aria-hidden": "true" }, el("i", { class: value < 0 ? "av-against" : "av-for", style: `width: ${(50 * Math.abs(value)) / most}%` })),
      el("span", { class: "av-part-number", text: signed(value) })));
  const line = (row) => el("tr", { class: row === sum ? "av-part-sum" : "" }, el("th", { scope: "row", text: row.name }), bar(row.key), bar(row.query));
  return el("table", { class: "av-part-table", testid: "origins-table" },
    el("caption", { class: "av-quiet", text: "Both columns sum to the same score: one tells apart who wrote what is read at the key, the other at the query. Each part is what its layer wrote itself; a feed-forward layer may have made that of what a head gave it." }),
    el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "written by" }), el("th", { scope: "col" }, "read at the key ", word("k", key)), el("th", { scope: "col" }, "read at the query ", word("q", query)))),
    el("tbody", {}, ...shown.map(line)));
}
