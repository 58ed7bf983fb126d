// What was tried, as a list whose entries bring a setting back; and the speed.
import { el } from "#parts/dom.js";
import { percent } from "./words.js";

export function besidePanel(study, view) {
  const list = el("ol", { class: "kl-list", testid: "tried" });
  const speed = el("span", { testid: "speed" });
  const line = el("p", { class: "kl-speed" }, el("b", { text: "Speed: " }), speed);
  const node = el("section", { class: "av-panel kl-beside", "aria-label": "What was tried" },
    el("h3", {}, "Tried ", el("span", { class: "av-quiet av-hint", text: "and the share in the wrong place" })), list);
  let shown = "";

  function draw() {
    const { tried } = study;
    const present = study.keyOf(study.state);
    const rows = tried.map((one) => [study.said(one), percent(study.error(one)), study.keyOf(one) === present]);
    const wanted = JSON.stringify(rows);
    if (wanted !== shown) {
      shown = wanted;
      const at = [...list.querySelectorAll("button")].indexOf(list.getRootNode().activeElement);
      list.replaceChildren(...rows.map(([said, share, current], row) =>
        el("li", {}, el("button", { type: "button", class: "kl-again", title: `Choose again: ${said}`, "aria-current": String(current), testid: `tried-${row + 1}`, onclick: () => study.set({ ...tried[row] }) },
          el("span", { class: "kl-number", text: String(row + 1) }), el("span", { class: "kl-said" }, el("bdi", { text: said })), el("b", { text: share })))));
      list.querySelectorAll("button")[Math.min(at, rows.length - 1)]?.focus({ preventScroll: true });
    }
    const { said, alone } = study.speed(view.changed);
    if (speed.textContent !== said) speed.textContent = said;
    return alone;
  }

  return { node, line, draw };
}
