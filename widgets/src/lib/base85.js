// Base 85 as in RFC 1924, with "." in the place of "<", which a page would have to escape.

const ALPHABET =
  "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;.=>?@^_`{|}~";
const VALUES = new Uint8Array(128);
[...ALPHABET].forEach((letter, value) => {
  VALUES[letter.charCodeAt(0)] = value;
});

/** Five letters are four bytes; a shorter end gives one byte less than it has letters. */
export function fromText(text) {
  const spare = (5 - (text.length % 5)) % 5;
  const count = (text.length + spare) / 5;
  const bytes = new Uint8Array(count * 4);
  for (let at = 0; at < count; at += 1) {
    let word = 0;
    for (let letter = at * 5; letter < at * 5 + 5; letter += 1) {
      word = word * 85 + (letter < text.length ? VALUES[text.charCodeAt(letter)] : 84);
    }
    bytes[at * 4] = word / 16777216;
    bytes[at * 4 + 1] = (word / 65536) & 255;
    bytes[at * 4 + 2] = (word / 256) & 255;
    bytes[at * 4 + 3] = word & 255;
  }
  return bytes.subarray(0, bytes.length - spare);
}
