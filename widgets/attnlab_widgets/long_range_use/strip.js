// The text: the far part tinted, the near part plain, measured tokens coloured by the change of their loss.
import { moved } from "#lib/keys.js";
import { el, plain } from "#parts/dom.js";

export function stripPanel(study, view) {
  const readout = el("p", { class: "av-readout", "aria-live": "polite", testid: "readout" });
  const body = el("div", { class: "lr-text", role: "listbox", "aria-label": "Text. Arrow keys choose a measured token.", testid: "text" });
  const node = el("section", { class: "av-panel lr-strip" }, el("h3", { text: "The text" }), body, readout);
  let shown = null;
  let spans = [];

  const choose = (at) => study.set({ token: at });
  const read = (at) => {
    readout.textContent = study.describe(at);
  };
  body.addEventListener("keydown", (event) => {
    const next = plain(event) ? moved(study.state.token, study.last, event.key, 8) : null;
    if (next === null) return;
    event.preventDefault();
    choose(next);
    spans[study.start + next].focus();
  });

  function renew() {
    shown = study.state.text;
    spans = Array.from({ length: study.n }, (_, i) => {
      const at = i - study.start;
      const text = study.word(i);
      if (at < 0) return el("span", { class: "lr-token", text });
      return el("span", {
        class: "lr-token lr-measured", role: "option", tabindex: -1, text, testid: "token",
        onclick: () => choose(at), onpointerenter: () => read(at), onpointerleave: () => read(study.state.token),
      });
    });
    body.replaceChildren(...spans);
    view.later(() => {
      body.scrollTop = body.scrollHeight;
    });
  }

  function draw(high) {
    body.style.maxHeight = `${high}px`;
    if (shown !== study.state.text) renew();
    spans.forEach((span, i) => {
      span.classList.toggle("lr-far", i < study.far);
      span.classList.toggle("lr-border", i === study.far);
      const at = i - study.start;
      if (at < 0) return;
      const change = study.changes[at];
      span.classList.toggle("lr-lower", change < 0);
      span.classList.toggle("lr-copied", study.token(at).classes.includes("far"));
      span.style.setProperty("--share", `${Math.round(75 * Math.sqrt(Math.abs(change) / study.largest))}%`);
      span.setAttribute("aria-selected", String(at === study.state.token));
      span.tabIndex = at === study.state.token ? 0 : -1;
    });
    body.dataset.way = study.state.perturbation;
    read(study.state.token);
  }

  return { node, draw };
}
