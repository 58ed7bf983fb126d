// What the panels of CostLab share: the state, and what follows from it.
import { unzlibSync } from "fflate";
import { asBuffer } from "#lib/quantization.js";
import { costOf, countKey, crossover, key, lengthsTo, slope } from "./costs.js";
import { grouped } from "#lib/wall.js";

const NAMES = ["mechanism", "n", "dim", "heads", "options", "claims", "quantity", "backward"];

export class Costs {
  constructor(model) {
    this.model = model;
    this.about = JSON.parse(new TextDecoder().decode(unzlibSync(new Uint8Array(asBuffer(model.get("_about"))))));
    this.asked = null; // when a measurement was asked for, until Python answers
    this.read();
  }

  set(changed) {
    for (const [name, value] of Object.entries(changed)) this.model.set(name, value);
    this.model.save_changes();
  }

  find = (name) => this.about.mechanisms.find((one) => one.name === name);

  read() {
    this.state = Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
    const { mechanism, n, claims } = this.state;
    this.own = this.find(mechanism);
    this.base = this.find(this.about.base);
    this.isBase = this.own === this.base;
    this.claim = claims[mechanism] ?? null;
    this.lengths = lengthsTo(n, this.about.lengths, this.about.window);
    const counted = this.model.get("_counted");
    this.counted = counted.key === countKey(this.state) && this.state.quantity === "time" ? counted.flops : {};
    this.times = this.model.get("_times")[key(this.state)] ?? null;
    const progress = this.model.get("_progress");
    this.progress = !progress.key || progress.key === key(this.state) ? progress : {};
    this.live = this.model.get("_live");
  }

  cost = (n) => costOf(this.own, n, this.state);
  baseCost = (n) => costOf(this.base, n, { ...this.state, options: {} });

  get exponent() {
    return slope(this.lengths, this.lengths.map(this.cost));
  }

  /** Of the counted FLOPs; null where fewer than two lengths are counted. */
  get countedExponent() {
    const lengths = this.lengths.filter((n) => this.counted[n]);
    return lengths.length < 2 ? null : slope(lengths, lengths.map((n) => this.counted[n]));
  }

  get crossoverSaid() {
    if (this.isBase) return "This is full attention itself.";
    const unit = { time: "FLOPs", memory: "elements in its largest tensor" }[this.state.quantity];
    const at = crossover(this.cost, this.baseCost);
    if (at === null) return `By the formulas it never has fewer ${unit} than full attention.`;
    if (at === 0) return `By the formulas it has fewer ${unit} than full attention at every length.`;
    return `By the formulas it has fewer ${unit} than full attention from n = ${grouped(Math.round(at))} on.`;
  }
}
