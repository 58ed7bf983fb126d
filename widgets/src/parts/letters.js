// A text that a small model reads: the field to type it, and a cell for each letter, under it what
// the model expected there. `study` has the network, `tokens`, `at` and `n`, `set`, `guesses()`.
import { moved } from "../lib/keys.js";
import { read } from "../lib/reading.js";
import { el, labelled, plain } from "./dom.js";

/** The field; a text that cannot be read stays in it as a draft, with its refusal. */
export function typedPanel(study) {
  const input = el("input", { type: "text", class: "lt-input", spellcheck: "false", autocapitalize: "off", autocomplete: "off", testid: "text" });
  const refusal = el("p", { class: "av-status lt-refusal", role: "alert", testid: "refusal", hidden: true });
  let shown = null; // the text of the state when the field was last written

  function refuse(words) {
    refusal.textContent = words ? `${words}${input.value === study.state.text ? "" : " Shown is the last text that it could read."}` : "";
    refusal.hidden = !words;
    input.setAttribute("aria-invalid", String(Boolean(words)));
  }

  input.addEventListener("input", () => {
    const found = read(study.network, input.value);
    refuse(found.refusal ?? "");
    if (found.refusal) return;
    shown = input.value;
    study.set({ text: input.value, at: -1 });
  });

  /** `keep` leaves a refusal standing that is true of the new text, too. */
  function draw(keep = false) {
    const { text } = study.state;
    if (text === shown) return;
    if (input.value !== text) input.value = text;
    if (!keep) refuse("");
    shown = text;
  }

  return { field: labelled("text", input), refusal, refuse, draw };
}

export function stripPanel(study) {
  const node = el("div", { class: "lt-strip", role: "listbox", "aria-label": "The text, letter by letter", testid: "strip" });
  let cells = [];

  node.addEventListener("keydown", (event) => {
    const to = plain(event) ? { ArrowRight: study.at + 1, ArrowLeft: study.at - 1 }[event.key] ?? moved(study.at, study.n, event.key, 2 ** 20) : null;
    if (to === null || to < 0 || to >= study.n) return;
    event.preventDefault();
    study.set({ at: to });
    cells[to].node.focus();
  });

  function cell(at) {
    const [letter, guess] = [el("span", { class: "lt-letter" }), el("span", { class: "lt-guess" })];
    return { node: el("span", { class: "lt-cell", role: "option", testid: `letter-${at}`, onclick: () => study.set({ at }) }, letter, guess), letter, guess };
  }

  function draw(room) {
    const { n, tokens, network: { shown } } = study;
    while (cells.length < n) cells.push(cell(cells.length));
    cells = cells.slice(0, n);
    if (node.children.length !== n) {
      const focused = node.contains(node.getRootNode().activeElement);
      node.replaceChildren(...cells.map((one) => one.node));
      if (focused) cells[study.at].node.focus({ preventScroll: true });
    }
    const short = tokens.every((token) => shown[token].length < 3);
    const lines = Math.ceil((n * 22) / room);
    node.style.setProperty("--cell", short ? `${Math.min(40, Math.floor((room + 2) / Math.ceil(n / lines)) - 2)}px` : "auto");
    const guesses = study.guesses();
    cells.forEach(({ node: one, letter, guess }, at) => {
      const said = at ? shown[guesses[at - 1]] : "";
      const right = at > 0 && guesses[at - 1] === tokens[at];
      letter.textContent = shown[tokens[at]];
      guess.textContent = said;
      one.classList.toggle("lt-right", right);
      one.setAttribute("aria-selected", String(at === study.at));
      one.tabIndex = at === study.at ? 0 : -1;
      one.setAttribute("aria-label", `${shown[tokens[at]]}, letter ${at}${at ? `: the model expected ${said}, ${right ? "right" : "wrong"}` : ", the first"}`);
    });
  }

  return { node, draw };
}
