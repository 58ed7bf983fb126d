// What is said of wires and answers; words.py says the same.
import { two } from "#lib/plane.js";

const KINDS = { itself: "looks at itself", before: "looks one {} back", same: "where a {} repeats, at the same", behind: "where a {} repeats, behind the same" };
const SHORT = { itself: "at itself", before: "one {} back", same: "repeats: at the same", behind: "repeats: behind the same" }; // where there is little room
const [CLEAR, ROWS] = [0.5, 2]; // from which mean weight on, over so many rows, a head is called after what it does

export const percent = (share) => `${two(100 * share, 1)} %`;

export const called = (sender) => (sender === "letters" || sender === "places" ? `the ${sender}` : `head ${sender}`);

/** from head 0.1 into the key of head 1.0 */
export function wire([sender, receiver]) {
  if (receiver === "logits") return `from ${called(sender)} to the logits`;
  const [head, into] = receiver.split(" ");
  return `from ${called(sender)} into the ${into} of head ${head}`;
}

const shownOf = (answer, measure) => (measure === "logit" ? two(answer.logit, 1) : percent(answer.chance));

/** What becomes of the letter that is watched. */
export function change(letter, before, after, measure) {
  const what = measure === "logit" ? `the logit of “${letter}” above the mean` : `“${letter}”`;
  const [one, other] = [shownOf(before, measure), shownOf(after, measure)];
  return one === other ? `${what} stays at ${one}` : `${what} goes from ${one} to ${other}`;
}

/** The sentence above the board: what the model writes, or what it writes after the cuts. */
export function summary({ shown }, watched, why, cuts, before, after, measure) {
  const now = `“${shown[after.first]}” with ${percent(after.most)}`;
  if (!cuts.length) return `The model writes ${now}. ${why}`;
  const many = `With ${cuts.length === 1 ? `the wire ${wire(cuts[0])}` : `${cuts.length} wires`} cut,`;
  const stays = shownOf(before, measure) === shownOf(after, measure);
  const told = change(shown[watched], before, after, measure).replace(/^./u, (first) => ` ${first.toUpperCase()}`);
  if (after.first !== before.first) return `${many} the model writes ${now} instead of “${shown[before.first]}” with ${percent(before.most)}.${watched === after.first || watched === before.first ? "" : `${told}.`}`;
  if (percent(before.most) !== percent(after.most)) return `${many} the model still writes ${now} instead of ${percent(before.most)}.${watched === after.first || stays ? "" : `${told}.`}`;
  return stays ? `${many} nothing changes: the model writes ${now}.` : `${many} the model still writes ${now}.${told}.`;
}

export const thickest = ({ shown }, watched, strongest, before, alone, measure) => `The thickest wire leads ${wire(strongest)}: cut alone, ${change(shown[watched], before, alone, measure)}.`;

/** Where no cut of one wire changes anything; `same`: the other text is the text itself. */
export function idle(instead, same) {
  if (same) return "No cut changes anything, as the other text is this one again: let cut wires carry zeros or the mean.";
  return `No wire that is cut alone changes anything${instead === "another text" ? ": let cut wires carry zeros or the mean." : "."}`;
}

/** What a head (n · n weights) looks at in this text. Only rows count in which one kind alone names a place. */
export function caption(weights, tokens, noun, short = false) {
  const [n, last] = [tokens.length, new Map()];
  const names = short ? SHORT : KINDS;
  if (n === 1) return `${names.itself}, 100 %`;
  const found = { itself: [], before: [], same: [], behind: [] };
  tokens.forEach((token, at) => {
    const same = last.get(token);
    const places = Object.entries({ ...(at && { itself: at, before: at - 1 }), ...(same !== undefined && { same, behind: same + 1 }) });
    for (const [kind, place] of places) if (places.filter((one) => one[1] === place).length === 1) found[kind].push(weights[at * n + place]);
    last.set(token, at);
  });
  let [best, share] = ["", 0];
  for (const [kind, each] of Object.entries(found)) {
    const mean = each.length < ROWS ? 0 : each.reduce((a, b) => a + b, 0) / each.length;
    if (mean > share) [best, share] = [kind, mean];
  }
  return share < CLEAR ? "no one habit" : `${names[best].replace("{}", noun)}, ${two(100 * share, 0)} %`;
}

/** The letter that is watched after the letter `at`, and why this one. */
export function asked({ shown, noun }, tokens, at, guess) {
  const here = shown[tokens[at]];
  const earlier = tokens.lastIndexOf(tokens[at], at - 1);
  const next = tokens[at + 1];
  if (at && earlier >= 0) {
    const watched = tokens[earlier + 1];
    return { watched, why: `After “${here}” came “${shown[watched]}” the last time${next === undefined || next === watched ? "" : `, and here comes “${shown[next]}”`}.` };
  }
  if (next !== undefined) return { watched: next, why: `In the text comes “${shown[next]}”; “${here}” did not occur before.` };
  return { watched: guess, why: `“${here}” did not occur before, so no ${noun} is known to be right.` };
}
