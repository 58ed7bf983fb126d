// What the panels share: the state, and what follows from it.
import { film, newestOf, rightOf, times } from "./rules.js";
import { sentence } from "./words.js";

const NAMES = ["family", "facts", "decay", "step", "overlap", "token"];
const OF_PRESETS = ["facts", "decay", "step", "overlap"];

export class Study {
  constructor(model) {
    this.model = model;
    this.names = model.get("_names");
    this.values = model.get("_values");
    this.rules = model.get("_rules");
    this.presets = model.get("_presets");
    this.last = this.presets[0];
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    const { names, values } = this;
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    const given = { ...this.state, names, values };
    const { facts, token } = this.state;
    this.rule = this.rules.find(({ name }) => name === this.state.family);
    this.newest = newestOf(given);
    this.written = this.newest.filter((value) => value !== null).length;
    this.right = this.rules.map((rule) => {
      const found = film(rule, given);
      const readings = times(found.keys, found.states[token + 1]);
      if (rule === this.rule) Object.assign(this, { found, readings });
      return rightOf(readings, this.newest);
    });
    this.largest = Math.max(1, ...this.found.states.flat(2).map(Math.abs));
    this.sentence = sentence({
      title: this.rule.title, token: token + 1, count: facts.length, fact: facts[token],
      spectrum: this.found.spectra[token], names, values, readings: this.readings, newest: this.newest,
    });
    this.last = this.preset ?? this.last;
  }

  get n() {
    return this.state.facts.length;
  }

  /** The preset that is shown, unchanged. */
  get preset() {
    const same = (one) => OF_PRESETS.every((name) => JSON.stringify(one[name]) === JSON.stringify(this.model.get(name)));
    return this.presets.find(same);
  }

  start(name) {
    const { name: _name, try: _try, ...state } = this.presets.find((one) => one.name === name);
    this.set(state);
  }

  /** Change the present fact: its key (0), its value (1) or how much it forgets (2). */
  change(at, value) {
    const [facts, token] = ["facts", "token"].map((name) => this.model.get(name));
    this.set({ facts: facts.map((fact, t) => (t === token ? fact.map((old, i) => (i === at ? value : old)) : fact)) });
  }
}
