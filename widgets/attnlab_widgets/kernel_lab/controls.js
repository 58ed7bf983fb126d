// The controls: head, feature map, number of features and temperature; how rows are drawn and how long a text is timed behind "More".
import { bar } from "#parts/bar.js";
import { choice, el, labelled, slider, toggle } from "#parts/dom.js";
import { grouped } from "#lib/wall.js";
import { temperature as heat } from "./words.js";

const HELP = `Rows are queries, columns are keys; yellow is a weight of 1, dark blue is zero, hatched is masked. In the difference, orange is too much and blue is too little. Weights of cosines and sines may be below zero: then their map has the colours of the difference, orange above zero and blue below. All three maps have one scale: the square root, up to 1. What is beyond 1 looks like 1, and a line below the maps says how far it goes. Point at a pair, or choose one by the arrow keys, and it is read in all of them.

Attention in the wrong place is half the sum of the differences in a row, as a mean over the rows: 0 for the same map, 100 % where all of the weight is on wrong keys, 50 % in a row without any weight, and more than 100 % only where weights are below zero.

The curve has this share for 4, 8, … 4,096 and the chosen number of features, with the other settings as they are. Each point is one draw, that of the seed: another seed moves it. Each random row counts once, or twice where it makes two features. Settings that were tried have a number there and in the list; press one to have it again.

The random rows are those that PyTorch draws for the seed. Elu + 1, relu and DPFP are not random, and do not estimate the softmax.`;

export function controls(study) {
  const kept = (changes) => {
    study.set(changes);
    study.keep();
  };
  const head = choice("head", "head", [...study.heads.keys()].map((name) => [name, name]), (name) => kept({ head: name }));
  const feature = choice("feature map", "feature", study.told.kinds, (name) => kept({ feature: name }));
  const features = steps("how many", "features", grouped);
  const temperature = steps("temperature", "temperature", heat);
  const length = steps("tokens timed", "length", grouped, false);
  const orthogonal = toggle("orthogonal rows", "orthogonal", (on) => kept({ orthogonal: on }));
  const seed = el("input", { type: "number", class: "av-number", min: 0, max: study.told.seeds, testid: "seed", onchange: () => {
    const value = Math.min(study.told.seeds, Math.max(0, Math.round(Number(seed.value) || 0)));
    seed.value = String(value);
    kept({ seed: value });
  } });
  const several = study.heads.size > 1 ? [head.node] : [];
  const { node } = bar({ frequent: [...several, feature.node, features.node, temperature.node], more: [orthogonal.node, labelled("seed", seed), length.node], help: HELP });

  /** A slider through a few numbers. What it passes is shown; where it is let go is what was tried. */
  function steps(text, name, said, isTried = true) {
    const sorted = () => [...study.steps[name]].sort((a, b) => a - b);
    const one = slider(text, name, { min: 0, step: 1 }, (at) => study.set({ [name]: sorted()[at] }));
    let held = false; // an arrow key that is held down passes numbers, too
    const tried = () => isTried && study.keep();
    one.input.addEventListener("keydown", (event) => (held = event.repeat));
    one.input.addEventListener("change", () => held || tried());
    one.input.addEventListener("keyup", () => {
      if (held) tried();
      held = false;
    });
    const value = () => (name === "length" ? study.length : study.state[name]);
    function draw() {
      const all = sorted();
      one.input.max = String(all.length - 1);
      one.input.value = String(all.indexOf(value()));
      one.output.textContent = said(value());
      one.input.setAttribute("aria-valuetext", one.output.textContent);
    }
    return { ...one, draw };
  }

  function draw(alone) {
    const { state, random } = study;
    head.select.value = state.head;
    feature.select.value = state.feature;
    [features, temperature, length].forEach((one) => one.draw());
    features.input.disabled = !random && state.feature !== "dpfp";
    orthogonal.box.checked = state.orthogonal;
    orthogonal.box.disabled = seed.disabled = !random;
    if (seed.getRootNode().activeElement !== seed) seed.value = String(state.seed);
    length.node.hidden = alone; // nobody there to measure
  }

  return { node, draw };
}
