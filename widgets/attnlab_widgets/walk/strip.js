// The text, a cell for each letter: the letter, and under it what the model expected there.
import { moved } from "#lib/keys.js";
import { el, plain } from "#parts/dom.js";

export function stripPanel(study) {
  const node = el("div", { class: "wk-strip", role: "listbox", "aria-label": "The text, letter by letter", testid: "strip" });
  let cells = [];

  node.addEventListener("keydown", (event) => {
    const to = plain(event) ? { ArrowRight: study.at + 1, ArrowLeft: study.at - 1 }[event.key] ?? moved(study.at, study.n, event.key, 2 ** 20) : null;
    if (to === null || to < 0 || to >= study.n) return;
    event.preventDefault();
    study.set({ at: to });
    cells[to].node.focus();
  });

  function cell(at) {
    const [letter, guess] = [el("span", { class: "wk-letter" }), el("span", { class: "wk-guess" })];
    return { node: el("span", { class: "wk-cell", role: "option", testid: `letter-${at}`, onclick: () => study.set({ at }) }, letter, guess), letter, guess };
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
      one.classList.toggle("wk-right", right);
      one.setAttribute("aria-selected", String(at === study.at));
      one.tabIndex = at === study.at ? 0 : -1;
      one.setAttribute("aria-label", `${shown[tokens[at]]}, letter ${at}${at ? `: the model expected ${said}, ${right ? "right" : "wrong"}` : ", the first"}`);
    });
  }

  return { node, draw };
}
