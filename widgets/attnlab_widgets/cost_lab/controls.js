// The slim row: mechanism and sliders; those of its options follow the mechanism.
import { bar } from "#parts/bar.js";
import { choice, el, slider, toggle } from "#parts/dom.js";
import { grouped } from "#lib/wall.js";

const HELP = `First say how the cost of a mechanism grows with the length of the sequence; then its curve is shown.

Both axes are logarithmic, so that a cost that grows like a power of n is a straight line, and the power is its slope. Lines are the formulas of the mechanisms' cards, FLOPs of the mixing alone (two per multiply-add, no projections); formulas hold for sequences longer than windows and blocks. Circles are FLOPs counted operation by operation at the same setting. The exponent is taken over the shaded lengths, from n / 16 to n.

"Measure" times the whole layer, projections included, and full attention's in turn on this machine, one sequence at a time. Squares are medians, bars quartiles. Their scale, on the right, is laid so that full attention's time at the longest length lies on its line: a square above its own line does less work in a second than full attention.`;

export function controls(store) {
  const { mechanisms, lengths, dims, heads } = store.about;
  const groups = mechanisms.map(({ name, title, year }) => [name, `${title} (${year})`]);
  const mechanism = choice("Mechanism", "mechanism", groups, (name) => store.set({ mechanism: name, options: {} }));
  const along = (text, name, values) => slider(text, name, { min: 0, max: values.length - 1, step: 1 }, (at) => store.set({ [name]: values[at] }));
  const sliders = { n: [along("n", "n", lengths), lengths], dim: [along("dim", "dim", dims), dims], heads: [along("heads", "heads", heads), heads] };
  const quantity = choice("Cost", "quantity", [["time", "FLOPs"], ["memory", "largest tensor"]], (value) => store.set({ quantity: value }));
  const backward = toggle("time the backward pass, too", "backward", (value) => store.set({ backward: value }));
  const options = el("div", { class: "cl-options", role: "group", "aria-label": "Options of the mechanism", testid: "options" });
  const { node } = bar({
    frequent: [mechanism.node, ...Object.values(sliders).map(([one]) => one.node), quantity.node],
    more: [backward.node],
    help: HELP,
  });
  let shown = null;
  let own = [];

  function renew() {
    shown = store.own.name;
    own = Object.entries(store.own.letters).map(([letter, { option, usual, values }]) => {
      const one = slider(`${option} ${letter}`, `option-${option}`, { min: 0, max: values.length - 1, step: 1 }, (at) => {
        store.set({ options: { ...store.state.options, [option]: values[at] } });
      });
      return { one, option, usual, values };
    });
    const none = own.length ? [] : [el("span", { class: "av-quiet", text: "No option of this mechanism stands in its formulas." })];
    options.replaceChildren(...own.map(({ one }) => one.node), ...none);
  }

  function put({ input, output }, values, value) {
    input.value = values.reduce((best, one, at) => (Math.abs(one - value) < Math.abs(values[best] - value) ? at : best), 0);
    output.textContent = grouped(value);
    input.setAttribute("aria-valuetext", grouped(value));
  }

  function draw() {
    const { state } = store;
    if (shown !== store.own.name) renew();
    mechanism.select.value = state.mechanism;
    for (const [name, [one, values]] of Object.entries(sliders)) put(one, values, state[name]);
    for (const { one, option, usual, values } of own) put(one, values, state.options[option] ?? usual);
    quantity.select.value = state.quantity;
    backward.box.checked = state.backward;
  }

  return { nodes: [node, options], draw };
}
