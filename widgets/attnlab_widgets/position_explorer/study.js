// What the panels share: the schemes by name, what is chosen, and how each is drawn.
import { curveOf, opened } from "./distances.js";
import { DASHES } from "#lib/colours.js";

export class Study {
  constructor(model) {
    this.model = model;
    this.schemes = opened(model.get("_data"), model.get("_schemes"), model.get("n"));
    this.names = [...this.schemes.keys()];
    this.looks = new Map(model.get("_schemes").map(({ name, look }, at) => [name, look ?? at]));
    this.curves = new Map();
    this.at = null; // the distance that is pointed at
  }

  get(name) {
    return this.model.get(name);
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  get n() {
    return this.get("n");
  }

  get scheme() {
    return this.schemes.get(this.get("scheme"));
  }

  /** The chosen head; a scheme with fewer heads shows its last. */
  head(scheme) {
    return Math.min(this.get("head"), scheme.heads - 1);
  }

  curve(scheme, head) {
    const key = `${head} ${scheme.name}`;
    if (!this.curves.has(key)) this.curves.set(key, curveOf(scheme, head));
    return this.curves.get(key);
  }

  /** Colour and dash of a scheme: the same wherever it is drawn. */
  look(name) {
    const at = this.looks.get(name);
    return { colour: `var(--av-series-${at})`, dash: DASHES[at].join(" ") };
  }

  choose(name) {
    const scheme = this.schemes.get(name);
    const shown = this.get("shown");
    this.set({
      scheme: name,
      head: Math.min(this.get("head"), scheme.heads - 1),
      shown: shown.includes(name) ? shown : this.names.filter((one) => one === name || shown.includes(one)),
    });
  }

  show(name, wanted) {
    const shown = new Set(this.get("shown"));
    if (wanted) shown.add(name);
    else shown.delete(name);
    this.set({ shown: this.names.filter((one) => shown.has(one)) });
  }
}

/** A score with its sign, three digits. */
export function said(score) {
  if (!Number.isFinite(score)) return "none: later keys may not be attended to";
  return (score > 0 ? "+" : "") + score.toFixed(2).replace("-", "−").replace(/^−0\.00$/, "0.00");
}
