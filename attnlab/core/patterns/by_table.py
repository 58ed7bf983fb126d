"""Patterns by table: keys drawn at random, keys listed one by one, documents, padding."""

import functools
import itertools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.patterns.algebra import FULL, Pattern, Primitive, makes_pattern
from attnlab.core.patterns.arguments import Argument
from attnlab.core.patterns.intervals import Coverage, Intervals
from attnlab.core.shapes import checked


@dataclass(frozen=True, repr=False)
class Random(Primitive):
    """Each position attends to ``keys`` positions, drawn at random from those ``among`` allows.

    The keys are distinct; where ``among`` allows fewer, all of those are taken. ``random(3,
    among=~local(1))`` draws no key in a window of radius 1. Drawing with ``among`` computes all m²
    pairs; where these are too many, draw blocks: ``random(3, among=~local(1)).blocks(64)``.
    """

    keys: Annotated[int, Argument("whole", at_least=0, start=3)]
    seed: Annotated[int, Argument("whole", named=True)] = 0
    among: Annotated[Pattern, Argument("pattern", named=True, optional=True)] = FULL
    says = (
        ("code(among) == 'full()'", "each position attends to {keys} positions drawn at random"),
        (
            "True",
            "each position attends to {keys} positions drawn at random of these: "
            "{description(among)}",
        ),
    )
    rule = "j in drawn(keys, seed, among, n, i)"
    remark = (
        (
            "keys > n",
            "{keys} random keys are more than the {n} positions: every query attends to every key",
        ),
    )

    def __post_init__(self) -> None:
        if not isinstance(self.among, Pattern):
            raise TypeError(f"among should be a pattern to draw from, got {self.among!r}")
        super().__post_init__()
        if self.among.heads() is not None:
            raise ValueError("all heads draw alike: give each head a random pattern of its own")

    def refuse_misfit(self, m: int, b: int | None = None, heads: int | None = None) -> None:
        self.among.refuse_misfit(m, b, heads)

    def remarks(self, m: int) -> Iterator[str]:
        yield from super().remarks(m)
        yield from self.among.remarks(m)

    def sized(self, m: int) -> "Listed":
        if self.among == FULL:
            return _drawn(self.keys, self.seed, m, self.description, self.code)
        return _drawn_among(self, m)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        raise ValueError("a random pattern is drawn for a length: ask pattern.sized(n)")


random = makes_pattern(Random)


_HELD: "weakref.WeakValueDictionary[int, Held]" = weakref.WeakValueDictionary()
_number = itertools.count()


class Held(Pattern):
    """A pattern that holds a tensor, and has a number by which ``held`` finds it.

    Two of them are equal only if they are the same object; a copy gets another number.
    """

    def __post_init__(self) -> None:
        number = next(_number)
        # Kept as text, because torch.compile would make a symbol of a number that changes.
        object.__setattr__(self, "_key", f"held({number})")
        _HELD[number] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, part.name) for part in fields(self))  # type: ignore[arg-type]

    @property
    def key(self) -> str:
        return self._key  # type: ignore[attr-defined]


def held(number: int) -> Pattern:
    """The pattern with this number, as long as some variable still refers to it."""
    if number not in _HELD:
        raise ValueError(f"no pattern is held under {number}: it was dropped, or never made")
    return _HELD[number]


@dataclass(frozen=True, eq=False, repr=False)
class Listed(Held):
    """The query at position i attends to the keys ``table[i]``; −1 stands for none."""

    table: Int[Tensor, "m keys"]
    description: str = "each position attends to the keys that a table lists for it"
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

    def refuse_misfit(self, m: int, b: int | None = None, heads: int | None = None) -> None:
        if len(self.table) != m:
            raise ValueError(f"the table is for {len(self.table)} positions, but there are {m}")

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """Exact for a single row or column; other blocks are judged by the tiles that they touch.

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
def _drawn(keys: int, seed: int, m: int, description: str, code: str) -> Listed:
    generator = torch.Generator().manual_seed(seed)
    keys = min(keys, m)
    if m <= 1024 or 2 * keys > m:
        rows = (torch.randperm(m, generator=generator)[:keys] for _ in range(m))
        return Listed(torch.stack(list(rows)), description, code)
    drawn = torch.randint(m, (m, keys), generator=generator)
    while (again := _duplicates(drawn)).any():  # cheaper than m permutations of m positions
        drawn[again] = torch.randint(m, (int(again.sum()),), generator=generator)
    return Listed(drawn, description, code)


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
    """i and j belong to the same document; the mask has a batch axis if ``ids`` has one."""

    ids: Int[Tensor, "m"] | Int[Tensor, "b m"]
    description = "each position attends to its own document"
    code = "document(ids)"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        ids = self.ids.to(i.device)
        if ids.dim() == 1:
            return ids[i] == ids[j]
        return (ids[:, i] == ids[:, j])[:, None]

    def covers(self, rows: Intervals, columns: Intervals) -> Coverage:
        """Compares smallest and largest ids: exact for consecutive positions and ascending ids."""
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
        """The smallest and the largest id in each interval, (b, *intervals).

        Two runs of 2^level positions cover an interval; ``_table`` holds those of each run.
        """
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

    def refuse_misfit(self, m: int, b: int | None = None, heads: int | None = None) -> None:
        _fits("document ids are", self.ids, m, b)


@dataclass(frozen=True, eq=False, repr=False)
class Padding(Pattern):
    """Key j is valid, that is, not padding; the mask has a batch axis, (b, 1, n, m)."""

    valid: Bool[Tensor, "b m"]
    description = "valid keys alone are attended to, not the padding"
    code = "padding(valid)"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.valid.to(j.device)[:, j][:, None]

    def dense(
        self, n: int, m: int | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        return super().dense(n, m, self.valid.device if device is None else device)

    def refuse_misfit(self, m: int, b: int | None = None, heads: int | None = None) -> None:
        _fits("padding is", self.valid, m, b)


@checked
def listed(table: Int[Tensor, "m keys"]) -> Pattern:
    """The query at position i attends to the keys ``table[i]``; −1 stands for none."""
    if table.is_meta:
        raise ValueError("a table on the meta device holds no positions; give it on another device")
    wrong = table[(table < -1) | (table >= len(table))]
    if len(wrong):
        raise ValueError(
            f"the table lists key {int(wrong[0])}, but its {len(table)} rows stand for the "
            f"positions 0 … {len(table) - 1}; -1 stands for none"
        )
    return Listed(table)


@checked
def document(ids: Int[Tensor, "m"] | Int[Tensor, "b m"]) -> Pattern:
    """Each position attends to its own document; ``ids`` gives the document of each position."""
    return Documents(ids)


@checked
def padding(valid: Bool[Tensor, "b m"] | None) -> Pattern:
    """Only valid keys are attended to: ``valid`` is False at padding. None: there is no padding."""
    return FULL if valid is None else Padding(valid)


def _fits(what: str, x: Tensor, m: int, b: int | None) -> None:
    if x.shape[-1] != m:
        raise ValueError(f"{what} for {x.shape[-1]} keys, but there are {m}")
    if b is not None and x.dim() == 2 and x.shape[0] not in (1, b):
        raise ValueError(f"{what} for {x.shape[0]} sequences, but there are {b}")
