// A pattern as a list of parts, for those who would rather choose than write.
// {parts: [{join, not, name, args, blocks}], causal} ↔ the expression's text.
import { parsed, Unreadable } from "./reading.js";

/** name → its numbers: [argument, kind, default]. The first of them is what a new part gets. */
export const CHOICES = {
  local: [["radius", "whole", 2, 0]],
  dilated: [["radius", "whole", 2, 0], ["step", "whole", 3, 1]],
  strided: [["stride", "whole", 4, 1]],
  fixed: [["stride", "whole", 8, 1], ["columns", "whole", 1, 1]],
  summaries: [["stride", "whole", 8, 1], ["columns", "whole", 1, 1], ["offset", "whole", 0, 0]],
  global_: [["positions", "list", [0]]],
  hub: [["position", "whole", 0, null]],
  places: [["positions", "list", [0]], ["of", "side", "column"]],
  edges: [["first", "whole", 1, 0], ["last", "whole", 0, 0], ["of", "side", "column"]],
  prefix: [["length", "whole", 4, 1]],
  random: [["keys", "whole", 3, 0], ["seed", "whole", 0, null]],
  block_diagonal: [["size", "whole", 8, 1]],
  axial: [["shape", "shape", null], ["axis", "whole", 0, null]],
  local_2d: [["shape", "shape", null], ["radius", "whole", 1, 0]],
  causal: [],
  full: [],
};

/** A part as it is added: grids fit the sequence. */
export function fresh(name, n, join = "|") {
  const args = CHOICES[name].map(([, kind, value]) => (kind === "shape" ? squarest(n) : value));
  return { join, not: false, name, args, blocks: 1 };
}

export function squarest(n) {
  let height = Math.floor(Math.sqrt(n));
  while (n % height) height -= 1;
  return [height, n / height];
}

// ---- to text

function argument(kind, value) {
  if (kind === "list") return `[${value.join(", ")}]`;
  if (kind === "shape") return value.length === 1 ? `(${value[0]},)` : `(${value.join(", ")})`;
  return kind === "side" ? `"${value}"` : String(value);
}

const NAMED = { places: "of", edges: "of", random: "seed" };

function partText({ not, name, args, blocks }) {
  const said = args.map((value, at) => {
    const [key, kind] = CHOICES[name][at];
    return `${NAMED[name] === key ? `${key}=` : ""}${argument(kind, value)}`;
  });
  return `${not ? "~" : ""}${name}(${said.join(", ")})${blocks > 1 ? `.blocks(${blocks})` : ""}`;
}

export function partsText({ parts, causal }) {
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
export function partsOf(text) {
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

/** What is made causal, or null where nothing is. */
function past(tree) {
  if (tree.method === "causal" && !tree.args.length) return tree.of;
  const causal = tree.op === "&" && tree.right.call === "causal";
  return causal ? tree.left : null;
}

function list(tree, parts) {
  if (tree.op !== "&" && tree.op !== "|") return add(tree, parts, "|");
  if (!list(tree.left, parts)) return false;
  if (tree.right.op === tree.op && (tree.op === "&" || tree.op === "|")) {
    return flat(tree.right, tree.op, parts);
  }
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
  const known = CHOICES[call.call];
  if (!known || blocks < 1 || call.args.length > known.length) return false;
  if (Object.keys(call.named).some((name) => !known.some(([key]) => key === name))) return false;
  const args = known.map(([key, , value], at) => call.args[at] ?? call.named[key] ?? defaulted(call.call, key, value));
  if (args.some((value, at) => !fits(known[at][1], value))) return false;
  parts.push({ join, not, name: call.call, args, blocks });
  return true;
}

const DEFAULTS = { "fixed.columns": 1, "summaries.columns": 1, "summaries.offset": 0, "edges.last": 0, "random.seed": 0, "hub.position": 0 };
const defaulted = (name, key) => DEFAULTS[`${name}.${key}`];

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
