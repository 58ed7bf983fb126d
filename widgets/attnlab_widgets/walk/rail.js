// Where the walk is: a slider over all steps, the parts of the model, and the steps of this part.
import { button, el, slider } from "#parts/dom.js";
import { player } from "#parts/player.js";

export const PAUSE = 1300; // milliseconds

export function railPanel(study) {
  const { steps, parts } = study;
  const go = (step, passing = false) => {
    study.passing = passing;
    study.set({ step });
  };
  const film = player({ at: () => study.state.step, last: () => steps.length - 1, go: (step) => go(step, step + 1 < steps.length), pause: () => PAUSE });
  const scrub = slider("step", "step", { min: 0, max: steps.length - 1, step: 1 }, (step) => go(step));
  const doors = parts.map((part) => button({ class: "wk-part", text: part, testid: `part-${part.replace(" ", "-")}`, onclick: () => go(steps.findIndex((step) => step.part === part)) }));
  const names = steps.map((step, at) => button({ class: "wk-name", text: step.name, testid: `step-${step.key}`, onclick: () => go(at) }));
  const summary = el("p", { class: "wk-said", testid: "summary" });
  const node = el("section", { class: "wk-rail", "aria-label": "The steps" },
    el("div", { class: "wk-scrub" }, film.node, scrub.node),
    el("div", { class: "wk-parts", role: "group", "aria-label": "Parts of the model" }, ...doors),
    el("div", { class: "wk-names", role: "group", "aria-label": "Steps of this part" }, ...names),
    summary);

  function draw() {
    const { step: at } = study.state;
    scrub.input.value = String(at);
    scrub.input.setAttribute("aria-valuetext", `${steps[at].part}, ${steps[at].name}`);
    scrub.output.textContent = `${at + 1} of ${steps.length}`;
    doors.forEach((door, part) => door.setAttribute("aria-current", String(parts[part] === steps[at].part)));
    const focused = names.indexOf(node.getRootNode().activeElement);
    names[at].hidden = false;
    if (focused >= 0 && steps[focused].part !== steps[at].part) names[at].focus({ preventScroll: true });
    names.forEach((name, step) => {
      name.hidden = steps[step].part !== steps[at].part;
      name.setAttribute("aria-current", String(step === at));
    });
    summary.textContent = study.sentence;
  }

  return { node, draw, stop: film.stop };
}
