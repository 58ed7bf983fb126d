// What is said of wires and answers; words.py says the same.
import { two } from "#lib/plane.js";

const KINDS = { itself: "looks at itself", before: "looks one letter back", same: "looks at the same letter", behind: "looks behind the same letter" };
const SHORT = { itself: "at itself", before: "one letter back", same: "at the same", behind: "behind the same" }; // where there is little room
const CLEAR = 0.5; // from which mean weight on a head is called after what it does

export const percent = (share) => `${two(100 * share, 1)} %`;

export const called = (sender) => (sender === "letters" || sender === "places" ? `the ${sender}` : `head ${sender}`);

/** from head 0.1 into the key of head 1.0 */
export function wire([sender, receiver]) {
  if (receiver === "logits") return `from ${called(sender)} to the logits`;
  const [head, into] = receiver.split(" ");
  return `from ${called(sender)} into the ${into} of head ${head}`;
}

/** What becomes of the letter that is watched. */
export function change(letter, before, after, measure) {
  if (measure === "logit") return `the logit of “${letter}” above the mean goes from ${two(before.logit, 1)} to ${two(after.logit, 1)}`;
  return `“${letter}” goes from ${percent(before.chance)} to ${percent(after.chance)}`;
}

/** The sentence above the board: what the model writes, or what it writes after the cuts. */
export function summary({ shown }, watched, why, cuts, before, after, strongest, measure, alone) {
  const letter = shown[watched];
  const now = `“${shown[after.first]}” with ${percent(after.most)}`;
  if (!cuts.length) {
    const found = `The model writes ${now}. ${why}`;
    return alone ? `${found} The thickest wire leads ${wire(strongest)}: cut alone, ${change(letter, before, alone, measure)}.` : found;
  }
  const many = cuts.length === 1 ? `the wire ${wire(cuts[0])}` : `${cuts.length} wires`;
  if (after.first === before.first) return `With ${many} cut, the model still writes ${now} instead of ${percent(before.most)}.`;
  const said = `With ${many} cut, the model writes ${now} instead of “${shown[before.first]}” with ${percent(before.most)}.`;
  return watched === after.first || watched === before.first ? said : `${said} “${letter}” has ${percent(after.chance)}.`;
}

/** What a head (n · n weights) looks at in this text. */
export function caption(weights, tokens, short = false) {
  const [n, last] = [tokens.length, new Map()];
  const found = { itself: [], before: [], same: [], behind: [] };
  tokens.forEach((token, at) => {
    if (at) {
      found.itself.push(weights[at * n + at]);
      found.before.push(weights[at * n + at - 1]);
    }
    const same = last.get(token);
    if (same !== undefined) {
      found.same.push(weights[at * n + same]);
      found.behind.push(weights[at * n + same + 1]);
    }
    last.set(token, at);
  });
  let [best, share] = ["", 0];
  for (const [kind, each] of Object.entries(found)) {
    const mean = each.reduce((a, b) => a + b, 0) / each.length;
    if (mean > share) [best, share] = [kind, mean];
  }
  if (share < CLEAR) return short ? "at several" : "looks at several letters";
  return `${(short ? SHORT : KINDS)[best]}, ${two(100 * share, 0)} %`;
}

/** The letter that is watched after the letter `at`, and why this one. */
export function asked({ shown }, tokens, at, guess) {
  const here = shown[tokens[at]];
  const earlier = tokens.lastIndexOf(tokens[at], at - 1);
  if (at && earlier >= 0) {
    const watched = tokens[earlier + 1];
    return { watched, why: `Right is “${shown[watched]}”, which came after “${here}” before.` };
  }
  if (at + 1 < tokens.length) {
    const watched = tokens[at + 1];
    return { watched, why: `In the text comes “${shown[watched]}”; “${here}” did not occur before.` };
  }
  return { watched: guess, why: `“${here}” did not occur before, so no letter is known to be right.` };
}
