// Which expert computes which token; the sentences are those of words.py.
import { listed, two } from "#lib/plane.js";
import { reader } from "#lib/quantization.js";

export const NONE = -1;

/** The layers of __init__.py with their numbers. */
export function openLayers(buffer, told, n) {
  const next = reader(buffer, 0);
  return told.map((layer) => {
    const chosen = Int16Array.from(next("u1", n * layer.k), (one) => one - 1);
    const gates = next("f4", n * layer.k);
    return placed({ ...layer, n, chosen, gates, router: layer.router ? next("f4", n * layer.experts) : null });
  });
}

/**
 * With the queue of choices [token, choice] in the order of placing, all first choices before any
 * second; the place of each in its expert's line, and in the queue; and how many want each expert.
 * Where experts choose, the tokens with the highest gates come first in an expert's line.
 */
export function placed(layer) {
  const { n, k, experts, chosen, gates } = layer;
  const queue = [];
  const wanted = new Array(experts).fill(0);
  const places = new Int32Array(n * k).fill(NONE);
  const order = new Int32Array(n * k).fill(NONE);
  for (let choice = 0; choice < k; choice += 1) {
    for (let i = 0; i < n; i += 1) {
      const at = i * k + choice;
      if (chosen[at] === NONE) continue;
      places[at] = wanted[chosen[at]];
      wanted[chosen[at]] += 1;
      order[at] = queue.length;
      queue.push([i, choice]);
    }
  }
  if (layer.choosing === "experts") {
    for (let choice = 0; choice < k; choice += 1) {
      const own = queue.filter(([, c]) => c === choice).map(([i]) => i * k + choice);
      own.sort((a, b) => gates[b] - gates[a] || a - b).forEach((at, place) => (places[at] = place));
    }
    queue.sort(([i, a], [j, b]) => places[i * k + a] - places[j * k + b] || a - b);
    queue.forEach(([i, c], at) => (order[i * k + c] = at));
  }
  return { ...layer, queue, wanted, places, order };
}

/** The choices of a token, in order: {expert, gate, place, lost, waiting}. */
export function choicesOf({ k, chosen, gates, places, order }, i, { capacity, placed: count }) {
  const found = [];
  for (let at = i * k; at < (i + 1) * k; at += 1) {
    if (chosen[at] !== NONE) found.push({ expert: chosen[at], gate: gates[at], place: places[at], lost: places[at] >= capacity, waiting: order[at] >= count });
  }
  return found;
}

/** How many choices are dropped at a capacity, once all are placed. */
export const lostAt = ({ wanted }, capacity) => wanted.reduce((sum, count) => sum + Math.max(0, count - capacity), 0);

/** The share of tokens whose first choice is an expert; the router's mean probability of it. */
export function shareOf({ n, k, chosen }, expert) {
  let [own, all] = [0, 0];
  for (let i = 0; i < n; i += 1) {
    if (chosen[i * k] !== NONE) all += 1;
    if (chosen[i * k] === expert) own += 1;
  }
  return own / Math.max(1, all);
}

export function meanOf({ n, experts, router }, expert) {
  let [sum, real] = [0, 0];
  for (let i = 0; i < n; i += 1) {
    const row = router.subarray(i * experts, (i + 1) * experts);
    if (row.some((p) => p > 0)) real += 1;
    sum += row[expert];
  }
  return sum / Math.max(1, real);
}

/** E Σ f P: 1 where all experts are used alike, E where one has all tokens. */
export function balanceOf(layer) {
  if (!layer.router || layer.choosing === "experts") return null;
  let sum = 0;
  for (let expert = 0; expert < layer.experts; expert += 1) sum += shareOf(layer, expert) * meanOf(layer, expert);
  return layer.experts * sum;
}

/** How much is dropped, and what becomes of the chosen token. */
export const announcement = (layer, tokens, state) => `${ofAll(layer, state)} ${ofToken(layer, tokens, state)}`;

function ofAll(layer, { capacity, placed: count }) {
  const { experts, k, queue, wanted } = layer;
  if (layer.choosing === "experts") return taken(layer, capacity, count);
  const what = k === 1 ? "token" : "choice";
  const lost = lostAt(layer, capacity);
  const [most, least] = [Math.max(...wanted), Math.min(...wanted)];
  const chosen = most === least
    ? `All experts are chosen alike, ${most} times each.`
    : `Expert ${wanted.indexOf(most)} is chosen most often, ${times(most)}, expert ${wanted.indexOf(least)} ${least ? "least, " : ""}${times(least)}.`;
  const soFar = count < queue.length ? ` So far ${count} ${what}s are placed.` : "";
  return `Each of ${experts} experts has room for ${capacity} token${capacity > 1 ? "s" : ""}: ${lost || "none"} of ${queue.length} ${what}s ${lost < 2 ? "is" : "are"} dropped. ${chosen}${soFar}`;
}

/** Where experts choose: how many tokens are taken by none. */
function taken({ n, k, experts, places, queue }, capacity, count) {
  let left = 0;
  for (let i = 0; i < n; i += 1) if (places.subarray(i * k, (i + 1) * k).every((place) => place < 0 || place >= capacity)) left += 1;
  const highest = capacity === 1 ? "token that it scores" : `${capacity} tokens that it scores`;
  const soFar = count < queue.length ? ` So far ${count} choices are placed.` : "";
  return `Each of ${experts} experts takes the ${highest} highest: ${left ? `${left} of ${n} tokens ${left === 1 ? "is" : "are"} taken by no expert` : "every token is taken by one or more"}.${soFar}`;
}

const times = (count) => ["never", "once"][count] ?? `${count} times`;

function ofToken(layer, tokens, state) {
  const name = `Token ${state.token} “${tokens[state.token]}”`;
  const choosing = layer.choosing === "experts";
  const chosen = choicesOf(layer, state.token, state).filter(({ lost }) => !(choosing && lost));
  if (choosing && !chosen.length) return `${name} is taken by no expert, so it goes on in the stream as it was.`;
  if (!chosen.length) return `${name} chooses no expert.`;
  const now = chosen.filter(({ waiting }) => !waiting);
  if (!now.length) return `${name} is not placed yet.`;
  const said = (all) => listed(all.map(({ expert, gate }) => `expert ${expert} (${two(gate)})`));
  const [kept, lost] = [now.filter((one) => !one.lost), now.filter((one) => one.lost)];
  const were = lost.length === 1 ? "was" : "were";
  if (!kept.length) return `${name} is dropped: ${said(lost)} ${were} full, so it goes on in the stream as it was.`;
  return `${name} ${choosing ? "is taken by" : "goes to"} ${said(kept)}${lost.length ? `; ${said(lost)} ${were} full` : ""}.`;
}
