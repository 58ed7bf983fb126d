"""Where chips and wires stand on the board; ``layout.js`` computes the same.

Rows of chips, the first at the bottom: what is embedded, each layer, the logits. Between two rows
is a channel, in which wires may bend; a wire that passes a row stands straight up in a gap between
its chips. So no wire covers a chip.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from attnlab_widgets.circuit_board.paths import INTO, LOGITS, Wire

LOW, HIGH = 34.0, 60.0
"""How high a row is, of what is embedded or the logits, and of heads."""
CHANNEL, WIDEST, EDGE = 84.0, 190.0, 6.0
Point = tuple[float, float]


@dataclass
class Chip:
    name: str
    row: int
    x: float
    y: float
    wide: float
    high: float


@dataclass
class Board:
    """``paths`` of the wires, in their order: points of cubic curves one after another, so 1 + 3 k
    points for k of them."""

    wide: float
    high: float = 0.0
    chips: dict[str, Chip] = field(default_factory=dict)
    paths: list[list[Point]] = field(default_factory=list)


def board_of(rows: Sequence[Sequence[str]], wires: Sequence[Wire], wide: float) -> Board:
    """``rows`` hold the names of their chips, from below; all in units of a pixel."""
    row_of = {name: row for row, names in enumerate(rows) for name in names}
    column_of = {name: at for names in rows for at, name in enumerate(names)}
    ends = [(sender, receiver.partition(" ")[0]) for sender, receiver in wires]
    lane = 4.0 if wide < 520 else 6.0
    passing: list[list[list[int]]] = []
    for row, names in enumerate(rows):
        gaps: list[list[int]] = [[] for _ in range(len(names) + 1)]
        for at, (sender, to) in enumerate(ends):
            if row_of[sender] < row < row_of[to]:
                share = (column_of[to] + 0.5) / len(rows[row_of[to]]) * len(names)
                down, up = int(share), -int(-share // 1)
                gaps[down if 2 * share < len(names) else up].append(at)
        passing.append(gaps)
    board = Board(wide)
    heights = [LOW if row in (0, len(rows) - 1) else HIGH for row in range(len(rows))]
    y = board.high = sum(heights) + CHANNEL * (len(rows) - 1) + 2 * EDGE
    y -= EDGE
    lanes: dict[tuple[int, int], float] = {}
    for row, names in enumerate(rows):
        y -= heights[row]
        needs = [lane * (len(gap) + 1) + EDGE for gap in passing[row]]
        each = min(WIDEST, (wide - sum(needs)) / len(names))
        spare = (wide - sum(needs) - each * len(names)) / len(needs)
        x = 0.0
        for at, gap in enumerate(passing[row]):
            room = needs[at] + spare
            first = x + (room - lane * (len(gap) - 1)) / 2
            lanes |= {(row, wire): first + lane * nth for nth, wire in enumerate(gap)}
            x += room
            if at < len(names):
                board.chips[names[at]] = Chip(names[at], row, x, y, each, heights[row])
                x += each
        y -= CHANNEL
    _join(board, wires, ends, lanes)
    return board


def _join(
    board: Board,
    wires: Sequence[Wire],
    ends: Sequence[tuple[str, str]],
    lanes: dict[tuple[int, int], float],
) -> None:
    into = [_pin(board, wires, at) for at in range(len(wires))]
    for at, (sender, to) in enumerate(ends):
        chip, target = board.chips[sender], board.chips[to]

        def next_of(wire: int) -> float:
            """Where a wire goes next above the sender: to a lane, or to its pin."""
            return lanes.get((board.chips[ends[wire][0]].row + 1, wire), into[wire])

        own = sorted((w for w, end in enumerate(ends) if end[0] == sender), key=next_of)
        step = (chip.wide - 16) / max(1, len(own))
        x = chip.x + 8 + step * (own.index(at) + 0.5)
        path = [(x, chip.y)]
        for row in range(chip.row + 1, target.row):
            one = next(each for each in board.chips.values() if each.row == row)
            _bend(path, lanes[row, at], one.y + one.high)
            path += [path[-1], (path[-1][0], one.y), (path[-1][0], one.y)]
        _bend(path, into[at], target.y + target.high)
        board.paths.append(path)


def _bend(path: list[Point], x: float, y: float) -> None:
    """A curve upwards that leaves and arrives straight up."""
    x0, y0 = path[-1]
    half = (y0 - y) * 0.55
    path += [(x0, y0 - half), (x, y + half), (x, y)]


def _pin(board: Board, wires: Sequence[Wire], at: int) -> float:
    """Where a wire enters its receiver: each input has a third of the chip."""
    receiver = wires[at][1]
    name, _, part = receiver.partition(" ")
    chip = board.chips[name]
    own = [each for each, (_, to) in enumerate(wires) if to == receiver]
    own.sort(key=lambda each: (board.chips[wires[each][0]].x, each))
    share = (own.index(at) + 1) / (len(own) + 1)
    if receiver == LOGITS:
        return chip.x + chip.wide * share
    third = chip.wide / len(INTO)
    return chip.x + third * (INTO.index(part) + 0.12 + 0.76 * share)
