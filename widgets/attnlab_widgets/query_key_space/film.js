// From one map to another: points move there. Training steps, or named maps, have a slider and can play.
import { el, slider } from "#parts/dom.js";
import { player } from "#parts/player.js";

const LENGTH = 700; // milliseconds from one map to the next

/** Where points are between the map that was shown before and the one that is. */
export function motions(study) {
  let [before, now, start] = [study.shown, study.shown, -Infinity];
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const share = () => {
    if (calm.matches) return 1;
    const t = Math.min(1, (performance.now() - start) / LENGTH);
    return t * t * (3 - 2 * t);
  };
  return {
    changed() {
      if (study.shown === now) return;
      [before, now, start] = [now, study.shown, performance.now()];
    },
    moving: () => share() < 1,
    of(at) {
      const to = study.places(at, now);
      const part = share();
      return part < 1 ? { from: study.places(at, before), to, share: part } : { from: to, to, share: 1 };
    },
  };
}

export function filmPanel(study, view) {
  const steps = slider("Training step", "step", { min: 0, step: 1 }, (value) => go(value));
  const play = player({ at: () => study.shown, last: () => study.space.maps.length - 1, go: (shown) => study.set({ shown }) });
  const node = el("div", { class: "qk-film", role: "group", "aria-label": "Film" }, play.node, steps.node);
  let told = study.shown;

  function go(value) {
    play.stop();
    study.set({ shown: value });
  }

  function draw() {
    node.hidden = !study.space.film;
    steps.node.querySelector("span").textContent = study.space.film;
    steps.input.max = study.space.maps.length - 1;
    steps.input.value = study.shown;
    steps.output.textContent = study.map.name;
    if (study.space.film && told !== study.shown) view.announce(`${study.space.film.toLowerCase()} ${study.map.name}`);
    told = study.shown;
  }

  return { node, draw, stop: play.stop };
}
