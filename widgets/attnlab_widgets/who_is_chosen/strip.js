// The sequence: a token is the query; those that hashing chose for it are underlined.
import { tokenStrip } from "#parts/token_strip.js";

export function stripPanel(study) {
  let chosen = new Set();
  const { node, draw: drawTokens } = tokenStrip({
    tokens: study.tokens, label: "Sequence. Arrow keys choose the query.",
    at: () => study.get("query"), choose: (query) => study.set({ query }),
    look: (i) => ({ name: chosen.has(i) ? "wc-chosen" : "", share: Math.sqrt(study.weights[study.state.query * study.n + i]) }),
  });
  function draw() {
    chosen = new Set(study.keysOf("hashing"));
    drawTokens();
  }
  return { node, draw };
}
