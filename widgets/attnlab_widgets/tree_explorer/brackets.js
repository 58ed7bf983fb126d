// Bracketed text as a tree {label, children}, and back: attnlab.structures.brackets, with its sentences.

export const MOST = 24;
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"; // Python's
const TOKEN = new RegExp(`[()]|[^${SPACE}()]+`, "gu");

/** The one tree in the text, or an Error whose `column` (from 1) says where the text is wrong. */
export function read(text) {
  const tokens = [...text.matchAll(TOKEN)].map((found) => ({ token: found[0], column: Array.from(text.slice(0, found.index)).length + 1 }));
  if (tokens.length === 1 && !"()".includes(tokens[0].token)) throw wrong(null, `a tree needs at least one phrase: write (NP ${tokens[0].token})`);
  let found = null;
  for (const { column, tree } of trees(tokens)) {
    if (found) throw wrong(column, "a second tree begins here; read_all reads several trees");
    found = tree;
  }
  if (!found) throw wrong(null, "there is no tree in the text; write one such as (NP the dog)");
  const tooMany = excess(found);
  if (tooMany) throw wrong(null, tooMany);
  return found;
}

function* trees(tokens) {
  const opened = []; // brackets that are not closed, and their contents: labels and trees
  for (const { token, column } of tokens) {
    if (token === "(") {
      if (opened.length > 1 && !opened[opened.length - 1].content.length) throw wrong(opened[opened.length - 1].column, "the label is missing after this bracket: write (NP …)");
      opened.push({ column, content: [] });
    } else if (!opened.length && token === ")") {
      throw wrong(column, "this bracket closes none; remove it, or open one before it");
    } else if (!opened.length) {
      throw wrong(column, `${quoted(token)} stands outside all brackets; put it into a tree`);
    } else if (token !== ")") {
      opened[opened.length - 1].content.push(unescaped(token));
    } else {
      const { column: start, content } = opened.pop();
      const tree = closed(start, content);
      if (opened.length) opened[opened.length - 1].content.push(tree);
      else yield { column: start, tree };
    }
  }
  if (opened.length) {
    const count = opened.length;
    const what = count === 1 ? "1 bracket is" : `${count} brackets are`;
    const last = count === 1 ? "it was opened" : "the last of them was opened";
    throw wrong(opened[count - 1].column, `${what} never closed, and ${last} here; add '${")".repeat(Math.min(count, 9))}'`);
  }
}

function closed(column, [label, ...children]) {
  if (label === undefined) throw wrong(column, "this bracket is empty; write a label and children: (NP the dog)");
  if (typeof label !== "string") {
    if (children.length) throw wrong(column, "the label is missing after this bracket: write (S …)");
    return label; // the bracket that the treebank puts around a sentence
  }
  if (!children.length) throw wrong(column, `the node ${escaped(label)} has no children; write a leaf without brackets`);
  return { label, children: children.map((child) => (typeof child === "string" ? { label: child, children: [] } : child)) };
}

function wrong(column, message) {
  return Object.assign(new Error(column === null ? message : `column ${column}: ${message}`), { column });
}

const quoted = (token) => (token.includes("'") && !token.includes('"') ? `"${token}"` : `'${token}'`);
const unescaped = (token) => token.replace(/-LRB-/g, "(").replace(/-RRB-/g, ")");
const escaped = (label) => label.replace(/\(/g, "-LRB-").replace(/\)/g, "-RRB-");

/** Why a tree cannot be drawn, or "". */
export function excess(tree) {
  const counts = { words: 0, phrases: 0 };
  const waiting = [tree];
  while (waiting.length) {
    const one = waiting.pop();
    counts[one.children.length ? "phrases" : "words"] += 1;
    waiting.push(...one.children);
  }
  const [what, count] = Object.entries(counts).find((pair) => pair[1] > MOST) ?? [];
  return what ? `at most ${MOST} ${what} can be drawn, this tree has ${count}` : "";
}

export function write({ label, children }) {
  return children.length ? `(${[escaped(label), ...children.map(write)].join(" ")})` : escaped(label);
}

/** A label that is typed, without the white space that would end it. */
export function oneWord(label) {
  return unescaped(label.trim()).replace(new RegExp(`[${SPACE}]`, "gu"), "␣");
}
