// What the panels share: the objectives, the present draw of each, and the place that is read out.

export const [SHOWN, HIDDEN, REPLACED, KEPT, OPEN, SIGN] = [0, 1, 2, 3, 4, 5];
export const NAMES = ["objective", "rate", "span", "seed", "place"];
export const [RATES, SPANS, SEEDS] = [[0.15, 0.3, 0.5], [1, 3, 6], 3];
const BECAME = ["is shown", "is hidden", "is replaced", "is shown and asked for", "is read from both sides", "is a sign of the objective"];

export class Study {
  constructor(model) {
    this.model = model;
    this.told = model.get("_hidden");
    this.rows = this.told.objectives;
  }

  set(changes) {
    const state = { ...this.now(), ...changes };
    const most = this.drawOf(this.rows.find((row) => row.name === state.objective), state).asked.length - 1;
    const place = Math.max(0, Math.min(state.place, most));
    for (const [name, value] of Object.entries({ ...changes, place })) this.model.set(name, value);
    this.model.save_changes();
  }

  /** Read the traits, once for each drawing. */
  read() {
    this.state = this.now();
    this.line = Math.max(0, this.rows.findIndex((row) => row.name === this.state.objective));
    this.row = this.rows[this.line];
    this.draw = this.drawOf(this.row, this.state);
    this.sentence = `${this.row.name}: ${this.draw.said}`;
  }

  /** Which of the draws of an objective the state names. */
  index(row, state) {
    const rate = row.rate ? RATES.indexOf(state.rate) : 0;
    const span = row.span ? SPANS.indexOf(state.span) : 0;
    return (rate * (row.span ? SPANS.length : 1) + span) * SEEDS + state.seed;
  }

  drawOf(row, state) {
    return row.draws[this.index(row, state)];
  }

  word(at) {
    return at < 0 ? "" : this.told.words[at];
  }

  /** The objective of a row, at the place that belongs to a token of the text; without a token (-1),
   *  or where no place belongs to it, at the first place that is scored. */
  choose(line, token = -1) {
    const row = this.rows[line];
    const { asked } = this.drawOf(row, this.now());
    const found = token < 0 ? -1 : asked.findIndex((place) => place[3] === token);
    this.set({ objective: row.name, place: found >= 0 ? found : Math.max(0, asked.findIndex((place) => place[1] >= 0)) });
  }

  now() {
    return Object.fromEntries(NAMES.map((name) => [name, this.model.get(name)]));
  }

  /** The history of the objective's losses, if it is of the draw that is shown. */
  history() {
    const whole = this.row.span ? SPANS.indexOf(3) * SEEDS : 0;
    const { history } = this.row;
    return history ? { ...history, same: this.index(this.row, this.state) === whole, draw: this.row.draws[whole] } : null;
  }

  /** What stands at a place, what is wanted there, and what a model guesses. */
  readout() {
    const { draw, state } = this;
    const [word, answer, kind] = draw.asked[state.place];
    const seen = kind === HIDDEN ? "a mask" : `“${this.word(word)}”`;
    const wanted = answer < 0 ? "nothing is asked there" : `the answer is “${this.word(answer)}”`;
    return `Place ${state.place}: the model reads ${seen}; ${draw.whole ? `one answer for the text, ${draw.whole}` : wanted}.`;
  }

  guesses() {
    const { guesses } = this.draw;
    if (!guesses || guesses.length === 0) return null;
    return guesses[this.draw.whole ? 0 : this.state.place] ?? null;
  }

  became(row, token) {
    const draw = this.drawOf(row, this.state);
    const pays = draw.pays[token] === "1" ? "; its answer is scored" : "";
    return `${row.name}: token ${token} “${this.told.tokens[token]}” ${BECAME[Number(draw.kinds[token])]}${pays}.`;
  }
}
