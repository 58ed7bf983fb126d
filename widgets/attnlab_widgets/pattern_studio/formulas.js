// Formulas: the expressions in which Python describes its primitives (attnlab.core.patterns.formulas).
// `compiled` reads one and gives a function of the names' values.

const TOKENS = /\s*(?:([A-Za-z_]\w*)|(\d+)|'([^']*)'|(\/\/|[<>=!]=|[-+*%&|<>()[\],.]))/y;
const LEVELS = [["or"], ["and"], ["<", "<=", ">", ">=", "==", "!=", "in"], ["|"], ["&"], ["+", "-"], ["*", "//", "%"]];

export const mod = (a, b) => ((a % b) + b) % b;
const product = (shape) => shape.reduce((a, b) => a * b, 1);
const several = (noun, number) => (number === 1 ? noun : `${noun} ${number}`);

function ordinal(number) {
  if (number === 1) return "position";
  const tens = number % 100;
  const suffix = tens >= 11 && tens <= 13 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[number % 10] ?? "th";
  return `${number}${suffix} position`;
}

/** The functions that formulas may call, as in Python. */
export const FUNCTIONS = {
  abs: Math.abs,
  len: (list) => list.length,
  product,
  ordinal,
  several,
  ends: (first, last) => [["first", first], ["last", last]].filter(([, size]) => size).map((end) => several(...end)).join(" and the "),
  listing: (numbers) => numbers.join(", "),
  sizes: (shape) => shape.join(" × "),
  written: (shape) => (shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`),
  outside: (positions, n) => positions.filter((p) => p < -n || p >= n),
  stride_of: (shape, axis) => product(shape.slice(mod(axis, shape.length) + 1)),
};

const sets = new WeakMap();
function among(value, list) {
  if (!sets.has(list)) sets.set(list, new Set(list));
  return sets.get(list).has(value);
}

const plain = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "==": (a, b) => a === b, "!=": (a, b) => a !== b, in: among,
  "|": (a, b) => a || b, "&": (a, b) => a && b,
  "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "//": (a, b) => Math.floor(a / b), "%": mod,
};

/** A function of an object of names; `functions` are those of above and what else may be called. */
export function compiled(formula, functions = FUNCTIONS) {
  const all = tokens(formula);
  let at = 0;
  const sign = (wanted) => all[at]?.sign === wanted && ((at += 1), true);

  function choice() {
    const yes = level(0);
    if (!sign("if")) return yes;
    const test = level(0);
    need("else");
    const no = choice();
    return (names) => (test(names) ? yes(names) : no(names));
  }

  function level(depth) {
    if (depth === LEVELS.length) return negative();
    let left = level(depth + 1);
    while (LEVELS[depth].includes(all[at]?.sign)) left = binary(all[at++].sign, left, level(depth + 1));
    return left;
  }

  function binary(op, left, right) {
    if (op === "or") return (names) => left(names) || right(names);
    if (op === "and") return (names) => left(names) && right(names);
    const act = functions[op] ?? plain[op]; // patterns have their own | and &
    return (names) => act(left(names), right(names));
  }

  function negative() {
    if (!sign("-")) return postfix();
    const of = negative();
    return (names) => -of(names);
  }

  function postfix() {
    let value = atom();
    for (;;) {
      const of = value;
      if (sign("[")) {
        const [index] = items("]");
        value = (names) => of(names).at(index(names));
      } else if (sign(".")) {
        const act = functions[`.${all[at++].name}`];
        need("(");
        const args = items(")");
        value = (names) => act(of(names), ...args.map((arg) => arg(names)));
      } else return value;
    }
  }

  function atom() {
    const token = all[at++];
    if (token.number !== undefined) return () => token.number;
    if (token.text !== undefined) return () => token.text;
    if (token.sign === "(") return items(")")[0];
    if (token.sign === "[") {
      const list = items("]");
      return (names) => list.map((one) => one(names));
    }
    if (token.name === "True") return () => true;
    if (!sign("(")) return (names) => names[token.name];
    const [act, args] = [functions[token.name], items(")")];
    if (!act) throw new Error(`the page has no function ${token.name}, which “${formula}” calls`);
    return (names) => act(...args.map((arg) => arg(names)));
  }

  function items(end) {
    const found = [];
    while (!sign(end)) {
      found.push(choice());
      sign(",");
    }
    return found;
  }

  function need(wanted) {
    if (!sign(wanted)) throw new Error(`“${formula}” cannot be read: ${wanted} is missing`);
  }

  const value = choice();
  if (at < all.length) throw new Error(`“${formula}” cannot be read after its part ${at}`);
  return value;
}

const WORDS = ["if", "else", "or", "and", "in"];

function tokens(formula) {
  const found = [];
  for (TOKENS.lastIndex = 0; TOKENS.lastIndex < formula.length; ) {
    const match = TOKENS.exec(formula);
    if (!match) throw new Error(`“${formula}” is no formula`);
    const [, name, number, text, sign] = match;
    found.push(WORDS.includes(name) ? { sign: name } : { name, number: number && Number(number), text, sign });
  }
  return found;
}

/** A template as a function of names: formulas stand in braces. */
export function template(text, functions) {
  const parts = text.split(/\{([^{}]*)\}/).map((part, at) => (at % 2 ? compiled(part, functions) : () => part));
  return (names) => parts.map((part) => part(names)).join("");
}

/** Cases: the template of the first condition that holds, or null. */
export function cases(list = [], functions = FUNCTIONS) {
  const all = list.map(([when, told]) => [compiled(when, functions), template(told, functions)]);
  return (names) => all.find(([when]) => when(names))?.[1](names) ?? null;
}
