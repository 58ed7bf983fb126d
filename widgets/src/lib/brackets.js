// Bracketed text as a tree {label, children}, and back; accepts what attnlab_widgets.tree_tables does.

export const EXAMPLE = "(S (NP the dog) (VP barks))";
export const MOST = 24;
const PIECE = /[()]|[^\s\x1c-\x1f\x85()]+/gu;

/** The tree, or an Error whose `column` (from 1) says where the text is wrong. */
export function read(text) {
  const pieces = [...text.matchAll(PIECE)].map((found) => [found[0], Array.from(text.slice(0, found.index)).length + 1]);
  if (!pieces.length) throw wrong(null, `write a tree, for instance ${EXAMPLE}`);
  if (pieces[0][0] !== "(") throw wrong(pieces[0][1], `a tree begins with “(”, as in ${EXAMPLE}`);
  const opened = [];
  let found = null;
  for (let at = 0; at < pieces.length; at += 1) {
    const [piece, column] = pieces[at];
    if (found) throw wrong(column, `the tree is complete before “${piece}”; remove it`);
    if (piece === "(") {
      at += 1;
      const label = pieces[at]?.[0] ?? "";
      if (["", "(", ")"].includes(label)) throw wrong(column, "write the label of the phrase after “(”");
      opened.push({ label, column, children: [] });
    } else if (piece === ")") {
      const { label, column: start, children } = opened.pop();
      if (!children.length) throw wrong(start, `the phrase “${label}” has no words; a word has no brackets`);
      const one = { label, children };
      if (opened.length) opened[opened.length - 1].children.push(one);
      else found = one;
    } else {
      opened[opened.length - 1].children.push({ label: piece, children: [] });
    }
  }
  if (!found) {
    const { label, column } = opened[opened.length - 1];
    throw wrong(column, `the bracket of “${label}” is never closed`);
  }
  const counts = sizes(found);
  for (const [what, count] of Object.entries(counts)) {
    if (count > MOST) throw wrong(null, `at most ${MOST} ${what} can be drawn, this tree has ${count}`);
  }
  return found;
}

function wrong(column, message) {
  return Object.assign(new Error(column === null ? message : `column ${column}: ${message}`), { column });
}

/** How many words and phrases a tree has. */
export function sizes(tree) {
  const counts = { words: 0, phrases: 0 };
  const waiting = [tree];
  while (waiting.length) {
    const one = waiting.pop();
    counts[one.children.length ? "phrases" : "words"] += 1;
    waiting.push(...one.children);
  }
  return counts;
}

export function write({ label, children }) {
  return children.length ? `(${[label, ...children.map(write)].join(" ")})` : label;
}

/** A label that is typed, as one word: brackets as in the Penn Treebank, spaces as a sign. */
export function oneWord(label) {
  return label.trim().replace(/\(/g, "-LRB-").replace(/\)/g, "-RRB-").replace(/[\s\x1c-\x1f\x85]/gu, "␣");
}
