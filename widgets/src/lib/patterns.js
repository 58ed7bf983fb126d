// Who may see whom, on the page: the algebra of attnlab.core.patterns once more, for small n.
// Every kind mirrors the class of its name there: what it allows, its words, its code, its remarks.
// test/patterns.json, written by Python, proves that both agree.
import { drawn, drawnAmong } from "./chance.js";
import { parsed, Unreadable } from "./reading.js";

const whole = (name, value, least) => {
  if (!Number.isInteger(value)) throw new Unreadable(`${name} should be a whole number, got ${shown(value)}`);
  if (value < least) throw new Unreadable(`${name} should be at least ${least}, got ${value}`);
  return value;
};

function shown(value) {
  if (Array.isArray(value)) return `[${value.map(shown).join(", ")}]`;
  if (typeof value === "string") return `'${value}'`;
  return value?.kind ? code(value) : String(value);
}

const isPattern = (value) => Boolean(value?.kind);
const tuple = (shape) => (shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`);
const product = (shape) => shape.reduce((a, b) => a * b, 1);
const mod = (a, b) => ((a % b) + b) % b;

function grid(shape) {
  if (!Array.isArray(shape)) throw new Unreadable(`the grid's shape should be a list such as (4, 8), got ${shown(shape)}`);
  if (!shape.length || shape.some((size) => !Number.isInteger(size) || size < 1)) {
    throw new Unreadable(`the grid's shape should be positive whole numbers, got ${tuple(shape)}`);
  }
  return shape;
}

function fill(shape, m) {
  if (product(shape) !== m) {
    throw new Unreadable(`a grid of ${shape.join(" × ")} has ${product(shape)} positions, but the sequence has ${m}`);
  }
}

const some = (end, size) => (size === 1 ? end : `${end} ${size}`);

function ordinal(number) {
  if (number === 1) return "position";
  const tens = number % 100;
  const suffix = tens >= 11 && tens <= 13 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[number % 10] ?? "th";
  return `${number}${suffix} position`;
}

// ---- the kinds

const KINDS = {
  full: {
    words: () => "every position sees every position",
    code: () => "full()",
    allows: () => () => true,
  },
  causal: {
    words: () => "each position sees itself and those before it",
    code: () => "causal()",
    allows: () => (i, j) => j <= i,
  },
  local: {
    words: ({ radius }) => (radius === 0 ? "each position sees itself" : `each position sees itself and ${radius} on either side`),
    code: ({ radius }) => `local(${radius})`,
    allows: ({ radius }) => (i, j) => Math.abs(i - j) <= radius,
  },
  strided: {
    words: ({ stride }) => `each position sees every ${ordinal(stride)}, counted from itself`,
    code: ({ stride }) => `strided(${stride})`,
    allows: ({ stride }) => (i, j) => (i - j) % stride === 0,
    remark: ({ stride }, n) => stride > n && `a stride of ${stride} is longer than the sequence of ${n}: each position sees itself alone`,
  },
  summaries: {
    words({ stride, columns, offset }) {
      const end = stride - offset;
      if (offset) return `each position sees positions ${end - columns} to ${end - 1} of every block of ${stride}`;
      return `each position sees the last ${columns === 1 ? "position" : `${columns} positions`} of every block of ${stride}`;
    },
    code: ({ stride, columns, offset }) => `summaries(${stride}, ${columns}${offset ? `, ${offset}` : ""})`,
    allows({ stride, columns, offset }) {
      const end = stride - offset;
      return (i, j) => j % stride >= end - columns && j % stride < end;
    },
    remark: ({ stride }, n) => stride > n && `a stride of ${stride} is longer than the sequence of ${n}: its only block is not complete`,
  },
  edges: {
    words({ first, last, of }) {
      const where = [["first", first], ["last", last]].filter(([, size]) => size).map((end) => some(...end)).join(" and the ");
      return of === "row" ? `the ${where} see${first + last > 1 ? "" : "s"} every position` : `all see the ${where}`;
    },
    code: ({ first, last, of }) => `edges(${first}, ${last}, of="${of}")`,
    sized({ first, last, of }, m) {
      if (first + last >= m) return FULL;
      return { kind: "places", positions: Array.from({ length: m }, (_, i) => i).filter((i) => i < first || i >= m - last), of };
    },
  },
  places: {
    words({ positions, of }) {
      const where = positions.join(", ");
      return of === "row" ? `${where} see${positions.length > 1 ? "" : "s"} every position` : `every position sees ${where}`;
    },
    code: ({ positions, of }) => `places([${positions.join(", ")}], of="${of}")`,
    allows({ positions, of }) {
      const chosen = new Set(positions);
      return of === "row" ? (i) => chosen.has(i) : (i, j) => chosen.has(j);
    },
    sized(pattern, m) {
      const outside = pattern.positions.find((p) => p < -m || p >= m);
      if (outside !== undefined) throw new Unreadable(`position ${outside} is outside of a sequence of ${m}: 0 … ${m - 1}`);
      return { ...pattern, positions: pattern.positions.map((p) => mod(p, m)) };
    },
  },
  before: {
    words: ({ length }) => `each position sees the ${some("first", length)}`,
    code: ({ length }) => `prefix(${length})`,
    allows: ({ length }) => (i, j) => j < length,
    remark: ({ length }, n) => length > n && `a prefix of ${length} is longer than the sequence of ${n}: everybody sees everything`,
  },
  local_2d: {
    words: ({ shape, radius }) => `each pixel of ${shape.join(" × ")} sees the square of side ${2 * radius + 1} around it`,
    code: ({ shape, radius }) => `local_2d(${tuple(shape)}, ${radius})`,
    allows({ shape: [, width], radius }) {
      return (i, j) =>
        Math.abs(Math.floor(i / width) - Math.floor(j / width)) <= radius && Math.abs((i % width) - (j % width)) <= radius;
    },
    refuse: ({ shape }, m) => fill(shape, m),
  },
  axial: {
    words: ({ shape, axis }) => `each cell of ${shape.join(" × ")} sees those that differ from it along axis ${axis} alone`,
    code: ({ shape, axis }) => `axial(${tuple(shape)}, ${axis})`,
    allows({ shape, axis }) {
      const at = mod(axis, shape.length);
      const inner = product(shape.slice(at + 1));
      const line = inner * shape[at];
      return (i, j) => (i - j) % inner === 0 && (at === 0 || Math.floor(i / line) === Math.floor(j / line));
    },
    refuse: ({ shape }, m) => fill(shape, m),
  },
  random: {
    words: ({ keys, among }) =>
      `each position sees ${keys} positions drawn at random${among.kind === "full" ? "" : ` of these: ${words(among)}`}`,
    code: ({ keys, seed, among }) => `random(${keys}, seed=${seed}${among.kind === "full" ? "" : `, among=${code(among)}`})`,
    sized(pattern, m) {
      const keys = Math.min(pattern.keys, m);
      const free = pattern.among.kind === "full";
      const rows = free ? drawn(keys, pattern.seed, m) : drawnAmong(keys, pattern.seed, m, allows(sized(pattern.among, m)));
      return { ...pattern, table: rows.map((row) => new Set(row)) };
    },
    allows: ({ table }) => (i, j) => table[i].has(j),
    refuse: ({ among }, m) => refuseMisfit(among, m),
    remark: ({ keys }, n) => keys > n && `${keys} random keys are more than the ${n} positions: everybody sees everything`,
  },
  blocks: {
    words: ({ size, of }) => `between blocks of ${size} positions: ${words(of)}`,
    code: ({ size, of }) => `${method(of)}.blocks(${size})`,
    sized: (pattern, m) => ({ ...pattern, of: sized(pattern.of, Math.ceil(m / pattern.size)) }),
    allows({ size, of }) {
      const seen = allows(of);
      return (i, j) => seen(Math.floor(i / size), Math.floor(j / size));
    },
    refuse: ({ size, of }, m) => refuseMisfit(of, Math.ceil(m / size)),
    remark: ({ size }, n) => size > n && `a block of ${size} is longer than the sequence of ${n}: there is only one`,
  },
  shifted: {
    words: ({ start, of }) => `from position ${start} on, counted from there: ${words(of)}`,
    code: ({ start, of }) => `${method(of)}.shifted(${start})`,
    sized: (pattern, m) => (m <= pattern.start ? NOBODY : { ...pattern, of: sized(pattern.of, m - pattern.start) }),
    allows({ start, of }) {
      const seen = allows(of);
      return (i, j) => i >= start && j >= start && seen(i - start, j - start);
    },
    refuse: ({ start, of }, m) => refuseMisfit(of, m - start),
  },
  and: {
    words: ({ left, right }) => `(${words(left)}) and (${words(right)})`,
    code: (pattern) => `${bracketed(pattern.left, "and")} & ${bracketed(pattern.right)}`,
    allows: (pattern) => joined(pattern, (left, right) => (i, j) => left(i, j) && right(i, j)),
  },
  or: {
    words: ({ left, right }) => `(${words(left)}) or (${words(right)})`,
    code: (pattern) => `${bracketed(pattern.left, "or")} | ${bracketed(pattern.right)}`,
    allows: (pattern) => joined(pattern, (left, right) => (i, j) => left(i, j) || right(i, j)),
  },
  not: {
    words: ({ of }) => `not (${words(of)})`,
    code: ({ of }) => `~${bracketed(of)}`,
    sized: (pattern, m) => ({ ...pattern, of: sized(pattern.of, m) }),
    allows({ of }) {
      const seen = allows(of);
      return (i, j) => !seen(i, j);
    },
  },
};

const joined = ({ left, right }, join) => join(allows(left), allows(right));
const bracketed = (pattern, inside = null) => {
  const plain = !(pattern.kind === "and" || pattern.kind === "or") || pattern.kind === inside;
  return plain ? code(pattern) : `(${code(pattern)})`;
};

// A method binds more tightly than any operator.
const method = (pattern) => (pattern.kind === "not" ? `(${code(pattern)})` : bracketed(pattern));

export const words = (pattern) => KINDS[pattern.kind].words(pattern);
export const code = (pattern) => KINDS[pattern.kind].code(pattern);
const allows = (pattern) => KINDS[pattern.kind].allows(pattern);

function sized(pattern, m) {
  if (pattern.left) return { ...pattern, left: sized(pattern.left, m), right: sized(pattern.right, m) };
  return KINDS[pattern.kind].sized?.(pattern, m) ?? pattern;
}

function refuseMisfit(pattern, m) {
  if (pattern.left) [pattern.left, pattern.right].forEach((part) => refuseMisfit(part, m));
  else if (pattern.kind === "not") refuseMisfit(pattern.of, m);
  else KINDS[pattern.kind].refuse?.(pattern, m);
}

/** The mask of n queries and n keys, row by row: 1 = may see. */
export function dense(pattern, n) {
  refuseMisfit(pattern, n);
  const may = allows(sized(pattern, n));
  const mask = new Uint8Array(n * n);
  for (let i = 0; i < n; i += 1) for (let j = 0; j < n; j += 1) mask[i * n + j] = may(i, j) ? 1 : 0;
  return mask;
}

/** What is legal but worth a word: numbers that are larger than the sequence. */
export function remarks(pattern, n) {
  const found = [];
  const walk = (part, m) => {
    const said = KINDS[part.kind].remark?.(part, m);
    if (said && !found.includes(said)) found.push(said);
    if (part.left) [part.left, part.right].forEach((one) => walk(one, m));
    if (part.kind === "not") walk(part.of, m);
    if (part.kind === "blocks") walk(part.of, Math.ceil(m / part.size));
    if (part.kind === "shifted" && m > part.start) walk(part.of, m - part.start);
    if (part.kind === "random") walk(part.among, m);
  };
  walk(pattern, n);
  return found;
}

// ---- the primitives' names, as one calls them

const FULL = { kind: "full" };
const NOBODY = { kind: "not", of: FULL };
const CAUSAL = { kind: "causal" };
const local = (radius) => ({ kind: "local", radius: whole("radius", radius, 0) });
const strided = (stride) => ({ kind: "strided", stride: whole("stride", stride, 1) });
// Several are joined from the left, as their code is read.
function or(left, right) {
  if (left.kind === "full" || right.kind === "full") return FULL;
  return right.kind === "or" ? or(or(left, right.left), right.right) : { kind: "or", left, right };
}

function and(left, right) {
  if (right.kind === "full") return left;
  if (right.kind === "and") return and(and(left, right.left), right.right);
  return left.kind === "full" ? right : { kind: "and", left, right };
}

function inBlocks(size, of) {
  whole("the size of a block", size, 1);
  return { kind: "blocks", size, of };
}

function summaries(stride, columns, offset = 0) {
  whole("stride", stride, 1);
  whole("columns", columns, 1);
  whole("offset", offset, 0);
  if (columns + offset > stride) {
    const before = offset ? `, ${offset} before the end,` : "";
    throw new Unreadable(`${columns} summary columns${before} do not fit into blocks of ${stride} positions`);
  }
  return { kind: "summaries", stride, columns, offset };
}

function places(positions, of) {
  if (of !== "row" && of !== "column") throw new Unreadable(`places are of a "row" or of a "column", got ${shown(of)}`);
  if (!Array.isArray(positions)) throw new Unreadable(`positions should be a list such as [0, 5], got ${shown(positions)}`);
  positions.forEach((position) => whole("a position", position, -Infinity));
  return positions.length ? { kind: "places", positions: [...new Set(positions)], of } : NOBODY;
}

function edges(first, last, of) {
  if (of !== "row" && of !== "column") throw new Unreadable(`edges are of a "row" or of a "column", got ${shown(of)}`);
  whole("first", first, 0);
  whole("last", last, 0);
  return first + last ? { kind: "edges", first, last, of } : NOBODY;
}

function shifted(of, start) {
  whole("the position from which a shifted pattern starts", start, 0);
  return start ? { kind: "shifted", start, of } : of;
}

const global_ = (positions) => or(places(positions, "column"), places(positions, "row"));

/** name → [parameters with their defaults, what it makes]. */
const PRIMITIVES = {
  axial: [["shape", "axis"], (shape, axis) => {
    if (!Number.isInteger(axis) || axis < -grid(shape).length || axis >= shape.length) {
      throw new Unreadable(`a grid of shape ${tuple(grid(shape))} has no axis ${shown(axis)}`);
    }
    return { kind: "axial", shape, axis };
  }],
  block_diagonal: [["size"], (size) => inBlocks(size, local(0))],
  blocks: [["size", ["of", null]], (size, of) => {
    if (of !== null && !isPattern(of)) throw new Unreadable(`${shown(of)} is not a pattern`);
    return inBlocks(size, of ?? local(0));
  }],
  causal: [[], () => CAUSAL],
  dilated: [["radius", "step"], (radius, step) => and(local(whole("radius", radius, 0) * whole("step", step, 1)), strided(step))],
  edges: [["first", ["last", 0], "of"], edges],
  fixed: [["stride", ["columns", 1]], (stride, columns) => or(inBlocks(stride, local(0)), summaries(stride, columns))],
  full: [[], () => FULL],
  global_: [["positions"], global_],
  hub: [[["position", 0]], (position) => global_([position])],
  local: [["radius"], local],
  local_2d: [["shape", "radius"], (shape, radius) => {
    if (grid(shape).length !== 2) throw new Unreadable(`the grid should have 2 dimensions, got the shape ${tuple(shape)}`);
    return { kind: "local_2d", shape, radius: whole("radius", radius, 0) };
  }],
  per_head: [null, () => {
    throw new Unreadable("heads differ in this pattern, and the studio shows one mask: write the pattern of one head");
  }],
  places: [["positions", "of"], places],
  prefix: [["length"], (length) => ({ kind: "before", length: whole("length", length, 1) })],
  random: [["keys", ["seed", 0], ["among", FULL]], (keys, seed, among) => {
    if (!isPattern(among)) throw new Unreadable(`${shown(among)} is not a pattern`);
    return { kind: "random", keys: whole("keys", keys, 0), seed: whole("seed", seed, -Infinity), among };
  }],
  strided: [["stride"], strided],
  summaries: [["stride", ["columns", 1], ["offset", 0]], summaries],
};
const METHODS = {
  causal: [[], (of) => and(of, CAUSAL)],
  blocks: [["size"], (of, size) => inBlocks(size, of)],
  shifted: [["start"], shifted],
};
const HELD = ["document", "listed", "padding", "held"];

function bound(name, parameters, { args, named }) {
  if (parameters === null) return [];
  if (args.length > parameters.length) {
    throw new Unreadable(`${name} takes ${parameters.length || "no"} argument${parameters.length === 1 ? "" : "s"}, got ${args.length}`);
  }
  const known = parameters.map((parameter) => [].concat(parameter)[0]);
  for (const key of Object.keys(named)) {
    if (!known.includes(key)) throw new Unreadable(`${name} has no argument “${key}”`);
    if (known.indexOf(key) < args.length) throw new Unreadable(`${name}: ${key} is given twice`);
  }
  return parameters.map((parameter, at) => {
    const key = known[at];
    if (at < args.length) return value(args[at]);
    if (Object.hasOwn(named, key)) return value(named[key]);
    if (Array.isArray(parameter)) return parameter[1];
    throw new Unreadable(`${name} needs its ${key}: ${name}(${known.join(", ")})`);
  });
}

function called(name, make, values) {
  try {
    return make(...values);
  } catch (error) {
    if (error instanceof Unreadable) error.message = error.message.startsWith(`${name}`) ? error.message : `${name}: ${error.message}`;
    throw error;
  }
}

const value = (tree) => {
  if (Array.isArray(tree)) return tree.map(value);
  return typeof tree === "object" ? built(tree) : tree;
};

/** The pattern that a tree describes. */
export function built(tree) {
  if (Array.isArray(tree) || typeof tree !== "object") throw new Unreadable(`${shown(value(tree))} is not a pattern`);
  if (tree.op === "&") return and(built(tree.left), built(tree.right));
  if (tree.op === "|") return or(built(tree.left), built(tree.right));
  if (tree.op === "~") return { kind: "not", of: built(tree.of) };
  if (tree.method) {
    if (!METHODS[tree.method]) throw new Unreadable(`a pattern has no method “${tree.method}”; it has causal(), blocks(size) and shifted(start)`);
    const [parameters, make] = METHODS[tree.method];
    const of = built(tree.of);
    return called(tree.method, (...values) => make(of, ...values), bound(tree.method, parameters, tree));
  }
  if (HELD.includes(tree.call)) {
    throw new Unreadable(`${tree.call}(…) holds numbers that do not fit into a line: hand the pattern itself to PatternStudio, in Python`);
  }
  if (!Object.hasOwn(PRIMITIVES, tree.call)) throw new Unreadable(`there is no pattern “${tree.call}”${nearest(tree.call)}`);
  const [parameters, make] = PRIMITIVES[tree.call];
  return called(tree.call, make, bound(tree.call, parameters, tree));
}

export const read = (text) => built(parsed(text));

function nearest(name) {
  const close = Object.keys(PRIMITIVES)
    .map((known) => [distance(name, known), known])
    .sort((a, b) => a[0] - b[0])[0];
  return close[0] <= 2 ? `; did you mean “${close[1]}”?` : `; there are ${Object.keys(PRIMITIVES).join(", ")}`;
}

function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length];
}
