// The survey's table: every mechanism with its claimed, counted and measured cost; rows are checked where they stand.
import barStyle from "#parts/bar.css";
import base from "#parts/base.css";
import style from "./survey.css";
import { arranged, arrangedForms, arrangedParts, formCells, power, times, within } from "./rows.js";
import { bar } from "#parts/bar.js";
import { button, choice, el, labelled } from "#parts/dom.js";
import { live, viewOf } from "#parts/lifecycle.js";
import { mountPage } from "#parts/page.js";

const TRAITS = ["order", "down", "family", "search", "shelf", "_parts", "_rows", "_busy", "_machine", "_compiled_on", "_forms", "_device", "_timed_on", "_live"];
const COLUMNS = [
  ["name", "mechanism", "Its page is linked"],
  ["year", "year", "Of the paper"],
  ["family", "family", "As in the survey's taxonomy"],
  ["claimed", "claims", "The order of growth that the card claims for its fastest form, in n alone; the column beside it is the exponent of that formula at n = 1,024 to 8,192"],
  [null, "formula", "The exponent of the card's formula at n = 1,024 to 8,192"],
  ["counted", "counted", "The exponent of the FLOPs of the mixing, counted operation by operation at n = 1,024 to 8,192"],
  ["measured", "measured", "The exponent of the time of the whole layer at n = 512 to 4,096, with its interval at 95 %"],
  ["compiled", "compiled", "How many times as fast torch.compile makes the forward pass of its fastest form on a CPU; below 1 compiling makes it slower, and ≈ 1 has quartiles on both sides of 1. Choose a figure to read what it is for training and for the other forms"],
  [null, "kernels", "How the number of operations that the forward pass of its fastest form calls grows with n; on a GPU each of them launches a kernel"],
  ["decodes", "decodes", "Whether its causal layer gives one token after another, tried out"],
  [null, "lesson", "Where it is taught"],
  [null, "check", "Count it again and try whether it decodes; time it"],
];
const FORM_COLUMNS = [
  ["name", "form", "A form of a mechanism, or a kernel of another package"],
  [null, "on the CPU", "The exponent of the time of its forward pass on the CPU, as in the table of mechanisms: of the fastest form alone"],
  ["measured", "on the device", "The exponent of the time of its forward pass there, with its interval at 95 %"],
  ["forward", "forward", "The time of the forward pass at the longest length that was timed"],
  ["both", "both passes", "The time of the forward and backward pass at the longest length that was timed"],
  [null, "beside fused full attention", "From which length on both passes are faster than those of PyTorch's fused full attention, in the same rounds"],
  [null, "kernels started", "The operations that both passes start, views apart, at 512 and 2,048 tokens"],
  ["share", "of the peak", "FLOPs per second of the forward pass, over those of a large product in the same precision"],
];
const SHELVES = [["mechanisms", "mechanisms"], ["feed", "feed-forward layers"], ["join", "joins"], ["depth", "depth"], ["objective", "objectives"], ["compress", "compression"]];
const HELP = `The table of "Efficient Transformers: A Survey" says what papers state. Here a row can be checked: its FLOPs are counted again, and its causal layer must give the first tokens the same outputs whatever follows them.

Counted are the FLOPs of the mixing alone, at width 256 with 4 heads. Timed is the whole layer, whose projections cost the same for every token: they hold the measured exponent near 1 as long as the mixing is the smaller part.

Compiled: the processor's time without torch.compile over that with it, so 2.00 × is twice as fast: the median of nine rounds. Choose a figure, and its quartiles are said; where they lie on both sides of 1 the table has ≈ 1 ×. A form that is written as many steps in a row is written out by the compiler, which may take longer than anybody waits.

Kernels: operations called one after the other. Where their number grows with n a GPU waits for each of them, however few the FLOPs are.

Click a heading to sort, again to turn the order round.`;

function render({ model, el: host }) {
  const view = viewOf("attnlab-survey", "The survey's table", "survey");
  const { root } = view;
  const get = (name) => model.get(name);
  const set = (changed) => {
    for (const [name, value] of Object.entries(changed)) model.set(name, value);
    model.save_changes();
  };
  const sorting = (order, text, testid) => button({ class: "sv-sort", text, testid, onclick: () => set(get("order") === order ? { down: !get("down") } : { order, down: false }) });
  const family = choice("Family", "family", [], (value) => set({ family: value }));
  const timed = get("_forms").length ? [["gpu", `forms on ${get("_device")}`]] : [];
  const shelf = choice("Show", "shelf", [...SHELVES, ...timed], (value) => set({ shelf: value }));
  const search = el("input", { type: "search", class: "sv-search", testid: "search", oninput: () => set({ search: search.value }) });
  const count = el("span", { class: "av-quiet", testid: "count", role: "status" });
  const { node } = bar({ frequent: [shelf.node, family.node, labelled("Find", search), count], help: HELP, label: "Which mechanisms" });
  const heads = COLUMNS.map(([order, text, title]) => {
    const sort = order && button({ class: "sv-sort", text, title, testid: `sort-${order}`, onclick: () => set(get("order") === order ? { down: !get("down") } : { order, down: false }) });
    return el("th", { scope: "col", title }, sort ?? text);
  });
  const body = el("tbody", { testid: "rows" });
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body);
  const partHead = el("tr");
  const partBody = el("tbody", { testid: "parts" });
  const parts = el("table", { hidden: true }, el("thead", {}, partHead), partBody);
  const formHeads = FORM_COLUMNS.map(([order, text, title]) => el("th", { scope: "col", title }, order ? sorting(order, text, `form-${order}`) : text));
  const formBody = el("tbody", { testid: "forms" });
  const forms = el("table", { hidden: true }, el("thead", {}, el("tr", {}, ...formHeads)), formBody);
  const frame = el("div", { class: "sv-frame", tabindex: "0", role: "region", "aria-label": "The table" }, table, parts, forms);
  const said = el("p", { class: "sv-said", testid: "said", "aria-live": "polite" });
  const machine = el("p", { class: "av-quiet av-hint", testid: "machine" });
  root.append(el("style", { text: base + barStyle + style }), node, frame, said, machine);
  host.replaceChildren(root);
  let [last, told, shown] = [null, "", "mechanisms"];

  function ask(kind, name) {
    [last, told] = [name, ""];
    model.send({ kind, name });
    said.textContent = "Asked. In a notebook that was opened and not run, run the cell first.";
  }

  function tell(row) {
    told = `${row.title}, compiled. ${row.compiled_said}`;
    said.textContent = told;
  }

  const link = (pair, text) => (pair ? el("a", { href: pair[0], target: "_blank", rel: "noopener", text }) : el("span", { text }));

  function line(row) {
    const busy = get("_busy").includes(row.name);
    const off = { disabled: !get("_live") || busy };
    const act = (kind, text, title) => button({ text, title, "aria-label": `${text} ${row.title}`, testid: `${kind}-${row.name}`, ...off, onclick: () => ask(kind, row.name) });
    const apart = row.counted !== null && Math.abs(row.counted - row.formula) > 0.1;
    return el(
      "tr",
      { "data-name": row.name, class: row.checked ? "sv-checked" : "" },
      el("th", { scope: "row" }, link(row.page, row.title)),
      el("td", { text: String(row.year) }),
      el("td", { text: row.family }),
      el("td", { text: row.claimed, title: row.order }),
      el("td", { text: power(row.formula) }),
      el("td", { text: row.counted === null ? "…" : power(row.counted), class: apart ? "sv-apart" : "", title: apart ? "More than 0.1 from the formula's: at these lengths blocks, windows or projections of its own weigh in" : "" }),
      el("td", { class: "sv-wraps", text: within(row.measured, row.interval) }),
      el("td", { class: "sv-wraps" }, button({ class: row.compiled === null ? "sv-tell av-quiet" : "sv-tell", text: times(row.compiled, row.compiled_quartiles), title: row.compiled_said, "aria-label": `${row.title}, compiled: ${times(row.compiled, row.compiled_quartiles)}`, testid: `compiled-${row.name}`, onclick: () => tell(row) })),
      el("td", { text: row.launches ?? "–", title: row.launched }),
      el("td", { text: row.decodes === null ? "…" : row.decodes ? "yes" : "no", title: row.because }),
      el("td", {}, link(row.lesson, row.lesson?.[1].split(" ")[1] ?? "–")),
      el("td", { class: "sv-acts" }, busy ? el("progress", { "aria-label": `${row.title} is being checked` }) : get("_live") ? el("span", {}, act("check", "Check", "Count it again, try whether it decodes"), act("time", "Time", "Check it and time it")) : null),
    );
  }

  function drawParts(state) {
    const rows = arrangedParts([...state._parts], state);
    const labels = rows.length ? rows[0].claims.map(([label]) => label) : [];
    const names = [sorting("name", "page", "part-name"), sorting("year", "year", "part-year"), ...labels, "forms", "lesson"];
    partHead.replaceChildren(...names.map((name) => el("th", { scope: "col" }, name)));
    partBody.replaceChildren(...rows.map((row) => el(
      "tr",
      { "data-name": row.name },
      el("th", { scope: "row" }, link(row.page, row.title)),
      el("td", { text: String(row.year) }),
      ...row.claims.map(([, text]) => el("td", { class: "sv-claim", text })),
      el("td", { text: row.forms }),
      el("td", {}, link(row.lesson, row.lesson?.[1].split(" ")[1] ?? "–")),
    )));
    count.textContent = `${rows.length} page${rows.length === 1 ? "" : "s"}`;
    said.textContent = state._parts.length ? "What each card claims; every claim is a test." : "These rows are on their way. In a notebook that was opened and not run, run the cell first.";
    machine.textContent = "";
  }

  function drawFamilies(state) {
    const families = [...new Set(state._rows.map((row) => row.family))];
    if (family.select.length !== families.length + 1) {
      family.select.replaceChildren(...["", ...families].map((name) => el("option", { value: name, text: name || "all" })));
    }
    family.select.value = state.family;
  }

  function why(row, text, because) {
    const tells = () => {
      said.textContent = `${row.name}: ${because}.`;
    };
    return button({ class: "sv-tell av-quiet", text, title: because, "aria-label": `${row.name}, ${text}: why`, onclick: tells });
  }

  function formCell(row, text, at) {
    if (at === 1 && row.unfitted) return why(row, "not fitted", row.unfitted);
    return row.because && ((at === 2 && row.forward === null) || (at === 3 && row.both === null)) ? why(row, "not timed", row.because) : text;
  }

  function drawForms(state) {
    const rows = arrangedForms([...state._forms], state);
    FORM_COLUMNS.forEach(([order], at) => {
      if (order === state.order) formHeads[at].setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else formHeads[at].removeAttribute("aria-sort");
    });
    formBody.replaceChildren(...rows.map((row) => {
      const [name, ...cells] = formCells(row);
      return el("tr", { "data-name": name }, el("th", { scope: "row", title: row.title, text: name }), ...cells.map((text, at) => el("td", { class: "sv-wraps" }, formCell(row, text, at))));
    }));
    count.textContent = `${rows.length} of ${state._forms.length} forms`;
    machine.textContent = `${state._timed_on}. Exponents of n, forward; on the CPU: ${state._machine}.`;
  }

  function draw() {
    const state = Object.fromEntries(TRAITS.map((name) => [name, get(name)]));
    const onGpu = state.shelf === "gpu";
    const others = state.shelf !== "mechanisms" && !onGpu;
    shelf.select.value = state.shelf;
    if (shown !== state.shelf) said.textContent = onGpu ? "Each row is a form in the precision below the table. Choose “not timed” or “not fitted” to read why." : "";
    shown = state.shelf;
    forms.hidden = !onGpu;
    parts.hidden = !others;
    table.hidden = others || onGpu;
    family.node.hidden = others;
    if (search.value !== state.search) search.value = state.search;
    drawFamilies(state);
    if (onGpu) {
      drawForms(state);
      return;
    }
    if (others) {
      drawParts(state);
      return;
    }
    const rows = arranged([...state._rows], state);
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.testid : null;
    body.replaceChildren(...rows.map(line));
    if (focused && document.activeElement === document.body) root.querySelector(`[data-testid="${focused}"]`)?.focus({ preventScroll: true });
    COLUMNS.forEach(([order], at) => {
      if (order === state.order) heads[at].setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else heads[at].removeAttribute("aria-sort");
    });
    count.textContent = `${rows.length} of ${state._rows.length} mechanisms`;
    const found = state._rows.find(({ name }) => name === last);
    if (told) said.textContent = told;
    else if (found?.checked && !state._busy.includes(last)) said.textContent = `${found.title}. ${found.checked}`;
    else if (state._busy.length) said.textContent = `Checking ${state._busy.join(", ")} …`;
    else if (!last) said.textContent = state._live ? "Press Check to count a row again, or Time to time it on this machine." : "A saved file sorts and filters; checking needs Python.";
    const exponents = state._machine && `Times stored with attnlab: ${state._machine}; in brackets the interval of the slope at 95 %.`;
    const gains = state._compiled_on && `Compiled: ${state._compiled_on}, the median of nine rounds.`;
    machine.textContent = [exponents, gains].filter(Boolean).join(" ");
  }

  return live({ model, view, traits: TRAITS, draw, sizes: ["wide", { wide: 860, narrow: 0 }] });
}

export default { render, page: (document) => mountPage({ render }, document) };
