// What a token is, and which tokens a search means.

export const KINDS = ["word", "piece of a word", "number", "punctuation", "space", "special"];
const SPACE = /^[\s␣↵␍⇥⍽ĠĊ▁]*$/u;
const SPECIAL = /^(<[^<>\s]{1,24}>|\[[A-Z0-9_]{1,24}\]|<\|[^|]*\|>)$/;
const START = /^[\s␣Ġ▁]+/u;

/** Without the sign for a space before it, in small letters. */
export const bare = (text) => text.replace(START, "").replace(/^##/, "").toLowerCase() || text;

/** How a vocabulary marks what begins or goes on with a word: "start", "piece", or "" for neither. */
export function convention(texts) {
  if (texts.some(([short, full = short]) => /^##./.test(full))) return "piece";
  const starts = texts.filter(([short, full = short]) => START.test(full) && !SPACE.test(full)).length;
  return starts > 0.02 * texts.length ? "start" : "";
}

/** The kind of a token after the token `before` (null at the beginning of its sequence). */
export function kindOf(text, before, marks) {
  if (SPECIAL.test(text)) return 5;
  if (SPACE.test(text)) return 4;
  const word = text.replace(START, "").replace(/^##/, "");
  if (/^[\p{N}.,]*\p{N}[\p{N}.,]*$/u.test(word)) return 2;
  if (!/[\p{L}\p{N}]/u.test(word)) return 3;
  if (marks === "piece") return text.startsWith("##") ? 1 : 0;
  if (marks === "start" && before !== null && !START.test(text) && /[\p{L}\p{N}]$/u.test(before)) return 1;
  return 0;
}

/** The kinds of all tokens of a set. */
export function kindsOf(set) {
  const marks = convention(set.texts);
  const out = new Uint8Array(set.n);
  for (const rows of set.rows) {
    let before = null;
    for (const row of rows ?? []) {
      out[row] = kindOf(set.full(row), before, marks);
      before = set.full(row);
    }
  }
  return out;
}

/** How often each text stands in the set, and the texts from the most frequent on. */
export function frequencies(set) {
  const counts = new Uint32Array(set.texts.length);
  for (const one of set.text) counts[one] += 1;
  const order = [...counts.keys()].sort((a, b) => counts[b] - counts[a]);
  return { counts, order };
}

/** For each text whether the search means it: the whole token, or `th*` for all that begin so. */
export function found(texts, search) {
  const wanted = search.trim().toLowerCase();
  if (!wanted) return null;
  const begins = wanted.endsWith("*") && wanted.length > 1;
  const start = wanted.slice(0, -1);
  return texts.map(([short, full = short]) => {
    const names = [bare(full), bare(short), full.toLowerCase()];
    return names.some((name) => (begins ? name.startsWith(start) : name === wanted));
  });
}
