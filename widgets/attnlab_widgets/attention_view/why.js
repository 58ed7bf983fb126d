// Why does a query attend to these keys? Its weights followed step by step: products of query and key, their
// sum and scale, bias and mask, softmax, and the weighted values; with the record's own numbers.
import { bitmap, button, el, hatchKey, plain, sized } from "#parts/dom.js";
import { lookup, level, painted } from "#lib/colours.js";
import { agreement, followed, output, products } from "./steps.js";
import { isOf, written } from "./written.js";

const SHOWN = 9; // keys, the strongest ones
const STEPS = ["Multiply", "Sum and scale", "Bias and mask", "Softmax", "Weigh the values", "Who wrote it"];
const WROTE = 5; // the last step, which needs the model and not the vectors

const number = (value, digits = 3) => {
  if (value === -Infinity) return "−∞";
  if (Math.abs(value) < 5e-4) return "0";
  return value.toFixed(Math.max(0, Math.min(digits, digits - 1 - Math.floor(Math.log10(Math.abs(value)))))).replace("-", "−");
};

/** A small weight is not zero, which a hidden key has. */
const weighed = (weight) => (weight > 0 && weight < 5e-4 ? "< 0.001" : number(weight));

export function whyPanel(store, view) {
  const title = el("h3");
  const pills = STEPS.map((name, at) => button({ class: "av-button av-step", text: `${at + 1} ${name}`, testid: `step-${at + 1}`, onclick: () => go(at) }));
  const back = button({ text: "← Back", testid: "why-back", onclick: () => go(step - 1) });
  const next = button({ text: "Next →", testid: "why-next", onclick: () => go(step + 1) });
  const shut = button({ text: "Close", title: "Back to the maps (Escape)", testid: "why-close", onclick: () => close() });
  const said = el("p", { class: "av-why-said", "aria-live": "polite", testid: "why-said" });
  const body = el("div", { class: "av-why-body" });
  const verdict = el("p", { class: "av-quiet", testid: "why-verdict" });
  const node = el("section", { class: "av-why", hidden: true, tabindex: "-1", "aria-label": "Why does it attend to these keys?", testid: "why-panel" },
    el("div", { class: "av-row av-head-row" }, title, el("span", { class: "av-row av-zoom" }, back, next, shut)),
    el("div", { class: "av-row av-steps", role: "group", "aria-label": "Steps" }, ...pills),
    said, body, verdict);
  let [open, step, query, key, asked, sought] = [false, 0, 0, null, "", ""];
  let vectors = null; // of the chosen head, or {said}
  let opener = null;

  node.addEventListener("keydown", (event) => {
    if (!plain(event)) return;
    if (event.key === "Escape") close();
    else if (event.key === "ArrowRight") go(step + 1);
    else if (event.key === "ArrowLeft") go(step - 1);
  });

  function show(chosen) {
    if (!chosen) return;
    opener = document.activeElement;
    [open, step, query, key] = [true, 0, chosen.query, chosen.key];
    store.set({ query, key });
    node.hidden = false;
    view.changed();
    node.focus({ preventScroll: true });
  }

  function close() {
    open = false;
    node.hidden = true;
    view.changed();
    opener?.focus({ preventScroll: true });
  }

  /** The first and last step that can be shown. */
  const ends = () => [vectors && !vectors.said ? 0 : WROTE, tellsWho() ? WROTE : WROTE - 1];

  /** Whether there are parts to show, or Python can be asked for them. */
  function tellsWho() {
    const { origins } = store;
    if (!origins || origins.parts) return Boolean(origins);
    return !store.saved && (step === WROTE || !isOf(store, query));
  }

  function go(to) {
    const [first, last] = ends();
    step = Math.max(first, Math.min(last, to));
    draw();
    if (document.activeElement?.disabled) node.focus({ preventScroll: true }); // keys are still heard
  }

  /** What is chosen elsewhere is followed: another word that is pinned, another head. */
  function draw() {
    if (!open) return;
    const { layer, head } = store;
    query = Math.min(store.pinned("query") ?? query, store.shape.n - 1);
    key = store.pinned("key") ?? key;
    const place = [store.loads, store.step, store.which, layer, head].join();
    if (place !== asked) {
      [asked, vectors] = [place, null];
      store.vectors(layer, head).then((found) => {
        if (asked !== place) return;
        vectors = found;
        draw();
      });
    }
    title.replaceChildren(`Why does query ${query} `, word("q", query), ` attend to these keys? ${store.called(layer, head)}${store.recording.compared ? `, ${store.recording.names[store.which]}` : ""}`);
    pills.forEach((pill, at) => pill.setAttribute("aria-current", at === step ? "step" : "false"));
    const missing = !vectors || vectors.said;
    const [first, last] = ends();
    if (step > last) step = 0;
    if (missing && vectors && first <= last) step = WROTE; // all that can be shown
    [back.disabled, next.disabled] = [step <= first, step >= last];
    pills.forEach((pill, at) => (pill.hidden = at < first || at > last));
    for (const part of [back, next]) part.hidden = first >= last;
    if (missing && step !== WROTE) {
      said.textContent = vectors?.said ?? "Asking the kernel …";
      body.replaceChildren();
      verdict.textContent = "";
      return;
    }
    if (step === WROTE) wrote(layer, head, missing);
    else explain(layer, head);
    if (step === 1 && store.origins?.said && !tellsWho()) verdict.append(` ${store.origins.said}`);
  }

  /** The last step: from which earlier outputs the score comes. */
  function wrote(layer, head, missing) {
    if (key === null || key >= store.shape.m) key = strongestOf(layer, head);
    const found = written(store, word, query, key, (place) => {
      node.focus({ preventScroll: true }); // the button goes, keys are still heard
      store.set(place);
    });
    if (found.asks) seek([store.step, layer, head, query, key]);
    said.replaceChildren(...found.said);
    body.replaceChildren(...(found.body ? [found.body] : []));
    verdict.classList.remove("av-status");
    verdict.textContent = missing ? `The other steps are not shown: ${vectors?.said ?? "their vectors are on their way."}` : "";
  }

  /** Ask Python for the parts of a pair, once: it answers in the state of the view. */
  function seek(place) {
    const now = [store.loads, ...place].join();
    if (store.saved || now === sought) return;
    sought = now;
    store.model.send({ origins: place });
  }

  const strongestOf = (layer, head) => {
    const map = store.recorded(layer, head);
    return Array.from({ length: store.shape.m }, (_, j) => j).reduce((a, j) => ((map.value(query, j).w ?? 0) > (map.value(query, a).w ?? 0) ? j : a), 0);
  };

  const word = (side, at) => el("bdi", { class: "av-said", text: store.token(side, at).short.replace(/^[␣Ġ▁](?=.)/u, "") });

  function explain(layer, head) {
    const allowed = store.allowed(layer, head);
    const now = followed(vectors, query, allowed);
    const order = [...now.weights.keys()].sort((a, b) => now.weights[b] - now.weights[a]);
    const reachable = order.filter((j) => now.biased[j] > -Infinity);
    const masked = order.filter((j) => now.biased[j] === -Infinity);
    if (key === null || key >= store.shape.m) key = order[0];
    const rows = reachable.slice(0, SHOWN - Math.min(1, masked.length));
    if (masked.length) rows.push(masked.includes(key) ? key : masked[0]);
    if (!rows.includes(key)) rows[rows.length - (masked.length ? 2 : 1)] = key;
    said.replaceChildren(...sentence(now, reachable.length, masked.length));
    body.replaceChildren(table(now, rows), rest(now, rows, masked.length));
    const { most, agree } = agreement(now, store.recorded(layer, head), query);
    verdict.classList.toggle("av-status", !agree);
    verdict.textContent = agree
      ? `The recomputed weights are the recorded ones: they differ by ${most.toPrecision(1)} at most, which rounding explains.`
      : `The recomputed weights differ from the recorded ones by up to ${most.toPrecision(2)}. ${vectors.doubt ?? "Something that is not in the record changed the scores on their way."}`;
  }

  function sentence(now, count, hidden) {
    const { d, scale, bias } = vectors;
    const pair = [word("q", query), " and ", word("k", key)];
    const one = products(vectors, query, key);
    const best = one.reduce((a, value, at) => (Math.abs(value) > Math.abs(one[a]) ? at : a), 0);
    const from = number(vectors.queries[query * d + best]);
    const to = number(vectors.keys[key * d + best]);
    return [
      () => ["The query ", word("q", query), ` and the key `, word("k", key), ` are ${d} numbers each, multiplied one by one. Dimension ${best} counts most: ${from} × ${to} = ${number(one[best])}.`],
      () => [`The ${d} products of `, ...pair, ` sum to ${number(now.sums[key])}. `, scale === null ? "The scale is not known." : `Times ${number(scale, 4)}${Math.abs(scale - 1 / Math.sqrt(d)) < 1e-6 ? ` = 1/√${d}` : ""} that is the score ${number(now.scores[key])}.`],
      () => [bias ? `A bias is added: for this key ${number(bias[query * store.shape.m + key])}. ` : "Nothing is added to these scores. ", hidden ? `The mask hides ${hidden} of ${hidden + count} keys from this query: their score becomes −∞.` : "No key is masked."],
      () => (now.biased[key] === -Infinity
        ? [word("k", key), " is masked: e to the power −∞ is 0, and so is its weight."]
        : ["e", el("sup", { text: number(now.biased[key]) }), ` = ${number(Math.exp(now.biased[key]))} for `, word("k", key), `; divided by the sum over all ${count} keys, ${number(now.total * Math.exp(now.top))}, it is the weight ${weighed(now.weights[key])}.`]),
      () => ["The output for ", word("q", query), " is the sum of all values, each times its weight; ", word("k", key), ` puts in ${number(100 * now.weights[key], 2)} % of its value.`],
    ][step]();
  }

  function table(now, rows) {
    const { d, e, bias, queries, keys, values } = vectors;
    const recorded = store.recorded(store.layer, store.head);
    const wide = Math.max(120, Math.min(560, node.clientWidth - 510));
    const all = rows.map((j) => (step === 4 ? values.slice(j * e, (j + 1) * e).map((value) => value * now.weights[j]) : products(vectors, query, j)));
    const out = output(vectors, now.weights);
    const top = largest([...all, ...(step === 4 ? [out] : [])]);
    const columns = [
      ["", (j) => word("k", j)],
      [step === 4 ? "weight × value" : "query × key, by dimension", (j, at) => strip(all[at], top, wide, (one) => explainCell(j, one))],
      ["sum", (j) => number(now.sums[j]), 1],
      ["score", (j) => number(now.scores[j]), 1],
      [bias ? "with bias" : "after mask", (j) => (now.biased[j] === -Infinity ? hatchKey(view, "−∞") : number(now.biased[j])), 2],
      ["weight", (j) => meter(now.weights[j], now.weights[rows[0]]), 3],
      ["recorded", (j) => recordedOf(recorded.value(query, j)), 3],
    ].filter(([, , from = 0]) => step >= from || from === 0);
    const line = (name, numbers, last) => el("tr", {}, el("td", { text: name }), el("td", {}, strip(numbers, last, wide, (one) => `dimension ${one}: ${number(numbers[one])}`)), ...columns.slice(2).map(() => el("td")));
    const own = queries.slice(query * d, (query + 1) * d);
    const other = keys.slice(key * d, (key + 1) * d);
    const above = step === 0 ? [line("query", own, largest([own, other])), line("key", other, largest([own, other]))] : [];
    const below = step === 4 ? [line("output", out, top)] : [];
    return el("table", { class: "av-why-table", testid: "why-table" },
      el("thead", {}, el("tr", {}, ...columns.map(([name]) => el("th", { scope: "col", text: name })))),
      el("tbody", {}, ...above, ...rows.map((j, at) => el("tr", { class: j === key ? "av-why-key" : "", testid: `why-key-${j}`, title: `key ${j}: follow this one`, onclick: () => follow(j) }, ...columns.map(([, cell]) => el("td", {}, cell(j, at))))), ...below));
  }

  function follow(j) {
    key = j;
    store.set({ key });
    draw();
  }

  function explainCell(j, one) {
    const { d, e, queries, keys, values } = vectors;
    if (step === 4) return `dimension ${one} of the value of key ${j}: ${number(values[j * e + one])}`;
    const [a, b] = [queries[query * d + one], keys[j * d + one]];
    return `dimension ${one}: ${number(a)} × ${number(b)} = ${number(a * b)}`;
  }

  const largest = (lists) => lists.reduce((most, list) => list.reduce((a, b) => Math.max(a, Math.abs(b)), most), 1e-9);
  const recordedOf = ({ w, below }) => (below === undefined ? weighed(w) : `≤ ${number(below)}`);

  /** Numbers as a row of coloured cells; written out where they fit. */
  function strip(numbers, most, wide, saying) {
    const canvas = el("canvas", { class: "av-why-strip", role: "img", "aria-label": Array.from(numbers.slice(0, 16), (one) => number(one)).join(", ") });
    const context = sized(canvas, wide, 20);
    context.imageSmoothingEnabled = false;
    context.drawImage(bitmap(painted(numbers, most, true, view.dark), numbers.length, 1), 0, 0, wide, 20);
    const each = wide / numbers.length;
    if (each >= 34) {
      context.font = "11px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      numbers.forEach((one, at) => {
        const colour = lookup(true, view.dark)[level(one, most, true)];
        const light = ((colour & 255) + ((colour >> 8) & 255) * 2 + ((colour >> 16) & 255)) / 4;
        context.fillStyle = light > 130 ? "#101418" : "#ffffff";
        context.fillText(number(one, 2), (at + 0.5) * each, 10);
      });
    }
    canvas.addEventListener("pointermove", (event) => (canvas.title = saying(Math.max(0, Math.min(numbers.length - 1, Math.floor(event.offsetX / each))))));
    return canvas;
  }

  const meter = (w, most) => el("span", { class: "av-meter" }, el("i", { style: `width: ${(56 * w) / (most || 1)}px` }), weighed(w));

  function rest(now, rows, hidden) {
    const others = store.shape.m - rows.length;
    const left = 1 - rows.reduce((sum, j) => sum + now.weights[j], 0);
    const also = hidden > 1 ? `, ${hidden - 1} of them masked` : "";
    return el("p", { class: "av-quiet", text: others > 0 ? `Not shown: ${others} other keys${also}; they have ${number(Math.max(0, left))} of the weight together.` : "" });
  }

  return { node, open: show, close, opened: () => open, draw, hover() {} };
}
