// Labels along a line: as near to their places as they can be without covering each other.

/** Middles for labels of a height, in the order of their places, all within 0 … room. */
export function spread(places, high, room) {
  const order = places.map((_, at) => at).sort((a, b) => places[a] - places[b]);
  // Labels that would overlap are gathered in blocks, each as near as can be to its members.
  const blocks = [];
  for (const at of order) {
    let block = { members: [at], start: places[at] - high / 2 };
    settle(block);
    while (blocks.length && blocks.at(-1).start + blocks.at(-1).members.length * high > block.start) {
      const before = blocks.pop();
      block = { members: [...before.members, ...block.members], start: 0 };
      settle(block);
    }
    blocks.push(block);
  }

  function settle(block) {
    const wanted = block.members.reduce((sum, at, down) => sum + places[at] - (down + 0.5) * high, 0) / block.members.length;
    block.start = Math.max(0, Math.min(wanted, room - block.members.length * high));
  }

  const out = new Array(places.length);
  for (const { members, start } of blocks) members.forEach((at, down) => (out[at] = start + (down + 0.5) * high));
  return out;
}
