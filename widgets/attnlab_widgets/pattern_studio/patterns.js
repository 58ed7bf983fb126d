// Who may attend to whom, on the page: the algebra of attnlab.core.patterns once more, for small n. The
// primitives come from Python as data (attnlab.core.patterns.primitives.for_page); what is here is
// how they compose. test/patterns.json, written by Python, proves that both agree.
import { drawn, drawnAmong } from "./chance.js";
import { cases, compiled, FUNCTIONS } from "./formulas.js";
import { parsed, Unreadable } from "./reading.js";

/** The patterns made of these primitives: {read, dense, code, description, remarks}. */
export function algebra(primitives) {
  const named = new Map();
  const make = (name, ...values) => named.get(name).make(values);

  // ---- patterns: a primitive with its values, or two joined, or one that asks another

  const isFull = (pattern) => pattern.primitive?.name === "full";

  // Several are joined from the left, as their code is read.
  function or(left, right) {
    if (isFull(left) || isFull(right)) return make("full");
    return right.kind === "or" ? or(or(left, right.left), right.right) : { kind: "or", left, right };
  }

  function and(left, right) {
    if (isFull(right)) return left;
    if (right.kind === "and") return and(and(left, right.left), right.right);
    return isFull(left) ? right : { kind: "and", left, right };
  }

  function blocks(of, size) {
    return { kind: "blocks", size: whole("the size of a block", size, 1), of };
  }

  function shifted(of, start) {
    whole("the position from which a shifted pattern starts", start, 0);
    return start ? { kind: "shifted", start, of } : of;
  }

  const METHODS = {
    causal: [[], (of) => and(of, make("causal"))],
    blocks: [[{ name: "size" }], blocks],
    shifted: [[{ name: "start" }], shifted],
  };

  const KINDS = {
    primitive: {
      description: ({ primitive, values }) => primitive.says(values),
      code: ({ primitive, values }) => primitive.code(values),
      allows: ({ primitive, values }, n) => {
        const names = { ...values, n };
        return (i, j) => primitive.rule(Object.assign(names, { i, j }));
      },
      misfit: ({ primitive, values }, n) => primitive.misfit({ ...values, n }),
      remark: ({ primitive, values }, n) => primitive.remark({ ...values, n }),
      parts: ({ values }, n) => Object.values(values).filter(isPattern).map((part) => [part, n]),
    },
    blocks: {
      description: ({ size, of }) => `between blocks of ${size} positions: ${description(of)}`,
      code: ({ size, of }) => `${method(of)}.blocks(${size})`,
      allows({ size, of }, n) {
        const seen = allows(of, Math.ceil(n / size));
        return (i, j) => seen(Math.floor(i / size), Math.floor(j / size));
      },
      remark: ({ size }, n) => size > n && `a block of ${size} is longer than the sequence of ${n}: there is only one`,
      parts: ({ size, of }, n) => [[of, Math.ceil(n / size)]],
    },
    shifted: {
      description: ({ start, of }) => `from position ${start} on, counted from there: ${description(of)}`,
      code: ({ start, of }) => `${method(of)}.shifted(${start})`,
      allows({ start, of }, n) {
        if (n <= start) return () => false;
        const seen = allows(of, n - start);
        return (i, j) => i >= start && j >= start && seen(i - start, j - start);
      },
      parts: ({ start, of }, n) => (n > start ? [[of, n - start]] : []),
    },
    and: {
      description: ({ left, right }) => `(${description(left)}) and (${description(right)})`,
      code: ({ left, right }) => `${bracketed(left, "and")} & ${bracketed(right)}`,
      allows: (pattern, n) => joined(pattern, n, (left, right) => (i, j) => left(i, j) && right(i, j)),
      parts: ({ left, right }, n) => [[left, n], [right, n]],
    },
    or: {
      description: ({ left, right }) => `(${description(left)}) or (${description(right)})`,
      code: ({ left, right }) => `${bracketed(left, "or")} | ${bracketed(right)}`,
      allows: (pattern, n) => joined(pattern, n, (left, right) => (i, j) => left(i, j) || right(i, j)),
      parts: ({ left, right }, n) => [[left, n], [right, n]],
    },
    not: {
      description: ({ of }) => `not (${description(of)})`,
      code: ({ of }) => `~${bracketed(of)}`,
      allows({ of }, n) {
        const seen = allows(of, n);
        return (i, j) => !seen(i, j);
      },
      parts: ({ of }, n) => [[of, n]],
    },
  };

  const joined = ({ left, right }, n, join) => join(allows(left, n), allows(right, n));
  const bracketed = (pattern, inside = null) => {
    const plain = !(pattern.kind === "and" || pattern.kind === "or") || pattern.kind === inside;
    return plain ? code(pattern) : `(${code(pattern)})`;
  };
  // A method binds more tightly than any operator.
  const method = (pattern) => (pattern.kind === "not" ? `(${code(pattern)})` : bracketed(pattern));

  const description = (pattern) => KINDS[pattern.kind].description(pattern);
  const code = (pattern) => KINDS[pattern.kind].code(pattern);
  const allows = (pattern, n) => KINDS[pattern.kind].allows(pattern, n);

  function refuseMisfit(pattern, n) {
    const reason = KINDS[pattern.kind].misfit?.(pattern, n);
    if (reason) throw new Unreadable(reason);
    for (const [part, m] of KINDS[pattern.kind].parts(pattern, n)) refuseMisfit(part, m);
  }

  /** The mask of n queries and n keys, row by row: 1 = may attend. */
  function dense(pattern, n) {
    refuseMisfit(pattern, n);
    const may = allows(pattern, n);
    const mask = new Uint8Array(n * n);
    for (let i = 0; i < n; i += 1) for (let j = 0; j < n; j += 1) mask[i * n + j] = may(i, j) ? 1 : 0;
    return mask;
  }

  /** What is legal but worth a word: numbers that are larger than the sequence. */
  function remarks(pattern, n) {
    const own = KINDS[pattern.kind].remark?.(pattern, n);
    const inner = KINDS[pattern.kind].parts(pattern, n).flatMap(([part, m]) => remarks(part, m));
    return [...new Set([...(own ? [own] : []), ...inner])];
  }

  // ---- the primitives, as Python describes them

  const draws = new Map();
  /** What query i draws; all draws of a pattern are made once. */
  function drawnBy(keys, seed, among, n, i) {
    const name = `${keys} ${seed} ${n} ${code(among)}`;
    if (!draws.has(name)) {
      const most = Math.min(keys, n);
      draws.set(name, isFull(among) ? drawn(most, seed, n) : drawnAmong(most, seed, n, allows(among, n)));
    }
    return draws.get(name)[i];
  }

  const asked = { ...FUNCTIONS, drawn: drawnBy, code: (pattern) => code(pattern), description: (pattern) => description(pattern) };
  const makers = { "|": or, "&": and, ".blocks": blocks };
  for (const { name } of primitives) makers[name] = (...values) => make(name, ...values);

  function primitive({ name, arguments: parameters, stands_for, says, rule, invalid, misfit, remark }) {
    const kept = (values) =>
      Object.fromEntries(parameters.map((parameter, at) => [parameter.name, checked(name, parameter, values[at] ?? started(parameter))]));
    const started = ({ kind, default: value }) => (kind === "pattern" && typeof value === "string" ? read(value) : value);
    if (stands_for !== undefined) {
      const meant = compiled(stands_for, makers);
      return { parameters, make: (values) => meant(kept(values)) };
    }
    const refused = cases(invalid, asked);
    const known = {
      name,
      says: cases(says, asked),
      rule: compiled(rule, asked),
      misfit: cases(misfit, asked),
      remark: cases(remark, asked),
      code: (values) => `${name}(${parameters.filter((one) => !(one.optional && isDefault(one, values[one.name]))).map((one) => argument(one, values[one.name])).join(", ")})`,
    };
    return {
      parameters,
      make(given) {
        const values = kept(given);
        const reason = refused(values);
        if (reason) throw new Unreadable(reason);
        return { kind: "primitive", primitive: known, values };
      },
    };
  }

  const isDefault = (parameter, value) => (isPattern(value) ? code(value) : value) === parameter.default;
  const argument = ({ name, kind, named: byName }, value) => `${byName ? `${name}=` : ""}${kind === "pattern" ? code(value) : written(kind, value)}`;

  /** A value as it is kept, or a sentence. */
  function checked(owner, { name, kind, at_least = -Infinity, called = name }, value) {
    if (kind === "whole") return whole(called, value, at_least);
    if (kind === "grid") return grid(value);
    if (kind === "pattern") {
      if (!isPattern(value)) throw new Unreadable(`${name} should be a pattern, got ${shown(value)}`);
      return value;
    }
    if (kind === "side") {
      if (value !== "row" && value !== "column") throw new Unreadable(`${owner} are of a "row" or of a "column", got ${shown(value)}`);
      return value;
    }
    if (!Array.isArray(value)) throw new Unreadable(`positions should be a list such as [0, 5], got ${shown(value)}`);
    return [...new Set(value.map((position) => whole("a position", position, -Infinity)))];
  }

  function whole(name, value, least) {
    if (!Number.isInteger(value)) throw new Unreadable(`${name} should be a whole number, got ${shown(value)}`);
    if (value < least) throw new Unreadable(`${name} should be at least ${least}, got ${value}`);
    return value;
  }

  function grid(shape) {
    if (!Array.isArray(shape)) throw new Unreadable(`the grid's shape should be its sizes, as in (4, 6), got ${shown(shape)}`);
    if (!shape.length || shape.some((size) => !Number.isInteger(size) || size < 1)) {
      throw new Unreadable(`the grid's shape should be positive whole numbers, got ${shown(shape)}`);
    }
    return shape;
  }

  function shown(value) {
    if (Array.isArray(value)) return `[${value.map(shown).join(", ")}]`;
    if (typeof value === "string") return `'${value}'`;
    return isPattern(value) ? code(value) : String(value);
  }

  // ---- from a text

  function bound(name, parameters, { args, named: byName }) {
    const known = parameters.map((parameter) => parameter.name);
    if (args.length > known.length) {
      throw new Unreadable(`${name} takes ${known.length || "no"} argument${known.length === 1 ? "" : "s"}, got ${args.length}`);
    }
    for (const key of Object.keys(byName)) {
      if (!known.includes(key)) throw new Unreadable(`${name} has no argument “${key}”`);
      if (known.indexOf(key) < args.length) throw new Unreadable(`${name}: ${key} is given twice`);
    }
    return parameters.map((parameter, at) => {
      if (at < args.length) return value(args[at]);
      if (Object.hasOwn(byName, known[at])) return value(byName[known[at]]);
      if (parameter.default !== undefined) return undefined;
      throw new Unreadable(`${name} needs its ${known[at]}: ${name}(${known.join(", ")})`);
    });
  }

  function called(name, act, values) {
    try {
      return act(...values);
    } catch (error) {
      if (error instanceof Unreadable && !error.message.startsWith(name)) error.message = `${name}: ${error.message}`;
      throw error;
    }
  }

  const value = (tree) => {
    if (Array.isArray(tree)) return tree.map(value);
    return typeof tree === "object" ? built(tree) : tree;
  };

  function built(tree) {
    if (Array.isArray(tree) || typeof tree !== "object") throw new Unreadable(`${shown(value(tree))} is not a pattern`);
    if (tree.op === "&") return and(built(tree.left), built(tree.right));
    if (tree.op === "|") return or(built(tree.left), built(tree.right));
    if (tree.op === "~") return { kind: "not", of: built(tree.of) };
    if (tree.method) {
      if (!Object.hasOwn(METHODS, tree.method)) throw new Unreadable(`a pattern has no method “${tree.method}”; it has causal(), blocks(size) and shifted(start)`);
      const [parameters, act] = METHODS[tree.method];
      const of = built(tree.of);
      return called(tree.method, (...values) => act(of, ...values), bound(tree.method, parameters, tree));
    }
    if (Object.hasOwn(ELSEWHERE, tree.call)) throw new Unreadable(`${tree.call}(…) ${ELSEWHERE[tree.call]}`);
    const found = named.get(tree.call);
    if (!found) throw new Unreadable(unknown(tree.call));
    return called(tree.call, (...values) => found.make(values), bound(tree.call, found.parameters, tree));
  }

  const unknown = (name) => `there is no pattern “${name}”${nearest(name, [...named.keys()])}`;

  function read(text) {
    try {
      return built(parsed(text));
    } catch (error) {
      // A name that is not yet written out is answered with the nearest, not with its brackets.
      if (error.bare && !named.has(error.bare) && unknown(error.bare).endsWith("?")) error.message = unknown(error.bare);
      throw error;
    }
  }

  for (const one of primitives) named.set(one.name, primitive(one));
  return { read, dense, code, description, remarks };
}

const isPattern = (value) => Boolean(value?.kind);

/** A value as one writes it; a pattern's code is its own affair. */
export function written(kind, value) {
  if (kind === "positions") return `[${value.join(", ")}]`;
  if (kind === "grid") return FUNCTIONS.written(value);
  return kind === "side" ? `"${value}"` : String(value);
}

/** What can be read in Python, but is more than one line can hold, or one mask. */
const HOLDS = "holds numbers that do not fit into a line: hand the pattern itself to PatternStudio, in Python";
const ELSEWHERE = {
  document: HOLDS,
  listed: HOLDS,
  padding: HOLDS,
  held: HOLDS,
  per_head: "differs from head to head, and the studio shows one mask: write the pattern of one head",
};

function nearest(name, known) {
  const begun = known.filter((one) => one.startsWith(name));
  if (begun.length && begun.length < 4) return `; did you mean ${begun.map((one) => `“${one}”`).join(" or ")}?`;
  const close = known.map((one) => [distance(name, one), one]).sort((a, b) => a[0] - b[0])[0];
  return close[0] <= 2 ? `; did you mean “${close[1]}”?` : `; there are ${[...known].sort().join(", ")}`;
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
