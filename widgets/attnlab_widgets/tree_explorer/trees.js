// A tree with numbers: its leaves and nodes in order, and the tables of hierarchical accumulation.
// A tree is {label, value, weight (of a leaf), children}; keys are the n leaves, then the m nodes.

/** The leaves from left to right, the nodes each before its children, and what lies above whom. */
export function numbered(root) {
  const [leaves, nodes, ofLeaves, ofNodes] = [[], [], [], []];
  const waiting = [[root, -1]];
  while (waiting.length) {
    const [one, above] = waiting.pop();
    if (!one.children.length) {
      leaves.push(one);
      ofLeaves.push(above);
      continue;
    }
    for (const child of [...one.children].reverse()) waiting.push([child, nodes.length]);
    nodes.push(one);
    ofNodes.push(above);
  }
  const parents = [...ofLeaves, ...ofNodes];
  return { root, leaves, nodes, parents, keys: [...leaves, ...nodes], n: leaves.length, m: nodes.length };
}

/** The nodes above a key, from its parent to the root. */
export function above({ parents, n }, key) {
  const found = [];
  for (let node = parents[key]; node >= 0; node = parents[n + node]) found.push(node);
  return found;
}

/** The nodes from `node` down to `leaf`; null where the leaf is not below the node. */
export function branch(tree, node, leaf) {
  const up = above(tree, leaf);
  const at = up.indexOf(node);
  return at < 0 ? null : up.slice(0, at + 1).reverse();
}

/** The leaves below a node. */
export function below(tree, node) {
  return tree.leaves.map((_, j) => j).filter((j) => branch(tree, node, j));
}

/** S, Ŝ, the terms of each sum and v̄; null in a cell outside the subtree. Equations 5 to 7. */
export function accumulated(tree) {
  const { leaves, nodes } = tree;
  const lines = nodes.map((_, i) => leaves.map((_, j) => branch(tree, i, j)));
  const s = lines.map((line, i) => line.map((found) => (found ? nodes[i].value : null)));
  const hat = lines.map((line) => line.map((found, j) => found && mean([leaves[j].value, ...found.map((t) => nodes[t].value)])));
  const counts = lines.map((line) => line.filter(Boolean).length);
  const terms = hat.map((line, i) => line.map((value, j) => (value === null ? null : (leaves[j].weight * value) / counts[i])));
  const gathered = terms.map((line) => line.reduce((sum, term) => sum + (term ?? 0), 0));
  return { lines, s: [leaves.map(({ value }) => value), ...s], hat, counts, terms, gathered };
}

/** What the words' own values add to what a node gathers; the phrases' values add the rest. */
export function fromWords({ leaves }, { lines, counts }, node) {
  return lines[node].reduce((sum, line, j) => sum + (line ? (leaves[j].weight * leaves[j].value) / (line.length + 1) / counts[node] : 0), 0);
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Which keys (columns) each query may attend to: leaves to leaves, a node to its subtree. Equation 11. */
export function mask(tree) {
  const { n, m } = tree;
  const up = tree.keys.map((_, key) => new Set(above(tree, key)));
  return tree.keys.map((_, query) => tree.keys.map((_, key) => (query < n ? key < n : key === query || up[key].has(query - n))));
}

/** The share of each leaf in what a node gathers; null where terms of both signs cancel. */
export function shares(terms) {
  const found = terms.filter((term) => term !== null);
  const total = found.reduce((sum, term) => sum + term, 0);
  if (Math.abs(total) < 1e-12 || (found.some((t) => t > 0) && found.some((t) => t < 0))) return null;
  return terms.map((term) => (term === null ? null : term / total));
}

/** Labels that recur have a number: the₁ and the₂. */
export function names({ keys }) {
  const counts = new Map();
  for (const { label } of keys) counts.set(label, (counts.get(label) ?? 0) + 1);
  const seen = new Map();
  return keys.map(({ label }) => {
    seen.set(label, (seen.get(label) ?? 0) + 1);
    return counts.get(label) > 1 ? label + low(seen.get(label)) : label;
  });
}

const low = (number) => String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);

/** The same for two trees whose leaves and nodes have the same parents. */
export const shape = ({ n, parents }) => `${n}: ${parents.join(" ")}`;

/** Numbers in which a leaf and a node are told apart: 1, 2, 3 … and 10, 20, 30 … */
export function defaults(n, m) {
  return {
    leaf_values: Array.from({ length: n }, (_, j) => j + 1),
    node_values: Array.from({ length: m }, (_, i) => 10 * (i + 1)),
    weights: Array(n).fill(1),
  };
}

/** A tree as it was read, with its numbers; lists that do not fit it begin anew. */
export function valued(bare, lists = {}) {
  const { n, m } = numbered(bare);
  const begun = defaults(n, m);
  const [leaf, node, weight] = Object.keys(begun).map((name) => (lists[name]?.length === begun[name].length ? lists[name] : begun[name]));
  let [j, i] = [0, 0];
  function copy({ label, children }) {
    if (!children.length) {
      j += 1;
      return { label, value: leaf[j - 1], weight: weight[j - 1], children: [] };
    }
    i += 1;
    const value = node[i - 1];
    return { label, value, children: children.map(copy) };
  }
  return copy(bare);
}

/** The numbers of a tree, as lists. */
export function listed({ leaves, nodes }) {
  return {
    leaf_values: leaves.map(({ value }) => value),
    node_values: nodes.map(({ value }) => value),
    weights: leaves.map(({ weight }) => weight),
  };
}

// ---- edits: each gives another tree, and never changes the one it is given

/** The tree in which `old` has become the nodes of a list: none, one or several. */
function replaced(tree, old, others) {
  if (tree === old) return others;
  if (!tree.children.length) return [tree];
  const children = tree.children.flatMap((child) => replaced(child, old, others));
  if (!children.length) return []; // a phrase without words goes, too
  return children.every((child, at) => child === tree.children[at]) && children.length === tree.children.length ? [tree] : [{ ...tree, children }];
}

const one = ([tree]) => tree ?? null;

export const changed = (root, old, change) => one(replaced(root, old, [{ ...old, ...change }]));

/** A new word: the last one of a phrase, or after a word. */
export function withWord(root, old, word) {
  if (old.children.length) return one(replaced(root, old, [{ ...old, children: [...old.children, word] }]));
  return one(replaced(root, old, [old, word]));
}

/** A new phrase around some neighbours under one parent, or around the root. */
export function wrapped(root, neighbours, phrase) {
  const [first, ...others] = neighbours;
  const without = others.reduce((tree, old) => one(replaced(tree, old, [])), root);
  return one(replaced(without, first, [{ ...phrase, children: neighbours }]));
}

/** The phrase goes and its children rise; null for a root with several children or a word alone. */
export function unwrapped(root, old) {
  const found = replaced(root, old, old.children);
  return old.children.length && found.length === 1 && found[0].children.length ? found[0] : null;
}

/** Without a node and all below it, and without phrases that it leaves empty; null for the root. */
export const without = (root, old) => one(replaced(root, old, []));
