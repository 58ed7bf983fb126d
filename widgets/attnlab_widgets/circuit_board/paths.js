// A forward pass in which some wires are cut, in double precision: paths.py in the page.
import { uniform } from "#lib/draws.js";
import { gathered, gelu, norm, product, scores, softmax } from "#lib/forward.js";

export const INTO = ["query", "key", "value"];

/** Letters, places where the model has vectors for them, and the heads below a layer. */
export function senders({ numbers, heads }, layers = heads.length) {
  const first = numbers.positions ? ["letters", "places"] : ["letters"];
  return [...first, ...heads.slice(0, layers).flatMap((count, layer) => Array.from({ length: count }, (_, head) => `${layer}.${head}`))];
}

/** Every wire, [sender, receiver]: of each receiver from below, and of each sender. */
export function wiresOf(network) {
  const into = network.heads.flatMap((count, layer) => Array.from({ length: count }, (_, head) => INTO.flatMap((part) => senders(network, layer).map((sender) => [sender, `${layer}.${head} ${part}`])))).flat();
  return [...into, ...senders(network).map((sender) => [sender, "logits"])];
}

const plus = (a, b) => a.map((value, at) => value + b[at]);

/** The rows (of a matrix, or of its bias) that make what one head gets. */
function rowsOf({ values, shape }, head, heads) {
  const size = values.length / heads;
  return { values: values.subarray(head * size, (head + 1) * size), shape: [shape[0] / heads, ...shape.slice(1)] };
}

function columnsOf({ values, shape: [rows, columns] }, head, heads) {
  const wide = columns / heads;
  const found = new Float64Array(rows * wide);
  for (let r = 0; r < rows; r += 1) found.set(values.subarray(r * columns + head * wide, r * columns + (head + 1) * wide), r * wide);
  return { values: found, shape: [rows, wide] };
}

/**
 * A pass of these tokens with these wires cut: {added by sender, weights by head, feeds, logits}. A
 * cut wire carries what `instead` has for its sender. `whole`, the pass without cuts, saves what no
 * cut can change: the layers below the first, and in this layer the heads without a cut.
 */
export function run(network, tokens, cuts = [], instead = {}, through = true, whole = null) {
  const { numbers, heads, scales, epsilon, logitScale } = network;
  const [n, dim] = [tokens.length, numbers.embedding.shape[1]];
  const here = { added: {}, weights: {}, feeds: [] };
  const layerOf = (receiver) => (receiver === "logits" ? heads.length : parseInt(receiver, 10));
  const first = whole ? Math.min(heads.length, ...cuts.map(([, receiver]) => layerOf(receiver))) : 0;
  const linear = (x, name) => product(x, n, numbers[name], numbers[`${name}.bias`]);
  const normed = (x, name, at) => norm(x, n, numbers[name], numbers[`${name}.bias`], epsilon[at]);
  const feed = (x, layer) => linear(linear(normed(x, `${layer}.norm2`, 2 * layer + 1), `${layer}.expand`).map(gelu), `${layer}.contract`);

  here.added.letters = whole ? whole.added.letters : new Float64Array(n * dim);
  if (!whole) tokens.forEach((token, i) => here.added.letters.set(numbers.embedding.values.subarray(token * dim, (token + 1) * dim), i * dim));
  if (numbers.positions) here.added.places = whole ? whole.added.places : numbers.positions.values.slice(0, n * dim);

  function attended(x, given, layer) {
    for (let head = 0; head < heads[layer]; head += 1) x = plus(x, given(`${layer}.${head}`));
    const bias = numbers[`${layer}.output.bias`]?.values;
    return bias ? x.map((value, at) => value + bias[at % dim]) : x;
  }

  /** The stream below a layer as a receiver reads it; as it is where no wire into it is cut. */
  function read(layer, receiver = "") {
    const own = new Set(cuts.filter(([, to]) => to === receiver).map(([sender]) => sender));
    const given = (sender) => (own.has(sender) ? instead[sender] : here.added[sender]);
    let x = senders(network, 0).map(given).reduce(plus);
    for (let at = 0; at < layer; at += 1) {
      x = attended(x, given, at);
      x = plus(x, own.size && through ? feed(x, at) : here.feeds[at]);
    }
    return x;
  }

  heads.forEach((count, layer) => {
    const isCut = (head) => cuts.some(([, receiver]) => receiver.startsWith(`${layer}.${head} `));
    const common = layer < first ? null : normed(read(layer), `${layer}.norm`, 2 * layer);
    for (let head = 0; head < count; head += 1) {
      const name = `${layer}.${head}`;
      if (layer < first || (whole && layer === first && !isCut(head))) {
        here.weights[name] = whole.weights[name];
        here.added[name] = whole.added[name];
        continue;
      }
      const [q, k, v] = INTO.map((part) => {
        const cut = cuts.some(([, receiver]) => receiver === `${name} ${part}`);
        const x = cut ? normed(read(layer, `${name} ${part}`), `${layer}.norm`, 2 * layer) : common;
        const bias = numbers[`${layer}.${part}.bias`];
        return product(x, n, rowsOf(numbers[`${layer}.${part}`], head, count), bias && rowsOf(bias, head, count));
      });
      here.weights[name] = softmax(scores(q, k, n, 1, scales[layer]), n);
      here.added[name] = product(gathered(here.weights[name], v, n, 1, [false]), n, columnsOf(numbers[`${layer}.output`], head, count));
    }
    here.feeds.push(layer < first ? whole.feeds[layer] : feed(attended(read(layer), (sender) => here.added[sender], layer), layer));
  });
  const last = normed(read(heads.length, "logits"), "norm", epsilon.length - 1);
  here.logits = linear(last, numbers.output ? "output" : "embedding").map((value) => value * logitScale);
  return here;
}

/** The same letters in another order: each stands for another of them wherever it occurs. */
export function reordered(tokens, seed) {
  const letters = [...new Set(tokens)];
  const others = [...letters];
  for (let at = others.length - 1; at > 0; at -= 1) {
    const swap = Math.floor(uniform(seed, at) * at);
    [others[at], others[swap]] = [others[swap], others[at]];
  }
  const to = new Map(letters.map((token, at) => [token, others[at]]));
  return tokens.map((token) => to.get(token));
}

/** What cut wires carry, by their sender: a pass of the other text, means, or zeros. */
export function replaced(network, tokens, { instead, order }) {
  const n = tokens.length;
  if (instead === "another text") return run(network, reordered(tokens, order)).added;
  const size = n * network.numbers.embedding.shape[1];
  const filled = (mean) => (instead === "the mean" ? Float64Array.from({ length: size }, (_, at) => mean[at % mean.length]) : new Float64Array(size));
  return Object.fromEntries(senders(network).map((sender) => [sender, filled(network.means[sender].values)]));
}
