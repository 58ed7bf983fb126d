// What the panels share: the state, and what follows from it.
import { MOST_POLES, allowed, extents, responded, announcement, spectrum, stroked } from "./signals.js";

const NAMES = ["signal", "poles", "weights", "step", "rule", "skip", "taps", "token"];
const KERNEL = ["poles", "weights", "skip", "taps"]; // what makes it another one
const AXIS = "A pole to the right of the imaginary axis would make the response grow without bound: it stays on the axis.";

export class Study {
  constructor(model) {
    this.model = model;
    this.signals = model.get("_signals");
    this.kernels = model.get("_kernels");
    this.last = this.kernels[0];
    this.refused = ""; // why what was done last was not, or not all of it
    [this.lag, this.tap] = [0, 0]; // of the kernel and of the taps, the bars that are read out
    this.reach = [0, 0];
  }

  set(changes, refused = "") {
    this.refused = refused;
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    const { signal, poles, token } = this.state;
    this.state.token = Math.min(token, signal.length - 1);
    this.n = signal.length;
    this.lag = Math.min(this.lag, this.n - 1);
    this.tap = Math.min(this.tap, Math.max(0, this.state.taps.length - 1));
    this.found = responded(this.state);
    this.spectra = [spectrum(this.found.kernel), spectrum(signal)];
    this.sentence = announcement(this.state, this.found);
    this.last = this.kernel ?? this.last;
    // The plane follows a preset and poles that lie beyond it: nothing jumps under the hand.
    const beyond = poles.some(([re, im]) => Math.abs(im) > this.reach[0] || -re > this.reach[1]);
    if (beyond) this.reach = extents(poles);
  }

  /** The kernel of the list that is shown, unchanged; steps and rule may differ. */
  get kernel() {
    return this.kernels.find((one) => KERNEL.every((name) => JSON.stringify(one[name]) === JSON.stringify(this.model.get(name))));
  }

  /** Whether a kernel is shown that nobody trained: those that are given come first. */
  get untrained() {
    return this.model.get("untrained") && this.kernels.indexOf(this.kernel) < this.model.get("_given") && Boolean(this.kernel);
  }

  get drawn() {
    return this.signals.find(({ signal }) => JSON.stringify(signal) === JSON.stringify(this.model.get("signal")));
  }

  startKernel(name) {
    const { name: _name, try: _try, ...state } = this.kernels.find((one) => one.name === name);
    this.reach = [0, 0];
    this.set(state);
  }

  startSignal(name) {
    this.setSignal(this.signals.find((one) => one.name === name).signal);
  }

  setSignal(signal) {
    this.set({ signal, token: Math.min(this.model.get("token"), signal.length - 1) });
  }

  choose(token) {
    this.set({ token: Math.min(this.n - 1, Math.max(0, token)) });
  }

  /** A stroke of the pen through the signal or the taps. */
  draw(name, from, to) {
    this.set({ [name]: stroked(this.model.get(name), from, to) });
  }

  movePole(at, point) {
    const { pole, refused } = allowed(point);
    this.set({ poles: this.model.get("poles").map((old, r) => (r === at ? pole : old)) }, refused ? AXIS : "");
  }

  addPole() {
    const [poles, weights] = [this.model.get("poles"), this.model.get("weights")];
    if (poles.length >= MOST_POLES) return;
    this.set({ poles: [...poles, [-0.5, 1 + poles.length]], weights: [...weights, [1, 0]], taps: [] });
  }

  removePole(at) {
    const [poles, weights] = [this.model.get("poles"), this.model.get("weights")];
    if (poles.length < 2) return;
    const others = (list) => list.filter((_, r) => r !== at);
    this.set({ poles: others(poles), weights: others(weights) });
  }
}
