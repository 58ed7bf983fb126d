// The reader's claim, what the formula, the count and the clock say to it, and the button that measures.
import { button, el } from "#parts/dom.js";
import { GROWTHS, nearest, slope } from "./costs.js";
import { grouped } from "#lib/wall.js";

const PATIENCE = 6000; // milliseconds after which nobody seems to answer

/** What the formula says to a claim, in a few words. */
export const judged = (claim, growth) => (claim === growth ? `✓ ${claim}` : `→ you said ${claim}, it is nearest to ${growth}`);

export function verdictPanel(store, view) {
  const question = el("h3", { testid: "question" });
  const claims = Object.keys(GROWTHS).map((name) => button({ text: name, testid: `claim-${name}`, onclick: () => store.set({ claims: { ...store.state.claims, [store.own.name]: name } }) }));
  const choices = el("div", { class: "cl-claims", role: "group", "aria-label": "How it grows" }, ...claims);
  const list = el("dl", { class: "cl-list", testid: "exponents" });
  const crossing = el("p", { testid: "crossover" });
  const said = el("p", { testid: "measured" });
  const measure = button({ text: "Measure", testid: "measure", onclick: ask });
  const stop = button({ text: "Stop", testid: "stop", onclick: () => store.model.send({ kind: "stop" }) });
  const bar = el("progress", { max: 1, value: 0, testid: "progress", "aria-label": "Lengths that are timed" });
  const status = el("p", { class: "av-quiet", role: "status", testid: "status" });
  const node = el("section", { class: "cl-verdict", "aria-label": "Claim and result" }, question, choices, list, crossing, said, el("div", { class: "av-row" }, measure, stop, bar), status);

  function ask() {
    store.asked = store.model.get("_progress");
    store.model.send({ kind: "measure" });
    draw();
    setTimeout(view.changed, PATIENCE + 50);
    store.askedAt = Date.now();
  }

  const entry = (name, value, more) => [el("dt", { text: name }), el("dd", {}, el("b", { text: value }), more ? ` ${more}` : "")];
  const power = (value) => `n^${value.toFixed(2)}`;

  function exponents() {
    const { claim, lengths, times } = store;
    const counted = store.countedExponent;
    const meant = slope(lengths, lengths.map(GROWTHS[claim]));
    return [
      ...entry("you say", claim, claim === "n log n" ? `(${power(meant)} here)` : ""),
      ...entry("its formula", power(store.exponent), `(nearest: ${nearest(store.exponent, lengths)}; in the long run ${store.own.order})`),
      ...(counted === null ? [] : entry("counted", power(counted), "")),
      ...(times?.slope === undefined ? [] : entry("measured", power(times.slope), `(${times.low.toFixed(2)} to ${times.high.toFixed(2)}; FLOPs with projections: ${power(times.layer)})`)),
    ];
  }

  function state() {
    const { progress, live, claim } = store;
    if (!live) return "A saved file counts by its formulas; measuring needs Python.";
    if (claim === null) return "Measuring waits for your claim.";
    if (progress.error) return progress.error;
    if (store.asked === store.model.get("_progress")) return Date.now() - store.askedAt > PATIENCE ? "Nobody answers: run the cell first, so that Python is there to measure." : "Asked …";
    if (progress.done < progress.of) return `Timing ${grouped(progress.n)} tokens, ${progress.done + 1} of ${progress.of} lengths …`;
    return "";
  }

  function draw() {
    const { claim, own, lengths, progress } = store;
    const [first, last] = [grouped(lengths[0]), grouped(lengths.at(-1))];
    question.textContent = claim === null ? `From ${first} to ${last} tokens, how does the cost of ${own.title} grow?` : `From ${first} to ${last} tokens ${judged(claim, nearest(store.exponent, lengths))}`;
    claims.forEach((one) => one.setAttribute("aria-pressed", String(one.textContent === claim)));
    list.hidden = crossing.hidden = claim === null;
    if (claim !== null) {
      list.replaceChildren(...exponents());
      crossing.textContent = store.crossoverSaid;
    }
    said.textContent = claim === null ? "" : (store.times?.crossing ?? "");
    const busy = progress.done < progress.of;
    measure.hidden = !store.live;
    measure.disabled = claim === null || !store.live || busy;
    stop.hidden = !busy;
    bar.hidden = !busy;
    bar.value = busy ? progress.done / progress.of : 0;
    const words = state();
    if (status.textContent !== words) status.textContent = words;
  }

  return { node, draw };
}
