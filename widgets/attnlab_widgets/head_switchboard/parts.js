// The parts of logits, as writers.py packs them: for each choice and token the parts, the logit, and the mean of all logits.

/** The parts in the mean over the token that is pointed at, or over those that repeat (all, where none does). */
export function meanParts(board, floats, state, at = null) {
  const { parts } = board.writers;
  const width = parts.length + 2;
  const count = board.coming.length;
  const places = at === null ? meant(board) : [at - 1];
  const start = shownState(board, state) * count;
  const means = new Array(width).fill(0);
  for (const place of places) {
    for (let k = 0; k < width; k += 1) means[k] += floats[(start + place) * width + k] / places.length;
  }
  const values = means.slice(0, parts.length);
  return { values, sum: values.reduce((sum, value) => sum + value, 0), logit: means[width - 2], mean: means[width - 1], places };
}

function meant({ coming, repeats }) {
  const places = coming.map((_, i) => i).filter((i) => repeats[i]);
  return places.length ? places : coming.map((_, i) => i);
}

/** At most `most` parts in their order: the others, the smallest, are one. */
export function few(parts, values, most) {
  const all = parts.map((part, k) => ({ ...part, value: values[k] }));
  if (all.length <= most) return all;
  const order = [...all].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const kept = new Set(order.slice(0, Math.max(1, most - 1)));
  const rest = all.filter((part) => !kept.has(part));
  return [...all.filter((part) => kept.has(part)), { name: `${rest.length} others`, short: "rest", value: rest.reduce((sum, { value }) => sum + value, 0) }];
}

export function signed(value, digits = 2) {
  const number = Math.abs(value).toFixed(digits);
  return Number(number) === 0 ? "0" : `${value < 0 ? "−" : "+"}${number}`;
}
const plainly = (value) => signed(value).replace("+", "");

/** The choice whose parts are shown: the first, all heads on, where this is the only one that is stored. */
export const shownState = ({ writers }, state) => (writers.choices > 1 ? state : 0);

/** Whether a part is that of a head that is silent in the choice that is shown. */
export const isSilent = (board, part, state) => part.switch !== undefined && ((shownState(board, state) >> part.switch) & 1) === 1;

/** What is read out: the heading, the two largest parts, and the line. */
export function spokenOf(board, found, study) {
  const { heading, line } = wordsOf(board, found, study);
  const all = board.writers.parts.map(({ name }, k) => ({ name, value: found.values[k] }));
  const largest = all.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 2);
  return `${heading} Most: ${largest.map(({ name, value }) => `${name} ${signed(value)}`).join(", ")}. ${line}`;
}

/** The heading, and the line that says what the bars sum to. */
export function wordsOf(board, { sum, logit, mean, places }, { at, state }) {
  const some = places.length < board.coming.length;
  const heading = at !== null
    ? `Who writes “${board.tokens[at]}” here?`
    : `Who writes the ${board.unit}s${some ? " that repeat" : ""}? (mean of ${places.length})`;
  const all = shownState(board, state) !== state ? " With all heads on: a text this long has too many choices to store." : "";
  return { heading, line: `The bars sum to ${signed(sum)} = logit ${plainly(logit)} less ${plainly(mean)}, the mean of all logits.${all}` };
}
