// The panels: poles or taps, kernel, spectrum and map; signal, state and output; the tables.
import { ago, cut } from "./signals.js";
import { two } from "#lib/plane.js";
import { gridPanel } from "./grid.js";
import { circlePanel, polesPanel } from "./poles.js";
import { seriesPanel } from "./series.js";
import { spectrumPanel } from "./spectrum.js";
import { tablesPanel } from "./tables.js";

export function panelsOf(study, view) {
  const { model } = study;
  const token = () => Math.min(model.get("token"), model.get("signal").length - 1);
  const choose = (at) => study.choose(at);
  /** Which bar of the kernel or of the taps is read out is the page's own. */
  const pointAt = (which) => {
    Object.assign(study, which);
    view.changed();
  };
  const moved = (event, keys) => {
    const by = keys[event.key];
    if (by) choose(token() + by);
    return Boolean(by);
  };

  let [cutOf, kernelCut] = [null, null];
  const shown = () => {
    if (cutOf !== study.found.kernel) [cutOf, kernelCut] = [study.found.kernel, cut(study.found.kernel)];
    return kernelCut;
  };
  const own = () => (shown() === study.found.kernel ? "" : `itself ${two(study.found.kernel[0], 2)}, not to scale`);
  const taps = seriesPanel({
    title: "Taps", testid: "taps", hint: () => "draw them; the newest token's first", look: "sl-kernel",
    values: () => model.get("taps"),
    chosen: () => study.tap,
    choose: (tap) => pointAt({ tap }),
    pen: (from, to) => study.draw("taps", from, to),
    read: (at) => `Tap ${at}, of ${ago(at)}: ${two(study.state.taps[at], 3)}`,
  });
  const kernel = seriesPanel({
    title: "Impulse response", testid: "kernel", look: "sl-kernel",
    values: shown,
    first: own,
    chosen: () => study.lag,
    choose: (lag) => pointAt({ lag }),
    read: (at) => `Of ${ago(at)}: ${two(study.found.kernel[at], 3)}`,
  });
  const map = gridPanel(view, {
    title: "The map", testid: "map", hint: () => (own() ? "diagonal not to scale" : "row i: what i takes"),
    shape: () => [study.n, study.n],
    value: (i, j) => (j > i ? 0 : shown()[i - j]),
    mark: () => [token(), null],
    press: (i) => choose(i),
    keys: (event) => moved(event, { ArrowDown: 1, ArrowUp: -1 }),
    read: (i = token(), j = i) => `Row ${i}, column ${j}: ${j > i ? "later, not read" : two(study.found.kernel[i - j], 3)}`,
  });
  const signal = seriesPanel({
    title: "Signal", testid: "signal", hint: () => (own() ? "draw it; end of line not to scale" : "draw it"), look: "sl-signal",
    values: () => model.get("signal"),
    over: () => study.state.signal.map((_, j) => shown()[token() - j] ?? 0),
    chosen: token, choose,
    pen: (from, to) => study.draw("signal", from, to),
    read: (at) => `Token ${at}: ${two(study.state.signal[at], 3)}`,
  });
  const state = gridPanel(view, {
    title: "State", testid: "state",
    hint: () => (study.state.taps.length ? "the newest inputs" : "real part of each mode"),
    shape: () => [study.found.states.length, study.n],
    value: (row, at) => study.found.states[row][at],
    mark: () => [null, token()],
    press: (_, at) => choose(at),
    keys: (event) => moved(event, { ArrowRight: 1, ArrowLeft: -1 }),
    read: (row = 0, at = token()) => {
      const value = two(study.found.states[row][at], 3);
      return study.state.taps.length ? `Token ${at}, input ${row} back: ${value}` : `Token ${at}, mode ${row}: ${value}`;
    },
  });
  const output = seriesPanel({
    title: "Output", testid: "output", look: "sl-output",
    values: () => study.found.output,
    chosen: token, choose,
    read: (at) => `Token ${at}: ${two(study.found.output[at], 3)}`,
  });
  return { poles: polesPanel(study), taps, circle: circlePanel(study), kernel, spectrum: spectrumPanel(study), map, signal, state, output, tables: tablesPanel(study, view) };
}
