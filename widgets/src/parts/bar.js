// One slim row of the controls that are used often; the others behind "More", and behind "?" how the
// picture is read. What opens lies over the widget, so that nothing moves.
import { button, el } from "./dom.js";

/** `frequent` and `more` are nodes, `help` is a text; an empty line in it begins a paragraph. */
export function bar({ frequent, more = [], help = "", label = "What is shown" }) {
  const doors = [];
  const door = (name, text, testid, content, role) => {
    const panel = el("div", { class: "av-sheet", role, "aria-label": name, testid: `${testid}-panel`, hidden: true }, ...content);
    const opener = button({ text, title: name, "aria-label": name, "aria-expanded": "false", testid: testid,
      onclick: () => (panel.hidden ? open({ panel, opener }) : close(true)),
    });
    doors.push({ panel, opener });
    return el("span", { class: "av-door" }, opener, panel);
  };
  const ends = [
    ...(more.length ? [door("More controls", "More", "more", more, "group")] : []),
    ...(help ? [door("How to read this", "?", "help", help.split("\n\n").map((text) => el("p", { text })), "note")] : []),
  ];
  const node = el(
    "div",
    { class: "av-controls av-bar", role: "group", "aria-label": label },
    ...frequent,
    el("span", { class: "av-bar-ends" }, ...ends),
  );

  function open(one) {
    close(false);
    one.panel.hidden = false;
    one.opener.setAttribute("aria-expanded", "true");
    inView(one);
    // Before the notebook sees them: its shortcuts and the widgets' own know Escape, too.
    document.addEventListener("keydown", escaped, true);
    document.addEventListener("pointerdown", outside, true);
  }

  /** The panel hangs from its button to the left, or to the right where it would be cut off. */
  function inView({ panel, opener }) {
    const frame = node.closest("[data-theme]") ?? node;
    const [left, right] = [frame.getBoundingClientRect().left, opener.getBoundingClientRect().right];
    panel.style.maxWidth = `${Math.max(220, frame.clientWidth - 24)}px`;
    panel.classList.toggle("av-sheet-right", right - panel.offsetWidth < left);
  }

  function close(refocus) {
    document.removeEventListener("keydown", escaped, true);
    document.removeEventListener("pointerdown", outside, true);
    for (const { panel, opener } of doors) {
      if (panel.hidden) continue;
      panel.hidden = true;
      opener.setAttribute("aria-expanded", "false");
      if (refocus) opener.focus();
    }
  }

  function escaped(event) {
    if (!node.isConnected) close(false);
    else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close(true);
    }
  }

  function outside(event) {
    const path = event.composedPath();
    if (!doors.some(({ panel, opener }) => !panel.hidden && (path.includes(panel) || path.includes(opener)))) close(false);
  }

  return { node, close: () => close(false) };
}
