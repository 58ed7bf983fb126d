"""The primitives: who may see whom, in the shapes that the literature uses."""

import functools
import itertools
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.patterns.algebra import FULL, And, Blocks, Causal, Order, Pattern
from attnlab.core.patterns.intervals import Coverage, Intervals
from attnlab.core.shapes import checked

# ---- by distance


@dataclass(frozen=True, repr=False)
class Local(Pattern):
    """|i − j| ≤ radius."""

    radius: int

    def __post_init__(self) -> None:
        check_integer("radius", self.radius, at_least=0)

    @property
    def description(self) -> str:  # type: ignore[override]
        if self.radius == 0:
            return "each position sees itself"
        return f"each position sees itself and {self.radius} on either side"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"local({self.radius})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return (i - j).abs() <= self.radius

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        nearest, farthest = rows.first - columns.last, rows.last - columns.first
        every = (nearest >= -self.radius) & (farthest <= self.radius)
        return Coverage(every, (nearest <= self.radius) & (farthest >= -self.radius))


@dataclass(frozen=True, repr=False)
class Strided(Pattern):
    """i − j is a multiple of the stride."""

    stride: int

    def __post_init__(self) -> None:
        check_integer("stride", self.stride, at_least=1)

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"each position sees every {_ordinal(self.stride)}, counted from itself"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"strided({self.stride})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return (i - j) % self.stride == 0

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        # The differences are nearest, nearest + g, … farthest, with g = gcd of the two steps.
        nearest, farthest = rows.first - columns.last, rows.last - columns.first
        g = torch.gcd(rows.step, columns.step)
        every = (g % self.stride == 0) & (nearest % self.stride == 0)
        within = farthest // self.stride * self.stride >= nearest  # a multiple lies between them
        stride = torch.full_like(g, self.stride)
        return Coverage(every, within & (nearest % torch.gcd(g, stride) == 0))

    def order(self, m: int) -> Order | None:
        """By residue: those that are a multiple of the stride apart become neighbours."""
        if self.stride == 1 or m < 16 * self.stride:  # few to each residue: no order gains much
            return None
        runs = (torch.arange(residue, m, self.stride) for residue in range(self.stride))
        return Order(("residue", self.stride), tuple(runs))


# ---- by place


@dataclass(frozen=True, repr=False)
class Summaries(Pattern):
    """j is one of ``columns`` positions of its block of ``stride``, ``offset`` before its end."""

    stride: int
    columns: int
    offset: int = 0

    def __post_init__(self) -> None:
        check_integer("stride", self.stride, at_least=1)
        check_integer("columns", self.columns, at_least=1)
        check_integer("offset", self.offset, at_least=0)
        if self.columns + self.offset > self.stride:
            before = f", {self.offset} before the end," if self.offset else ""
            raise ValueError(
                f"{self.columns} summary columns{before} do not fit into blocks of {self.stride} "
                "positions"
            )

    @property
    def description(self) -> str:  # type: ignore[override]
        if self.offset:
            first, last = self._residues
            return f"each position sees positions {first} to {last} of every block of {self.stride}"
        which = "position" if self.columns == 1 else f"{self.columns} positions"
        return f"each position sees the last {which} of every block of {self.stride}"

    @property
    def code(self) -> str:  # type: ignore[override]
        offset = f", {self.offset}" if self.offset else ""
        return f"summaries({self.stride}, {self.columns}{offset})"

    @property
    def _residues(self) -> tuple[int, int]:
        """The first and the last of them within a block."""
        return self.stride - self.offset - self.columns, self.stride - self.offset - 1

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self._among(j % self.stride)

    def _among(self, residue: Tensor) -> Tensor:
        first, last = self._residues
        return (residue >= first) & (residue <= last)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """Exact for runs of positions and for steps by a multiple of the stride."""
        first, last = columns.first % self.stride, columns.last % self.stride
        one_block = columns.first // self.stride == columns.last // self.stride
        one_residue = columns.step % self.stride == 0
        together = one_block | one_residue | (self.columns == self.stride)
        every = together & self._among(first) & self._among(last)
        # The first summary at or after the beginning: is it still inside?
        ahead = torch.where(self._among(first), 0, (self._residues[0] - first) % self.stride)
        some = torch.where(one_residue, self._among(first), columns.first + ahead <= columns.last)
        return _spread(Coverage(every, some), rows)


@dataclass(frozen=True, repr=False)
class Places(Pattern):
    """The query (``of="row"``) or the key (``of="column"``) stands at one of ``positions``.

    A negative position counts from the end of the sequence.
    """

    positions: tuple[int, ...]
    of: str

    @property
    def description(self) -> str:  # type: ignore[override]
        where = ", ".join(map(str, self.positions))
        see = "see" if len(self.positions) > 1 else "sees"
        seen = {"row": f"{where} {see} every position", "column": f"every position sees {where}"}
        return seen[self.of]

    @property
    def code(self) -> str:  # type: ignore[override]
        return f'places({list(self.positions)}, of="{self.of}")'

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        x = i if self.of == "row" else j
        table = self._table.to(x.device)
        return table[x.clamp(max=len(table) - 1)]

    @functools.cached_property
    def _table(self) -> Tensor:
        """True at the chosen positions; one more after the last, for all that come later."""
        if min(self.positions) < 0:
            raise ValueError("where a sequence ends depends on its length: ask pattern.sized(n)")
        table = torch.zeros(max(self.positions) + 2, dtype=torch.bool)
        table[list(self.positions)] = True
        return table

    @functools.cached_property
    def _before(self) -> Tensor:
        return torch.nn.functional.pad(self._table.long().cumsum(0), (1, 0))

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        x, other = (rows, columns) if self.of == "row" else (columns, rows)
        before = self._before  # how many chosen positions come before each
        last = len(before) - 1
        found = before[(x.last + 1).clamp(max=last)] - before[x.first.clamp(max=last)]
        return _spread(Coverage(found == x.last - x.first + 1, found > 0), other)

    def sized(self, m: int) -> "Places":
        outside = [p for p in self.positions if not -m <= p < m]
        if outside:
            raise ValueError(f"position {outside[0]} is outside of a sequence of {m}: 0 … {m - 1}")
        if min(self.positions) >= 0:
            return self
        return Places(tuple(sorted({p % m for p in self.positions})), self.of)

    def order(self, m: int) -> Order | None:
        """The chosen queries together: each of them sees everything."""
        if self.of == "column":
            return None
        return Order(("places", self.positions), (torch.tensor(sorted(self.positions)),))


@dataclass(frozen=True, repr=False)
class Edges(Pattern):
    """The query (``of="row"``) or the key stands among the first or the last of the sequence."""

    first: int
    last: int
    of: str

    def __post_init__(self) -> None:
        check_integer("first", self.first, at_least=0)
        check_integer("last", self.last, at_least=0)

    @property
    def description(self) -> str:  # type: ignore[override]
        ends = (("first", self.first), ("last", self.last))
        where = " and the ".join(_some(end, size) for end, size in ends if size)
        see = "see" if self.first + self.last > 1 else "sees"
        seen = {"row": f"the {where} {see} every position", "column": f"all see the {where}"}
        return seen[self.of]

    @property
    def code(self) -> str:  # type: ignore[override]
        return f'edges({self.first}, {self.last}, of="{self.of}")'

    def sized(self, m: int) -> Pattern:
        """As many of them as there are: in a short sequence they meet."""
        if self.first + self.last >= m:
            return FULL
        return Places((*range(self.first), *range(m - self.last, m)), self.of)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        raise ValueError("where a sequence ends depends on its length: ask pattern.sized(n)")


@dataclass(frozen=True, repr=False)
class Local2d(Pattern):
    """Positions are the pixels of a grid in raster order; both coordinates lie within a radius."""

    shape: tuple[int, int]
    radius: int

    def __post_init__(self) -> None:
        check_integer("radius", self.radius, at_least=0)
        _grid(self.shape, 2)

    @property
    def description(self) -> str:  # type: ignore[override]
        side, (height, width) = 2 * self.radius + 1, self.shape
        return f"each pixel of {height} × {width} sees the square of side {side} around it"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"local_2d({self.shape}, {self.radius})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        width = self.shape[1]
        near_rows = (i // width - j // width).abs() <= self.radius
        return near_rows & ((i % width - j % width).abs() <= self.radius)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        vertical = Local(self.radius).covers(rows // self.shape[1], columns // self.shape[1])
        return vertical & Local(self.radius).covers(self._across(rows), self._across(columns))

    def _across(self, intervals: Intervals) -> Intervals:
        """The columns of the grid that the positions fall into; all of them past a line's end."""
        width = self.shape[1]
        one_line = intervals.first // width == intervals.last // width
        first = torch.where(one_line, intervals.first % width, 0)
        return Intervals(
            first, torch.where(one_line, intervals.last % width, width - 1), intervals.step
        )

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        _fill(self.shape, m)

    def order(self, m: int) -> Order | None:
        """Tile by tile: neighbours in both directions share what they see."""
        height, width = self.shape
        grid = torch.arange(height * width).view(height, width)
        tiles = (tile for band in grid.split(8) for tile in band.split(8, dim=1))
        return Order(("tiles", self.shape), tuple(tile.flatten() for tile in tiles))


@dataclass(frozen=True, repr=False)
class Axial(Pattern):
    """A pattern of the positions of a grid: sequences are as long as the grid has cells."""

    shape: tuple[int, ...]
    axis: int

    def __post_init__(self) -> None:
        _grid(self.shape)
        if not -len(self.shape) <= self.axis < len(self.shape):
            raise ValueError(f"a grid of shape {self.shape} has no axis {self.axis}")

    @property
    def description(self) -> str:  # type: ignore[override]
        grid = " × ".join(map(str, self.shape))
        return f"each cell of {grid} sees those that differ from it along axis {self.axis} alone"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"axial({self.shape}, {self.axis})"

    @functools.cached_property
    def _parts(self) -> Pattern:
        axis = self.axis % len(self.shape)
        inner = math.prod(self.shape[axis + 1 :])
        line, along = Strided(inner), Blocks(inner * self.shape[axis], Local(0))
        if axis == 0:
            return line
        return along if inner == 1 else And(along, line)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self._parts.allows(i, j)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return self._parts.covers(rows, columns)

    def order(self, m: int) -> Order | None:
        return self._parts.order(m)

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        _fill(self.shape, m)


# ---- by table


@dataclass(frozen=True, repr=False)
class Random(Pattern):
    """Each query sees ``keys`` different positions, drawn for each length and seed anew.

    They are drawn from what ``among`` allows it: from all of that where it is fewer.
    """

    keys: int
    seed: int = 0
    among: Pattern = FULL

    def __post_init__(self) -> None:
        check_integer("keys", self.keys, at_least=0)
        check_integer("seed", self.seed)
        if not isinstance(self.among, Pattern):
            raise TypeError(f"among should be a pattern to draw from, got {self.among!r}")
        if self.among.heads() is not None:
            raise ValueError("all heads draw alike: give each head a random pattern of its own")

    @property
    def description(self) -> str:  # type: ignore[override]
        among = "" if self.among == FULL else f" of these: {self.among.description}"
        return f"each position sees {self.keys} positions drawn at random{among}"

    @property
    def code(self) -> str:  # type: ignore[override]
        among = "" if self.among == FULL else f", among={self.among.code}"
        return f"random({self.keys}, seed={self.seed}{among})"

    @property
    def key(self) -> str:
        among = "" if self.among == FULL else f", among={self.among.key}"
        return f"random({self.keys}, seed={self.seed}{among})"

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        self.among.refuse_misfit(m, b)

    def sized(self, m: int) -> "Listed":
        if self.among == FULL:
            return _drawn(self.keys, self.seed, m, self.description, self.code)
        return _drawn_among(self, m)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        raise ValueError("a random pattern is drawn for a length: ask pattern.sized(n)")


_HELD: "weakref.WeakValueDictionary[int, Held]" = weakref.WeakValueDictionary()
_number = itertools.count()


class Held(Pattern):
    """A pattern that holds a tensor: it equals itself alone, and ``key`` is a number for it.

    A copy is made anew from the fields, with a number of its own.
    """

    def __post_init__(self) -> None:
        number = next(_number)
        # A text, not a number: torch.compile takes numbers that change for symbols.
        object.__setattr__(self, "_key", f"held({number})")
        _HELD[number] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, part.name) for part in fields(self))  # type: ignore[arg-type]

    @property
    def key(self) -> str:
        return self._key  # type: ignore[attr-defined]


def held(number: int) -> Pattern:
    """The pattern that holds a tensor under this number, while it lives."""
    if number not in _HELD:
        raise ValueError(f"no pattern is held under {number}: it was dropped, or never made")
    return _HELD[number]


@dataclass(frozen=True, eq=False, repr=False)
class Listed(Held):
    """The query at position i sees the keys ``table[i]``; −1 stands for none."""

    table: Int[Tensor, "m keys"]
    description: str = "each position sees the keys that a table lists for it"
    code: str = "listed(table)"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        table = self.table.to(i.device)
        found = torch.zeros((), dtype=torch.bool, device=i.device)
        for drawn in table.unbind(-1):
            found = found | (drawn[i] == j)
        return found

    @functools.cached_property
    def _pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs i·m + j and j·m + i, sorted, and how many fall above and left of each tile."""
        m, side = len(self.table), self._tile
        i, place = (self.table >= 0).nonzero(as_tuple=True)
        i, j = torch.stack((i, self.table[i, place]), -1).unique(dim=0).unbind(-1)
        tiles = -(-m // side)
        counts = torch.bincount(i // side * tiles + j // side, minlength=tiles * tiles)
        sums = torch.zeros(tiles + 1, tiles + 1, dtype=torch.long)
        sums[1:, 1:] = counts.view(tiles, tiles).cumsum(0).cumsum(1)
        return (i * m + j).sort().values, (j * m + i).sort().values, sums

    @property
    def _tile(self) -> int:
        return max(1, len(self.table) // 1024)

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        if len(self.table) != m:
            raise ValueError(f"the table is for {len(self.table)} positions, but there are {m}")

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """Exact for one row or one column; by tiles of pairs for the rest.

        Intervals may end beyond the table ("all later queries", while decoding), where it lists
        nothing.
        """
        m, side = len(self.table), self._tile
        by_row, by_column, sums = self._pairs
        row, row_end = rows.first.clamp(max=m), rows.last.clamp(max=m - 1)
        column, column_end = columns.first.clamp(max=m), columns.last.clamp(max=m - 1)
        in_row = _between(by_row, row * m + column, row * m + column_end)
        in_column = _between(by_column, column * m + row, column * m + row_end)
        tiles = len(sums) - 1
        top, bottom = (row // side).clamp(max=tiles), row_end // side + 1
        left, right = (column // side).clamp(max=tiles), column_end // side + 1
        inside = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
        found = torch.where(rows.single, in_row, torch.where(columns.single, in_column, inside))
        one = rows.single | columns.single
        area = (rows.last - rows.first + 1) * (columns.last - columns.first + 1)
        return Coverage((found == area) & (one | (side == 1)), found > 0)


def _between(ordered: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """How many of the ordered numbers lie in first … last."""
    found: Tensor = torch.searchsorted(ordered, last, right=True)
    return found - torch.searchsorted(ordered, first)


@functools.lru_cache(maxsize=32)
def _drawn(keys: int, seed: int, m: int, words: str, code: str) -> Listed:
    generator = torch.Generator().manual_seed(seed)
    keys = min(keys, m)
    if m <= 1024 or 2 * keys > m:
        rows = (torch.randperm(m, generator=generator)[:keys] for _ in range(m))
        return Listed(torch.stack(list(rows)), words, code)
    drawn = torch.randint(m, (m, keys), generator=generator)
    while (again := _duplicates(drawn)).any():  # cheaper than m permutations of m
        drawn[again] = torch.randint(m, (int(again.sum()),), generator=generator)
    return Listed(drawn, words, code)


@functools.lru_cache(maxsize=32)
def _drawn_among(pattern: Random, m: int) -> Listed:
    """A few rows at a time: every allowed key gets a random number, and the largest are drawn."""
    generator = torch.Generator().manual_seed(pattern.seed)
    among, keys, drawn = pattern.among.sized(m), min(pattern.keys, m), []
    for rows in torch.arange(m).split(max(1, (1 << 20) // m)):
        allowed = among.allows(rows[:, None], torch.arange(m)[None])
        if allowed.dim() > 2:
            raise ValueError(f"{among} differs between sequences: nothing can be drawn from it")
        chances = torch.rand(len(rows), m, generator=generator, dtype=torch.float64)
        chances = chances.masked_fill(~allowed, -1)
        best = chances.topk(keys, dim=-1)
        drawn.append(best.indices.masked_fill(best.values < 0, -1))
    return Listed(torch.cat(drawn), pattern.description, pattern.code)


def _duplicates(drawn: Tensor) -> Tensor:
    ordered, places = drawn.sort(dim=-1)
    same = torch.zeros_like(drawn, dtype=torch.bool)
    same[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(same).scatter(1, places, same)


@dataclass(frozen=True, eq=False, repr=False)
class Documents(Held):
    """i and j belong to the same document; the mask has a batch axis if the ids have."""

    ids: Int[Tensor, "m"] | Int[Tensor, "b m"]
    description = "each position sees its own document"
    code = "document(ids)"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        ids = self.ids.to(i.device)
        if ids.dim() == 1:
            return ids[i] == ids[j]
        return (ids[:, i] == ids[:, j])[:, None]

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """Exact while documents are runs: by the smallest and largest id of a block."""
        axes = max(rows.first.dim(), columns.first.dim())
        rows, columns = (
            (intervals[(None,) * (axes - intervals.first.dim())]) for intervals in (rows, columns)
        )
        low, high = self._extremes(rows), self._extremes(columns)
        one = (low[0] == low[1]) & (high[0] == high[1])
        every = one & (low[0] == high[0])
        some = (low[0] <= high[1]) & (high[0] <= low[1])
        return Coverage(every.all(0), some.any(0))

    def _extremes(self, intervals: Intervals) -> tuple[Tensor, Tensor]:
        """The smallest and the largest id of each span, (b, *intervals), from a table of powers."""
        smallest, largest = self._table
        level = (intervals.last - intervals.first + 1).double().log2().floor().long()
        second = intervals.last - 2**level + 1
        low = torch.minimum(smallest[level, :, intervals.first], smallest[level, :, second])
        high = torch.maximum(largest[level, :, intervals.first], largest[level, :, second])
        return low.movedim(-1, 0), high.movedim(-1, 0)

    @functools.cached_property
    def _table(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest id of every run of 2^level positions: (levels, b, m)."""
        ids = self.ids.cpu().reshape(-1, self.ids.shape[-1])
        smallest, largest, m = [ids], [ids], ids.shape[-1]
        for level in range((m).bit_length() - 1):
            ahead = (torch.arange(m) + 2**level).clamp(max=m - 1)
            smallest.append(torch.minimum(smallest[-1], smallest[-1][:, ahead]))
            largest.append(torch.maximum(largest[-1], largest[-1][:, ahead]))
        return torch.stack(smallest), torch.stack(largest)

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        _fits("document ids are", self.ids, m, b)


@dataclass(frozen=True, eq=False, repr=False)
class Padding(Pattern):
    """Key j is a real token of its sequence; the mask has a batch axis, (b, 1, n, m)."""

    valid: Bool[Tensor, "b m"]
    description = "only real tokens are seen, not the padding"
    code = "padding(valid)"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.valid.to(j.device)[:, j][:, None]

    def dense(
        self, n: int, m: int | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        return super().dense(n, m, self.valid.device if device is None else device)

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        _fits("padding is", self.valid, m, b)


@dataclass(frozen=True, repr=False)
class PerHead(Pattern):
    """One pattern per head; the mask has a head axis, (h, n, m)."""

    patterns: tuple[Pattern, ...]

    @property
    def description(self) -> str:  # type: ignore[override]
        return "; ".join(f"head {h}: {p.description}" for h, p in enumerate(self.patterns))

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"per_head({', '.join(p.code for p in self.patterns)})"

    @property
    def key(self) -> str:
        return f"per_head({', '.join(p.key for p in self.patterns)})"

    def __post_init__(self) -> None:
        for head, pattern in enumerate(self.patterns):
            if not isinstance(pattern, Pattern):
                raise TypeError(f"per_head takes patterns, got {pattern!r} for head {head}")
            if pattern.heads() is not None:
                raise ValueError(f"the pattern of head {head} is itself for several heads")

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        pairs = torch.broadcast_shapes(i.shape, j.shape)
        seen = [p.allows(i, j) for p in self.patterns]
        if all(allowed.dim() <= len(pairs) for allowed in seen):
            return torch.stack([allowed.expand(pairs) for allowed in seen])
        # Some differ from sequence to sequence: (b, 1, …) each.
        front = torch.broadcast_shapes(*(allowed.shape[: -len(pairs)] for allowed in seen))
        return torch.cat([allowed.expand(*front, *pairs) for allowed in seen], dim=1)

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        covers = [p.covers(rows, columns) for p in self.patterns]
        every = functools.reduce(torch.logical_and, (c.every for c in covers))
        return Coverage(every, functools.reduce(torch.logical_or, (c.some for c in covers)))

    def sized(self, m: int) -> "PerHead":
        patterns = tuple(p.sized(m) for p in self.patterns)
        same = all(new is old for new, old in zip(patterns, self.patterns, strict=True))
        return self if same else PerHead(patterns)

    def of_head(self, head: int) -> Pattern:
        return self.patterns[head]

    def heads(self) -> int | None:
        return len(self.patterns)

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        for pattern in self.patterns:
            pattern.refuse_misfit(m, b)


# ---- what the world calls them


def full() -> Pattern:
    """Every position sees every position."""
    return FULL


def causal() -> Pattern:
    """Each position sees itself and those before it (j ≤ i)."""
    return Causal()


def local(radius: int) -> Pattern:
    """Each position sees itself and ``radius`` on either side (|i − j| ≤ radius)."""
    return Local(radius)


def dilated(radius: int, step: int) -> Pattern:
    """A window with gaps: ``radius`` positions on either side, every ``step``-th only."""
    check_integer("radius", radius, at_least=0)
    return Local(radius * step) & Strided(step)


def strided(stride: int) -> Pattern:
    """Each position sees every ``stride``-th, counted from itself ((i − j) mod stride = 0)."""
    return Strided(stride)


def summaries(stride: int, columns: int = 1, offset: int = 0) -> Pattern:
    """Everybody sees the last ``columns`` positions of every block of ``stride``.

    With an ``offset`` those that many positions before the end of the block.
    """
    return Summaries(stride, columns, offset)


def fixed(stride: int, columns: int = 1) -> Pattern:
    """Its own block of ``stride``, and the last ``columns`` positions of every block.

    Child et al. 2019, section 4.3 (l and c there), before the causal intersection.
    """
    return block_diagonal(stride) | Summaries(stride, columns)


def global_(positions: Sequence[int]) -> Pattern:
    """``positions`` see everybody and are seen by everybody; a negative one counts from the end."""
    return places(positions, "column") | places(positions, "row")


def places(positions: Sequence[int], of: str) -> Pattern:
    """``positions`` see everybody (``of="row"``), or are seen by everybody (``of="column"``)."""
    if of not in ("row", "column"):
        raise ValueError(f'places are of a "row" or of a "column", got {of!r}')
    chosen = tuple(dict.fromkeys(int(p) for p in positions))
    return Places(chosen, of) if chosen else ~FULL


def edges(first: int, last: int = 0, *, of: str) -> Pattern:
    """The first and last positions see everybody (``of="row"``), or are seen (``of="column"``).

    As many of them as there are: of a sequence that is shorter, all.
    """
    if of not in ("row", "column"):
        raise ValueError(f'edges are of a "row" or of a "column", got {of!r}')
    ends = Edges(first, last, of)
    return ends if first + last else ~FULL


def hub(position: int = 0) -> Pattern:
    """One position that sees everybody and is seen by everybody."""
    return global_([position])


def prefix(length: int) -> Pattern:
    """Everybody sees the first ``length`` positions; ``causal() | prefix(k)`` is a prefix LM."""
    check_integer("length", length, at_least=1)
    return Prefix(length)


@dataclass(frozen=True, repr=False)
class Prefix(Pattern):
    """j < length."""

    length: int

    @property
    def description(self) -> str:  # type: ignore[override]
        return f"each position sees the {_some('first', self.length)}"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"prefix({self.length})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return j < self.length

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        return _spread(Coverage(columns.last < self.length, columns.first < self.length), rows)


def random(keys: int, seed: int = 0, among: Pattern = FULL) -> Pattern:
    """Each position sees ``keys`` different positions, drawn at random from those ``among`` allows.

    ``random(3, among=~local(1))`` draws nothing that a window has anyway. With ``among`` drawing
    looks at m² pairs; draw between ``blocks`` where that is too many.
    """
    return Random(keys, seed, among)


@checked
def listed(table: Int[Tensor, "m keys"]) -> Pattern:
    """The query at position i sees the keys ``table[i]``; −1 stands for none."""
    wrong = table[(table < -1) | (table >= len(table))]
    if len(wrong):
        raise ValueError(
            f"the table lists key {int(wrong[0])}, but its {len(table)} rows stand for the "
            f"positions 0 … {len(table) - 1}; -1 stands for none"
        )
    return Listed(table)


def blocks(size: int, of: Pattern | None = None) -> Pattern:
    """i sees j if i's block of ``size`` positions sees j's in ``of`` (by default: the same one)."""
    return Blocks(size, Local(0) if of is None else of)


def block_diagonal(size: int) -> Pattern:
    """Each position sees its own block of ``size`` positions."""
    return Blocks(size, Local(0))


def axial(shape: Sequence[int], axis: int) -> Pattern:
    """Positions are the cells of a grid in raster order; each sees its line along ``axis``."""
    return Axial(_tuple(shape), axis)


def local_2d(shape: tuple[int, int], radius: int) -> Pattern:
    """Pixels in raster order; each sees the square of side 2·radius + 1 around it."""
    return Local2d(_tuple(shape), radius)


@checked
def document(ids: Int[Tensor, "m"] | Int[Tensor, "b m"]) -> Pattern:
    """Each position sees its own document: ``ids`` says which document each position is of."""
    return Documents(ids)


@checked
def padding(valid: Bool[Tensor, "b m"] | None) -> Pattern:
    """Only real tokens are seen: ``real`` is True at a real token. None pads nothing."""
    return FULL if valid is None else Padding(valid)


def per_head(*patterns: Pattern) -> Pattern:
    """One pattern for each head, in order."""
    if not patterns:
        raise ValueError("per_head needs a pattern for each head, got none")
    return PerHead(patterns)


# ---- helpers


def _spread(coverage: Coverage, over: Intervals) -> Coverage:
    """The same answer for every block of the other axis."""
    shape = torch.broadcast_shapes(coverage.some.shape, over.first.shape)
    return Coverage(coverage.every.expand(shape), coverage.some.expand(shape))


def _tuple(shape: Sequence[int]) -> Any:
    if not isinstance(shape, Sequence):
        raise TypeError(f"the grid's shape should be its sizes, as in (4, 6), got {shape!r}")
    return tuple(shape)


def _grid(shape: tuple[int, ...], dimensions: int | None = None) -> None:
    if dimensions is not None and len(shape) != dimensions:
        raise ValueError(f"the grid should have {dimensions} dimensions, got the shape {shape}")
    if not shape or any(not isinstance(size, int) or size < 1 for size in shape):
        raise ValueError(f"the grid's shape should be positive whole numbers, got {shape}")


def _fill(shape: Sequence[int], m: int) -> None:
    cells = math.prod(shape)
    if cells != m:
        grid = " × ".join(map(str, shape))
        raise ValueError(f"a grid of {grid} has {cells} positions, but the sequence has {m}")


def _fits(what: str, x: Tensor, m: int, b: int | None) -> None:
    if x.shape[-1] != m:
        raise ValueError(f"{what} for {x.shape[-1]} keys, but there are {m}")
    if b is not None and x.dim() == 2 and x.shape[0] not in (1, b):
        raise ValueError(f"{what} for {x.shape[0]} sequences, but there are {b}")


def _some(end: str, size: int) -> str:
    return end if size == 1 else f"{end} {size}"


def _ordinal(number: int) -> str:
    if number == 1:
        return "position"
    suffix = (
        "th" if 11 <= number % 100 <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{suffix} position"
