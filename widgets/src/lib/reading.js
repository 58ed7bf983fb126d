// A text as tokens: at each place the longest that fits, as network.py reads it.

const SPACE = "␣";

/** {tokens}, or {refusal}: why the text is not read, in a sentence. */
export function read({ names, refusals, maxLen }, text) {
  if (!text) return { refusal: refusals.empty };
  const known = new Map(names.map((name, token) => [name, token]));
  const given = known.has(SPACE) && !names.some((name) => name.includes(" ")) ? text.replaceAll(" ", SPACE) : text;
  const longest = Math.max(...names.map((name) => name.length));
  const tokens = [];
  for (let at = 0; at < given.length; ) {
    let size = longest;
    while (size && !known.has(given.slice(at, at + size))) size -= 1;
    if (!size) return { refusal: refusals.unknown.replace("{}", () => spelled(String.fromCodePoint(given.codePointAt(at)))) };
    tokens.push(known.get(given.slice(at, at + size)));
    at += size;
  }
  if (tokens.length > maxLen) return { refusal: refusals.long.replace("{}", tokens.length.toLocaleString("en")) };
  return { tokens };
}

/** A letter in quotes, or its number where it cannot be seen. */
function spelled(letter) {
  if (/^[\p{L}\p{N}\p{P}\p{S}]$/u.test(letter)) return `“${letter}”`;
  return `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}
