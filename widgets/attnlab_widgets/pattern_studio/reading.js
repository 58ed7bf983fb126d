// Reading what a pattern's code says, as a tree: names, calls, &, | and ~ with Python's precedence.
// It accepts no more than attnlab.core.patterns.read does; errors are sentences.

const TOKENS = /\s*(?:([A-Za-z_]\w*)|(\d+)|("[^"\\]*"|'[^'\\]*')|([()[\],.&|~=-]))/y;
const LONGEST = 60_000;
const DEEPEST = 320; // as in Python

export class Unreadable extends Error {}

function tokens(text) {
  if (text.length > LONGEST) throw new Unreadable(`the expression has ${text.length} characters, more than ${LONGEST}`);
  const found = [];
  let at = 0;
  while (at < text.trimEnd().length) {
    TOKENS.lastIndex = at;
    const match = TOKENS.exec(text);
    if (!match) {
      const start = at + text.slice(at).search(/\S/);
      throw new Unreadable(`a pattern cannot contain ${JSON.stringify(text[start])} (character ${start + 1})`);
    }
    const [, name, number, string, sign] = match;
    if (number?.length > 1 && number.startsWith("0")) throw new Unreadable(`a number cannot begin with 0, as ${number} does`);
    if (number && !Number.isSafeInteger(Number(number))) throw new Unreadable(`${number} is too large`);
    found.push({ name, number, string, sign, text: name ?? number ?? string ?? sign });
    at = TOKENS.lastIndex;
  }
  return found;
}

/**
 * A tree of {op, left, right}, {op: "~", of}, {call, args, named}, {method, of, args, named};
 * arguments are trees, numbers, texts or lists of these.
 */
export function parsed(text) {
  try {
    const tree = parsedDeeply(text);
    if (depth(tree) <= DEEPEST) return tree;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // the stack was too small
  }
  throw new Unreadable(`more than ${DEEPEST} parts of the expression stand inside one another`);
}

function depth(tree) {
  let [level, deep] = [[tree], 0];
  while (level.length) {
    deep += 1;
    level = level.flatMap((one) => {
      if (Array.isArray(one)) return one;
      const parts = [one.left, one.right, one.of, ...(one.args ?? []), ...Object.values(one.named ?? {})];
      return parts.filter((part) => typeof part === "object");
    });
  }
  return deep;
}

function parsedDeeply(text) {
  const all = tokens(text);
  if (!all.length) throw new Unreadable("there is no pattern yet: write one, such as local(2) | global_([0])");
  let at = 0;
  const sign = (wanted) => all[at]?.sign === wanted && ((at += 1), true);
  const here = () => (at < all.length ? `“${all[at].text}”` : "the end");
  const need = (wanted, why) => {
    if (!sign(wanted)) throw new Unreadable(`${why}: expected “${wanted}”, got ${here()}`);
  };

  const either = () => chain("|", both);
  const both = () => chain("&", unary);
  function chain(op, part) {
    let left = part();
    while (sign(op)) left = { op, left, right: part() };
    return left;
  }

  function unary() {
    return sign("~") ? { op: "~", of: unary() } : postfix();
  }

  function postfix() {
    let tree = primary();
    while (sign(".")) {
      const { name } = all[at] ?? {};
      if (!name) throw new Unreadable(`after the dot a method is expected, got ${here()}`);
      at += 1;
      tree = { method: name, of: tree, ...argumentsOf(name) };
    }
    return tree;
  }

  function primary() {
    if (sign("(")) {
      if (sign(")")) return [];
      const first = value();
      if (all[at]?.sign === ",") return [first, ...(sign(","), items(")", "the brackets are not closed"))];
      need(")", "a bracket is not closed");
      return first;
    }
    const { name } = all[at] ?? {};
    if (!name) throw new Unreadable(at < all.length ? `a pattern is expected where ${here()} stands` : "the expression ends where a pattern is expected");
    at += 1;
    if (all[at]?.sign !== "(") throw Object.assign(new Unreadable(`“${name}” needs its brackets: ${name}(…)`), { bare: name });
    return { call: name, ...argumentsOf(name) };
  }

  function argumentsOf(name) {
    need("(", `“${name}” needs its brackets`);
    const args = [];
    const named = {};
    while (!sign(")")) {
      if (all[at]?.name && all[at + 1]?.sign === "=") {
        const key = all[at].name;
        at += 2;
        if (Object.hasOwn(named, key)) throw new Unreadable(`${name}: ${key} is given twice`);
        named[key] = value();
      } else {
        if (Object.keys(named).length) throw new Unreadable(`${name}: what has no name comes before what has one`);
        args.push(value());
      }
      if (!sign(",") && all[at]?.sign !== ")") throw new Unreadable(`the brackets of ${name} are not closed: expected “)”, got ${here()}`);
    }
    return { args, named };
  }

  function items(end, why) {
    const found = [];
    while (!sign(end)) {
      found.push(value());
      if (!sign(",") && all[at]?.sign !== end) throw new Unreadable(`${why}: expected “${end}”, got ${here()}`);
    }
    return found;
  }

  function value() {
    const token = all[at];
    if (token?.number !== undefined) return (at += 1), Number(token.number);
    if (token?.string !== undefined) return (at += 1), token.string.slice(1, -1);
    if (token?.sign === "-" && all[at + 1]?.number !== undefined) return (at += 2), -Number(all[at - 1].number);
    if (sign("[")) return items("]", "the list is not closed");
    return either();
  }

  const tree = either();
  if (at < all.length) throw new Unreadable(`the pattern ends before ${here()}`);
  return tree;
}
