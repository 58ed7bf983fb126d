// The tokens as running text: point at a word, and the words that it attends to, or that attend to it,
// light up by their weights. Below it one sentence says the same, and above it words are searched.
import { button, el, plain } from "#parts/dom.js";
import { activeOf, NONE } from "#lib/active.js";
import { moved } from "#lib/keys.js";
import { largestOf, strongest } from "#lib/maps.js";
import { gridOf } from "#lib/patches.js";
import { bare, convention, found } from "#lib/tokens.js";
import { signedWeight, weight } from "#lib/words.js";

const MOST = 600; // words that are on the page at once
const SAID = 3; // words that the sentence names

export function stripPanel(store, view, why) {
  const texts = { query: text("query"), key: text("key") };
  const words = el("div", { class: "av-strip", testid: "strip" }, texts.query.row, texts.key.row);
  const sentence = el("p", { class: "av-reading", "aria-live": "polite", testid: "reading" });
  const ways = [["to", "attends to", "Light up what the word attends to"], ["by", "attended by", "Light up what attends to the word"]].map(([way, said, title]) =>
    button({ class: "av-button av-way", text: said, title, "aria-pressed": "false", testid: `way-${way}`, onclick: () => turn(way) }));
  const direction = el("span", { class: "av-ways", role: "group", "aria-label": "Which weights light up" }, ...ways);
  const ask = button({ text: "Why?", title: "Follow these weights step by step", testid: "why", onclick: () => why(chosenQuery()) });
  const node = el("section", { class: "av-text", "aria-label": "The tokens as text" }, words, el("div", { class: "av-reading-row" }, sentence, el("span", { class: "av-reading-ends" }, direction, ask)));
  const search = el("input", { type: "search", class: "av-number av-search", placeholder: "Find a token", "aria-label": "Find a token or a position", title: "A token, th* or a position; Enter pins the next", testid: "search" });
  const matches = el("output", { class: "av-value av-matches", testid: "matches" });

  let way = "to";
  let written = "";
  let together = true; // queries and keys are the same text
  let last = null; // what was read last: it stays until something else is
  let hits = [];
  let at = -1;

  function text(side) {
    const box = el("div", { class: "av-words", role: "listbox", "aria-label": side === "query" ? "Queries as text" : "Keys as text", testid: `${side}-text` });
    const name = el("span", { class: "av-text-name", text: side === "query" ? "queries" : "keys" });
    const one = { side, box, name, row: el("div", { class: "av-text-row" }, name, box), items: new Map(), from: 0, at: 0, lit: new Set() };
    box.addEventListener("pointerover", (event) => point(one, event.target.closest?.("[data-at]")));
    box.addEventListener("pointerleave", () => view.hover(NONE));
    box.addEventListener("click", (event) => pin(one, event.target.closest?.("[data-at]")));
    box.addEventListener("keydown", (event) => key(one, event));
    return one;
  }

  // Places: a word of the text; where one text is both queries and keys, the queries may begin later.
  const startOf = (side) => store.shape[side === "query" ? "q" : "k"].start;
  const countOf = (side) => (side === "query" ? store.shape.n : store.shape.m);
  const firstOf = (side) => (together ? 0 : startOf(side));
  const sideOf = (one) => (together ? (way === "to" ? "query" : "key") : one.side);
  const textOf = (side) => (together ? texts.query : texts[side]);

  /** The place of a word on a side, or null where there is none. */
  function placeOn(side, word) {
    const place = word - startOf(side);
    return place >= 0 && place < countOf(side) ? place : null;
  }

  /** The other way round: the word that was read last is pinned on its other side. */
  function turn(to) {
    way = to;
    const side = way === "to" ? "query" : "key";
    const place = last ? placeOn(side, last[1] + startOf(last[0])) : null;
    last = null;
    store.set({ ...NONE, [side]: place });
    view.changed();
  }

  function draw() {
    const { n, m, q, k } = store.shape;
    together = q.set === k.set;
    const name = [n, m, q.set, q.start, k.set, k.start, store.loads].join();
    if (name !== written) {
      written = name;
      last = null;
      texts.key.row.hidden = together || gridOf(store.recording, store.shape, "k") !== null;
      texts.query.name.hidden = together;
      for (const one of Object.values(texts)) one.from = -1;
      search.value = "";
      matches.textContent = "";
      hits = [];
    }
    direction.hidden = !together;
    ways.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.testid === `way-${way}`)));
    hover();
  }

  /** The words around a place; all of them where they are not too many. */
  function fill(one, around) {
    const set = store.shape[one.side === "query" ? "q" : "k"].set;
    const all = store.recording.tokens[set];
    const first = together ? 0 : startOf(one.side);
    const count = together ? all.length : countOf(one.side);
    const near = one.from >= 0 && (count <= MOST || (around >= one.from && around < one.from + MOST));
    if (near) return;
    one.from = count <= MOST ? first : Math.max(first, Math.min(around - (MOST >> 1), first + count - MOST));
    const to = Math.min(first + count, one.from + MOST);
    one.items.clear();
    one.lit.clear();
    const marks = convention(all);
    const gap = (chars) => el("span", { class: "av-gap", text: chars });
    const made = [];
    if (one.from > first) made.push(gap(`… ${one.from - first} before`));
    for (let at = one.from; at < to; at += 1) {
      const [short, full = short] = all[at];
      const piece = (marks === "piece" && /^##./.test(full)) || (marks === "start" && at > one.from && !/^[\s␣Ġ▁]/u.test(full));
      const shown = piece && marks === "piece" ? short.replace(/^##/, "") : marks === "start" ? short.replace(/^[␣Ġ▁](?=.)/u, "") : short;
      const word = el("bdi", { class: piece ? "av-word av-piece" : "av-word", role: "option", tabindex: "-1", "data-at": at, testid: `${together ? "word" : `${one.side}-word`}-${at - first}`, text: shown });
      one.items.set(at, word);
      made.push(word);
    }
    if (to < first + count) made.push(gap(`${first + count - to} more …`));
    one.box.replaceChildren(...made);
  }

  function hover() {
    const now = activeOf(store) ?? last;
    if (now && now[1] >= countOf(now[0])) return;
    last = now;
    for (const one of Object.values(texts)) if (!one.row.hidden) fill(one, wordOf(one, now));
    light(now);
    read(now);
    ask.disabled = chosenQuery() === null;
  }

  const wordOf = (one, now) => (now && (together || now[0] === one.side) ? now[1] + startOf(now[0]) : one.from + 1);

  function light(now) {
    for (const one of Object.values(texts)) {
      for (const at of one.lit) {
        const word = one.items.get(at);
        if (!word) continue;
        word.style.removeProperty("--av-lit");
        word.style.removeProperty("--av-glow");
        word.removeAttribute("title");
        word.classList.remove("av-own-word", "av-lit", "av-masked");
        word.setAttribute("aria-selected", "false");
      }
      one.lit.clear();
      one.items.forEach((word, at) => (word.tabIndex = at === Math.max(one.from, Math.min(one.at, one.from + one.items.size - 1)) ? 0 : -1));
    }
    if (!now) return;
    const [side, place] = now;
    const other = side === "query" ? "key" : "query";
    const own = textOf(side);
    mark(own, place + startOf(side), (word) => {
      word.classList.add("av-own-word");
      word.setAttribute("aria-selected", String(store.pinned(side) === place));
      if (!own.box.contains(document.activeElement)) own.at = place + startOf(side);
      reveal(own.box, word);
    });
    const beside = textOf(other);
    const [layer, head] = store.lineHeads[0];
    const cells = cellsOf(now);
    const largest = largestOf(cells.map(({ w }) => w)) || 1;
    const allowed = store.allowed(layer, head);
    for (let one = 0; allowed && one < countOf(other); one += 1) {
      const may = side === "query" ? allowed(place, one) : allowed(one, place);
      if (!may) mark(beside, one + startOf(other), (word) => word.classList.add("av-masked"));
    }
    for (const { w, i, j } of cells) {
      const share = Math.sqrt(Math.abs(w) / largest);
      if (share < 0.12) continue;
      mark(beside, (side === "query" ? j : i) + startOf(other), (word) => {
        word.classList.add("av-lit");
        word.style.setProperty("--av-lit", view.series(store.signed ? Number(w > 0) : 0));
        word.style.setProperty("--av-glow", `${Math.round(62 * share)}%`);
        word.title = said(w);
      });
    }
  }

  function mark(one, at, how) {
    const word = one.items.get(at);
    if (!word) return;
    one.lit.add(at);
    how(word);
  }

  /** Scrolls the text alone. */
  function reveal(box, word) {
    const [from, high] = [word.offsetTop - box.offsetTop, word.offsetHeight];
    if (from < box.scrollTop || from + high > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, from - box.clientHeight / 2 + high / 2);
  }

  function cellsOf([side, place]) {
    const map = store.map(...store.lineHeads[0]);
    return side === "query" ? map.row(place) : map.column(place);
  }

  const said = (w) => (store.signed ? signedWeight(w, 0.01) : w > 0 && w < 0.005 ? "<0.01" : weight(w, 0.01));
  const plainWord = (side, place) => {
    const { short } = store.token(side === "query" ? "q" : "k", place);
    return el("bdi", { class: "av-said", text: short.replace(/^[␣Ġ▁](?=.)/u, "") });
  };

  /** "layer 2, head 1: *iterate* attends to *used* 0.41, *statement* 0.22". */
  function read(now) {
    const [layer, head] = store.lineHeads[0];
    const name = el("span", { class: "av-quiet", text: `${store.layers[layer].title ?? `layer ${layer}`}, head ${head}: ` });
    if (!now) {
      sentence.replaceChildren(name, way === "to" || !together ? "point at a word to see what it attends to" : "point at a word to see what attends to it");
      return;
    }
    const [side, place] = now;
    const other = side === "query" ? "key" : "query";
    const top = strongest(cellsOf(now), { threshold: 0.02, topK: SAID, largest: largestOf(cellsOf(now).map(({ w }) => w)) });
    const differently = store.get("shown") === "difference" ? " differently" : "";
    const verb = side === "query" ? ` attends${differently} to ` : ` is attended to${differently} by `;
    const parts = top.flatMap((cell, number) => [number ? ", " : "", plainWord(other, cell.j ?? cell.i), ` ${said(cell.w)}`]);
    sentence.replaceChildren(name, plainWord(side, place), verb, ...(parts.length ? parts : ["nothing"]));
  }

  /** The query whose weights can be followed: the active one, or the one that attends most to it. */
  function chosenQuery() {
    if (!last) return null;
    if (last[0] === "query") return { query: last[1], key: store.pinned("key") };
    const best = strongest(cellsOf(last), { threshold: 0, topK: 1, largest: 1 })[0];
    return best ? { query: best.i, key: last[1] } : null;
  }

  function point(one, word) {
    if (!word) return;
    one.at = Number(word.dataset.at);
    const side = sideOf(one);
    const place = placeOn(side, one.at);
    view.hover({ ...NONE, [side]: place });
  }

  function pin(one, word) {
    if (!word) return;
    const side = sideOf(one);
    const place = placeOn(side, Number(word.dataset.at));
    if (place === null) return;
    const again = store.pinned(side) === place;
    store.set({ ...NONE, [side]: again ? null : place });
  }

  function key(one, event) {
    if (!plain(event)) return;
    if (event.key === "Escape") {
      store.set(NONE);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pin(one, event.target.closest("[data-at]"));
    } else {
      const [first, count] = [firstOf(one.side), together ? store.recording.tokens[store.shape.q.set].length : countOf(one.side)];
      const next = moved(one.at - first, count, { ArrowLeft: "ArrowUp", ArrowRight: "ArrowDown" }[event.key] ?? event.key);
      if (next === null) return;
      event.preventDefault();
      one.at = next + first;
      fill(one, one.at);
      const side = sideOf(one);
      view.hover({ ...NONE, [side]: placeOn(side, one.at) });
      one.items.get(one.at)?.focus({ preventScroll: true });
    }
  }

  // The search

  search.addEventListener("input", () => {
    const side = together && way === "by" ? "key" : "query";
    const { set, start } = store.shape[side === "query" ? "q" : "k"];
    const wanted = search.value.trim();
    const all = store.recording.tokens[set].slice(start, start + countOf(side));
    const meant = found(all, wanted) ?? [];
    const begun = wanted ? all.map(([short, full = short]) => bare(full).startsWith(wanted.toLowerCase())) : [];
    const exact = meant.some(Boolean) ? meant : begun;
    const position = /^\d+$/.test(wanted) && Number(wanted) < all.length ? [Number(wanted)] : [];
    hits = [...new Set([...position, ...exact.flatMap((hit, place) => (hit ? [place] : []))])].map((place) => [side, place]);
    at = -1;
    counted();
    if (hits.length) view.hover({ ...NONE, [side]: hits[0][1] });
    else view.hover(NONE);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && hits.length) {
      at = (at + 1) % hits.length;
      const [side, place] = hits[at];
      counted();
      view.hover(NONE);
      store.set({ ...NONE, [side]: place });
    } else if (event.key === "Escape") {
      search.value = "";
      search.dispatchEvent(new Event("input"));
    }
  });
  search.addEventListener("blur", () => view.hover(NONE));

  function counted() {
    const none = search.value.trim() && !hits.length;
    matches.textContent = none ? "not found" : hits.length > 1 ? `${Math.max(1, at + 1)} of ${hits.length}` : "";
  }

  /** "to" or "by", where queries and keys are one text; of two texts each side has a way of its own. */
  const chosenWay = () => (together ? way : "to");

  return { node, way: chosenWay, search: el("span", { class: "av-field" }, search, matches), draw, hover };
}
