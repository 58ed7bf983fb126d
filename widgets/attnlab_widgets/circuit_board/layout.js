// Where chips and wires stand on the board: layout.py in the page.
//
// Rows of chips, the first at the bottom. Between two rows is a channel, in which wires may bend; a
// wire that passes a row stands straight up in a gap between its chips. So no wire covers a chip.

const [LOW, HIGH, CHANNEL, WIDEST, EDGE] = [34, 60, 84, 190, 6];
const INTO = ["query", "key", "value"];
const head = (receiver) => receiver.split(" ")[0];

/** {wide, high, chips by name, paths}: of each wire the points of cubic curves one after another. */
export function boardOf(rows, wires, wide) {
  const [rowOf, columnOf] = [new Map(), new Map()];
  rows.forEach((names, row) => names.forEach((name, at) => {
    rowOf.set(name, row);
    columnOf.set(name, at);
  }));
  const ends = wires.map(([sender, receiver]) => [sender, head(receiver)]);
  const lane = wide < 520 ? 4 : 6;
  const passing = rows.map((names, row) => {
    const gaps = Array.from({ length: names.length + 1 }, () => []);
    ends.forEach(([sender, to], at) => {
      if (rowOf.get(sender) >= row || row >= rowOf.get(to)) return;
      const share = ((columnOf.get(to) + 0.5) / rows[rowOf.get(to)].length) * names.length;
      gaps[2 * share < names.length ? Math.floor(share) : Math.ceil(share)].push(at);
    });
    return gaps;
  });
  const heights = rows.map((_, row) => (row === 0 || row === rows.length - 1 ? LOW : HIGH));
  const high = heights.reduce((a, b) => a + b, 0) + CHANNEL * (rows.length - 1) + 2 * EDGE;
  const board = { wide, high, chips: {}, paths: [] };
  const lanes = new Map(); // by row and wire
  let y = high - EDGE;
  rows.forEach((names, row) => {
    y -= heights[row];
    const needs = passing[row].map((gap) => lane * (gap.length + 1) + EDGE);
    const taken = needs.reduce((a, b) => a + b, 0);
    const each = Math.min(WIDEST, (wide - taken) / names.length);
    const spare = (wide - taken - each * names.length) / needs.length;
    let x = 0;
    passing[row].forEach((gap, at) => {
      const room = needs[at] + spare;
      const first = x + (room - lane * (gap.length - 1)) / 2;
      gap.forEach((wire, nth) => lanes.set(`${row} ${wire}`, first + lane * nth));
      x += room;
      if (at >= names.length) return;
      board.chips[names[at]] = { name: names[at], row, x, y, wide: each, high: heights[row] };
      x += each;
    });
    y -= CHANNEL;
  });
  join(board, wires, ends, lanes, rows);
  return board;
}

function join(board, wires, ends, lanes, rows) {
  const into = wires.map((_, at) => pin(board, wires, at));
  const nextOf = (wire) => lanes.get(`${board.chips[ends[wire][0]].row + 1} ${wire}`) ?? into[wire];
  ends.forEach(([sender, to], at) => {
    const [chip, target] = [board.chips[sender], board.chips[to]];
    const own = ends.flatMap((end, wire) => (end[0] === sender ? [wire] : [])).sort((a, b) => nextOf(a) - nextOf(b) || a - b);
    const path = [[chip.x + 8 + ((chip.wide - 16) / own.length) * (own.indexOf(at) + 0.5), chip.y]];
    for (let row = chip.row + 1; row < target.row; row += 1) {
      const one = board.chips[rows[row][0]];
      bend(path, lanes.get(`${row} ${at}`), one.y + one.high);
      const [x, y] = path[path.length - 1];
      path.push([x, y], [x, one.y], [x, one.y]);
    }
    bend(path, into[at], target.y + target.high);
    board.paths.push(path);
  });
}

/** A curve upwards that leaves and arrives straight up. */
function bend(path, x, y) {
  const [x0, y0] = path[path.length - 1];
  const half = (y0 - y) * 0.55;
  path.push([x0, y0 - half], [x, y + half], [x, y]);
}

/** Where a wire enters its receiver: each input has a third of the chip. */
function pin(board, wires, at) {
  const receiver = wires[at][1];
  const chip = board.chips[head(receiver)];
  const own = wires.flatMap(([, to], each) => (to === receiver ? [each] : [])).sort((a, b) => board.chips[wires[a][0]].x - board.chips[wires[b][0]].x || a - b);
  const share = (own.indexOf(at) + 1) / (own.length + 1);
  if (receiver === "logits") return chip.x + chip.wide * share;
  return chip.x + (chip.wide / INTO.length) * (INTO.indexOf(receiver.split(" ")[1]) + 0.12 + 0.76 * share);
}

/** The points as the d of an SVG path. */
export function written(path) {
  const said = path.map((point) => point.map((x) => x.toFixed(1)).join(" "));
  const curves = [];
  for (let at = 1; at < said.length; at += 3) curves.push(`C${said.slice(at, at + 3).join(" ")}`);
  return `M${said[0]}${curves.join("")}`;
}

/** A point of the path where the mark of a cut stands: in the middle of its last bend. */
export function markOf(path) {
  const [a, b, c, d] = path.slice(-4);
  return [0, 1].map((axis) => (a[axis] + 3 * b[axis] + 3 * c[axis] + d[axis]) / 8);
}
