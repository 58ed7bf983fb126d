// A pattern as a list of parts, for those who would rather choose than write.
// {parts: [{join, not, name, args, blocks}], causal} ↔ the expression's text.
import { written } from "./patterns.js";
import { parsed, Unreadable } from "./reading.js";

/** The lists of parts that can be made of these primitives: {choices, fresh, partsOf, partsText}. */
export function lists(primitives) {
  const choices = new Map(primitives.filter(offered).map(({ name, arguments: all }) => [name, all.filter(({ kind }) => kind !== "pattern")]));

  /** A part as it is added: grids fit the sequence. */
  function fresh(name, n, join = "|") {
    const args = choices.get(name).map(({ kind, start, default: value }) => (kind === "grid" ? squarest(n) : start ?? value));
    return { join, not: false, name, args, blocks: 1 };
  }

  // ---- to text

  function partText({ not, name, args, blocks }) {
    const told = choices.get(name).map((known, at) => `${known.named ? `${known.name}=` : ""}${written(known.kind, args[at])}`);
    return `${not ? "~" : ""}${name}(${told.join(", ")})${blocks > 1 ? `.blocks(${blocks})` : ""}`;
  }

  function partsText({ parts, causal }) {
    let text = partText(parts[0]);
    let lowest = null; // the join that is outside of any bracket
    for (const part of parts.slice(1)) {
      if (part.join === "&" && lowest === "|") text = `(${text})`;
      text = `${text} ${part.join} ${partText(part)}`;
      lowest = part.join;
    }
    if (!causal) return text;
    return parts.length === 1 && !parts[0].not ? `${text}.causal()` : `(${text}).causal()`;
  }

  // ---- from text

  /** The list of parts that an expression is, or null where it is none. */
  function partsOf(text) {
    let tree;
    try {
      tree = parsed(text);
    } catch (error) {
      if (error instanceof Unreadable) return null;
      throw error;
    }
    const bare = past(tree);
    const parts = [];
    return list(bare ?? tree, parts) ? { parts, causal: bare !== null } : null;
  }

  function list(tree, parts) {
    if (tree.op !== "&" && tree.op !== "|") return add(tree, parts, "|");
    if (!list(tree.left, parts)) return false;
    if (tree.right.op === tree.op) return flat(tree.right, tree.op, parts);
    return add(tree.right, parts, tree.op);
  }

  /** a | (b | c) is a | b | c. */
  function flat(tree, op, parts) {
    if (tree.op === op && tree.right) return flat(tree.left, op, parts) && flat(tree.right, op, parts);
    return add(tree, parts, op);
  }

  function add(tree, parts, join) {
    const not = tree.op === "~";
    let call = not ? tree.of : tree;
    let blocks = 1;
    if (call.method === "blocks" && call.args.length === 1 && Number.isInteger(call.args[0])) {
      [blocks] = call.args;
      call = call.of;
    }
    const known = choices.get(call.call);
    if (!known || blocks < 1 || call.args.length > known.length) return false;
    if (Object.keys(call.named).some((name) => !known.some((one) => one.name === name))) return false;
    const args = known.map(({ name, default: value }, at) => call.args[at] ?? call.named[name] ?? value);
    if (args.some((value, at) => !fits(known[at].kind, value))) return false;
    parts.push({ join, not, name: call.call, args, blocks });
    return true;
  }

  return { choices, fresh, partsOf, partsText };
}

/** A menu needs something to begin with; arguments that are patterns keep their default. */
const offered = ({ arguments: all }) => all.every(({ kind, start, default: value }) => kind === "grid" || (start ?? value) !== undefined);

export function squarest(n) {
  let height = Math.floor(Math.sqrt(n));
  while (n % height) height -= 1;
  return [height, n / height];
}

/** What is made causal, or null where nothing is. */
function past(tree) {
  if (tree.method === "causal" && !tree.args.length) return tree.of;
  const causal = tree.op === "&" && tree.right.call === "causal";
  return causal ? tree.left : null;
}

function fits(kind, value) {
  if (kind === "whole") return Number.isInteger(value);
  if (kind === "side") return value === "row" || value === "column";
  return Array.isArray(value) && value.every(Number.isInteger);
}

/** What is typed into a field of numbers, or a sentence. */
export function typed(kind, text, name) {
  if (kind === "whole") {
    if (!/^\s*-?\d+\s*$/.test(text)) throw new Unreadable(`${name} should be a whole number, got “${text}”`);
    return Number(text);
  }
  const pieces = text.split(/[\s,×x]+/).filter(Boolean);
  const wrong = pieces.find((piece) => !/^-?\d+$/.test(piece));
  if (wrong !== undefined) throw new Unreadable(`${name} should be whole numbers with commas between, got “${wrong}”`);
  return pieces.map(Number);
}
