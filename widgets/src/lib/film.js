// What a memory keeps while a token is read; the sentences are those of attnlab_widgets/memory_film/words.py.
import { listed, two } from "./plane.js";
import { mapOf } from "./maps.js";
import { openLayer, reader } from "./quantization.js";

export const [AHEAD, SEGMENT, NEAR, FAR, LOST] = [0, 1, 2, 3, 4];

/** A layer of attnlab_widgets/memory_film/__init__.py with its numbers. */
export function openFilm(buffer, told, n) {
  if (told.kind === "state") {
    const next = reader(buffer, told.at);
    const states = next("f4", told.r * n * told.dim);
    return { ...told, n, states, holds: next("f4", told.r * told.dim) };
  }
  const { h, starts } = told;
  const opened = openLayer(buffer, { ...told.maps, at: told.at }, { h, n, m: n });
  const next = reader(buffer, told.at + told.long);
  const shares = next("f4", h * n * 3);
  return { ...told, n, shares, zones: next("u1", starts.length * n), heads: Array.from({ length: h }, (_, head) => mapOf(opened, head, {})) };
}

export const segmentOf = (layer, query) => Math.floor(query / layer.segment);

/** Where position j is while query i is read; what the query cannot see yet is ahead. */
export const zoneOf = (layer, i, j) => (j > i ? AHEAD : layer.zones[segmentOf(layer, i) * layer.n + j]);

/** The position whose column stands for position j: a compressed vector stands at its first one. */
export function columnOf(layer, i, j) {
  return zoneOf(layer, i, j) === FAR ? j - ((j % layer.segment) % layer.covers) : j;
}

/** Of one query, or the mean of the heads: the weight of position j, and by how much it may be off. */
export function weightOf(layer, head, i, j) {
  const heads = head === null ? layer.heads : [layer.heads[head]];
  const all = heads.map((map) => map.value(i, j));
  const mean = (name) => all.reduce((sum, one) => sum + one[name], 0) / all.length;
  return { w: mean("w"), error: mean("error") };
}

/** What a query gives to its segment, to the memory and to the far one. */
export function sharesOf(layer, head, i) {
  const heads = head === null ? Array.from({ length: layer.h }, (_, at) => at) : [head];
  return [0, 1, 2].map((zone) => heads.reduce((sum, at) => sum + layer.shares[(at * layer.n + i) * 3 + zone], 0) / heads.length);
}

/** Neighbouring positions of one zone while a query's segment is read: {zone, first, end}. */
export function runsOf(layer, query) {
  const found = [];
  for (let j = 0; j < layer.n; j += 1) {
    const zone = layer.zones[segmentOf(layer, query) * layer.n + j];
    if (found.length && found.at(-1).zone === zone) found.at(-1).end = j + 1;
    else found.push({ zone, first: j, end: j + 1 });
  }
  return found;
}

/** What a query attends to, and what is lost. */
export function attentionSaid(layer, { query, token, head }) {
  const parts = ["its segment", `the ${layer.near}`, ...(layer.far ? [`the ${layer.far}`] : [])];
  const shares = sharesOf(layer, head, query);
  const said = listed(parts.map((part, at) => `${percent(shares[at])} to ${part}`));
  return `Token ${query} “${token}” in segment ${segmentOf(layer, query) + 1} of ${layer.starts.length} attends${who(layer.h, head)} ${said}. ${kept(layer, query)}`;
}

function who(heads, head) {
  if (heads === 1) return "";
  return head === null ? `, on the mean of ${heads} heads,` : `, in head ${head},`;
}

/** How many positions before a query are in a zone. */
export function countOf(layer, query, zone) {
  let count = 0;
  for (let j = 0; j < query; j += 1) if (zoneOf(layer, query, j) === zone) count += 1;
  return count;
}

function kept(layer, query) {
  const [far, lost] = [FAR, LOST].map((zone) => countOf(layer, query, zone));
  const columns = Math.floor(far / layer.covers);
  const stand = columns && layer.covers > 1 ? `${columns} compressed vector${columns > 1 ? "s stand" : " stands"} for ${far} tokens. ` : "";
  if (!lost) return query ? `${stand}No token before it is lost yet.` : "It is the first token.";
  return `${stand}${lost} of the ${query} tokens before it ${lost === 1 ? "has" : "have"} fallen out of reach.`;
}

/** Which channels hold longest. */
export function stateSaid(layer, vector, { query, token }) {
  const holds = holdsOf(layer, vector);
  const order = Array.from(holds, (_, channel) => channel).sort((a, b) => holds[a] - holds[b] || a - b);
  const [low, high] = [order[0], order.at(-1)];
  const start = `After token ${query} “${token}”: `;
  if (!layer.half_lives) return `${start}channel ${low} changes least from one state to the next, by ${short(holds[low])} of its standard deviation on the mean, channel ${high} most, by ${short(holds[high])}.`;
  const left = holds.filter((halfLife) => halfLife >= query).length;
  const first = query ? ` ${left} of ${layer.dim} channels still hold half or more of what was read first.` : "";
  const [longest, shortest] = [short(holds[high]), short(holds[low])];
  const said = longest === shortest
    ? `all channels have a half-life of ${longest} tokens.`
    : `channel ${high} holds longest, with a half-life of ${longest} tokens, channel ${low} shortest, with ${shortest}.`;
  return `${start}${said}${first}`;
}

/** Half-lives in tokens, or changes from one state to the next, of the channels of a state vector. */
export const holdsOf = (layer, vector) => layer.holds.slice(vector * layer.dim, (vector + 1) * layer.dim);

export const stateAt = (layer, vector, i, channel) => layer.states[(vector * layer.n + i) * layer.dim + channel];

/** The channels in the order of the rows; first those that hold longest, if so wanted. */
export function channelsOf(layer, vector, order) {
  const holds = holdsOf(layer, vector);
  const numbers = Array.from(holds, (_, channel) => channel);
  if (order === "number") return numbers;
  return numbers.sort((a, b) => (layer.half_lives ? holds[b] - holds[a] : holds[a] - holds[b]) || a - b);
}

export const percent = (share) => `${two(100 * share, 0)} %`;

/** Three digits or so: 0.04, 12.5, 103. */
export const short = (number) => two(number, number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2);
