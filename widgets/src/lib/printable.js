// Text as it may stand in an SVG file.

const UNWRITABLE = /[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|\p{Surrogate}/gu;

/** With an escape such as \x07 for what XML does not know: control characters and lone surrogates. */
export function printable(text) {
  return text.replace(UNWRITABLE, (found) => {
    const code = found.charCodeAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
  });
}
