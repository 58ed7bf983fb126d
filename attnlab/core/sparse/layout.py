"""Layouts: which pairs of a pattern are computed together, block by block.

A layout lists blocks of queries, the keys that each block needs, and which of these pairs are
allowed. Three ideas keep it small:

**Order.** Queries are ordered so that neighbours have similar keys. A strided pattern has allowed
pairs in every block of the natural order; with positions ordered by their residue modulo the
stride, its allowed pairs fill a few blocks, and the other blocks are empty. A union of patterns
with different orders becomes several parts over disjoint pairs, whose outputs are combined by their
log-sum-exps.

**Key lists.** A block of queries lists the single keys that any of its queries attends to, not
blocks of keys: a single key that all queries attend to adds one entry to the list, not 128.

**Masks** are stored only for blocks that are not full, and once if all blocks have the same one.

No n × m tensor is needed: ``Pattern.covers`` classifies blocks of pairs by interval arithmetic,
then single columns of the mixed blocks; only mixed columns are evaluated pair by pair.
"""

import functools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from attnlab.core.options import Size
from attnlab.core.patterns import FULL, Intervals, Order, Pattern
from attnlab.core.patterns.algebra import LONGEST, check_device
from attnlab.core.shapes import checked

BLOCKS = (32, 64, 128)  # queries in a block
ROWS = BLOCKS[0]
GATHER_COST = 24  # cost of fetching a key for a block, as a number of pairs
LEAST_SLIDING = 4  # blocks that slide are a batch of their own from so many on
PAIRS_AT_ONCE = 1 << 20  # pairs evaluated at once


class Steps(NamedTuple):
    """Positions at constant steps: place c of block i is first + i · block + c · place.

    In a window with blocks of 64 queries, the keys of each block are consecutive (``place`` 1) and
    begin 64 further on (``block`` 64). Of the positions in the order of their residues modulo s,
    neighbours are s apart (``place`` s).
    """

    first: int
    block: int
    place: int

    @classmethod
    def of(cls, positions: Tensor) -> "Steps | None":
        """The steps of (blocks, places); None if they are not constant or not forwards."""
        first = int(positions[0, 0])
        block = int(positions[1, 0]) - first if len(positions) > 1 else 0
        place = int(positions[0, 1]) - first if positions.shape[1] > 1 else 0
        blocks, places = (torch.arange(size) for size in positions.shape)
        regular = first + block * blocks[:, None] + place * places
        constant = min(block, place) >= 0 and torch.equal(positions, regular)
        return cls(first, block, place) if constant else None

    def later(self, blocks: int) -> "Steps":
        return self._replace(first=self.first + blocks * self.block)

    def view(self, x: Tensor, blocks: int, places: int) -> Tensor:
        """The rows of x (g, n, …) at the positions, in place; they may overlap: (g, blocks, …)."""
        sequence, row, *width = x.stride()
        shape = (len(x), blocks, places, *x.shape[2:])
        strides = (sequence, self.block * row, self.place * row, *width)
        return x.as_strided(shape, strides, x.storage_offset() + self.first * row)

    def add(self, x: Tensor, values: Tensor) -> None:
        """Add values (g, blocks, places, …) to the rows of x at the positions."""
        blocks, places = values.shape[1:3]
        if self.block == 0:  # the same positions in all blocks
            self.view(x, 1, places).add_(values.sum(1, keepdim=True))
            return
        # Blocks may overlap, but some places at a time do not.
        apart = blocks * self.block <= self.place
        at_once = places if apart or blocks == 1 else max(1, self.block // max(1, self.place))
        for place in range(0, places, at_once):
            some = values[:, :, place : place + at_once]
            start = self._replace(first=self.first + place * self.place)
            start.view(x, blocks, some.shape[2]).add_(some)


@dataclass(frozen=True, eq=False)
class Batch:
    """Blocks of queries that are computed at once, with equally many queries and keys each.

    ``queries`` and ``keys`` are indices into q and k. ``mask`` is None where every pair is allowed;
    its axes of blocks and rows have size 1 where all are equal; batch and head axes may stand in
    front. Positions at constant steps are read and written in place, others through their indices.
    """

    queries: Int[Tensor, "blocks rows"]
    keys: Int[Tensor, "blocks columns"]
    mask: Bool[Tensor, "... #blocks #rows columns"] | None
    query_steps: Steps | None = None
    key_steps: Steps | None = None

    @classmethod
    def of(cls, queries: Tensor, keys: Tensor, mask: Tensor | None) -> "Batch":
        """A batch, with the steps of its queries and keys."""
        return cls(queries, keys, mask, Steps.of(queries), Steps.of(keys))

    @property
    def pairs(self) -> int:
        """How many pairs are computed, allowed or not."""
        return self.queries.numel() * self.keys.shape[-1]

    def split(self, blocks: int) -> Iterator["Batch"]:
        """Smaller batches of at most ``blocks`` blocks."""
        for start in range(0, len(self.queries), blocks):
            part = slice(start, start + blocks)
            mask = self.mask
            if mask is not None and mask.shape[-3] > 1:
                mask = mask[..., part, :, :]
            steps = (s and s.later(start) for s in (self.query_steps, self.key_steps))
            yield Batch(self.queries[part], self.keys[part], mask, *steps)

    def to(self, device: torch.device) -> "Batch":
        mask = None if self.mask is None else self.mask.to(device)
        return replace(self, queries=self.queries.to(device), keys=self.keys.to(device), mask=mask)

    # ---- read and write by blocks: x is (g, n, …), its blocks (g, blocks, rows, …)

    def take_queries(self, x: Tensor) -> Tensor:
        """The rows of x at the queries; a view if these have steps."""
        return _take(x, self.queries, self.query_steps)

    def take_keys(self, x: Tensor) -> Tensor:
        """The rows of x at the keys; a view, which may overlap itself, if these have steps."""
        return _take(x, self.keys, self.key_steps)

    def put(self, x: Tensor, values: Tensor) -> None:
        """Write ``values`` to the rows of x at the queries."""
        if self.query_steps is None:
            x.index_copy_(1, self.queries.flatten(), values.flatten(1, 2).to(x.dtype))
        else:
            self.query_steps.view(x, *self.queries.shape).copy_(values)

    def add_queries(self, x: Tensor, values: Tensor) -> None:
        """Add ``values`` to the rows of x at the queries."""
        _add(x, self.queries, self.query_steps, values)

    def add_keys(self, x: Tensor, values: Tensor) -> None:
        """Add ``values`` to the rows of x at the keys, which may be listed several times."""
        _add(x, self.keys, self.key_steps, values)


def _take(x: Tensor, positions: Tensor, steps: Steps | None) -> Tensor:
    if steps is None:
        return x.index_select(1, positions.flatten()).unflatten(1, positions.shape)
    return steps.view(x, *positions.shape)


def _add(x: Tensor, positions: Tensor, steps: Steps | None, values: Tensor) -> None:
    if steps is None:
        x.index_add_(1, positions.flatten(), values.flatten(1, 2).to(x.dtype))
    else:
        steps.add(x, values)


@dataclass(frozen=True, eq=False)
class Layout:
    """The parts of a pattern for n queries and m keys. Within a part a query appears once."""

    n: int
    m: int
    parts: tuple[tuple[Batch, ...], ...]

    @property
    def pairs(self) -> int:
        """How many pairs are computed; ``pattern.count(n, m)`` of them are allowed."""
        return sum(batch.pairs for part in self.parts for batch in part)

    @property
    def gathered(self) -> int:
        """How many keys are fetched, each once for every block that lists it."""
        return sum(batch.keys.numel() for part in self.parts for batch in part)

    @property
    def cost(self) -> int:
        return self.pairs + GATHER_COST * self.gathered

    def dense(self) -> Bool[Tensor, "... n m"]:
        """The n × m mask of the layout (for tests and figures)."""
        batches = [batch for part in self.parts for batch in part]
        masks = [batch.mask for batch in batches if batch.mask is not None]
        front = torch.broadcast_shapes(*(mask.shape[:-3] for mask in masks))
        seen = torch.zeros(math.prod(front), self.n * self.m, dtype=torch.long)
        for batch in batches:
            pairs = batch.queries[:, :, None] * self.m + batch.keys[:, None, :]
            mask = torch.ones(()) if batch.mask is None else batch.mask
            allowed = mask.expand(*front, *pairs.shape).reshape(len(seen), -1)
            seen.index_add_(1, pairs.flatten(), allowed.long())
        if (seen > 1).any():
            raise AssertionError("a pair is computed twice")
        return seen.view(*front, self.n, self.m) > 0

    @functools.cached_property
    def fully_masked(self) -> tuple[int, ...]:
        """The queries without allowed keys in every sequence."""
        sees_some_key = torch.zeros(self.n, dtype=torch.bool)
        for batch in (batch for part in self.parts for batch in part):
            sees = torch.ones((), dtype=torch.bool) if batch.mask is None else batch.mask.any(-1)
            sees = sees.expand(*sees.shape[:-2], *batch.queries.shape).cpu()
            seen = sees.reshape(-1, *batch.queries.shape).any(0)
            sees_some_key[batch.queries.cpu()[seen]] = True
        return tuple((~sees_some_key).nonzero().flatten().tolist())

    def to(self, device: torch.device) -> "Layout":
        parts = tuple(tuple(batch.to(device) for batch in part) for part in self.parts)
        return replace(self, parts=parts)


@checked
def layout(
    pattern: Pattern, n: Size, m: Size, block: Size | None = None, device: str = "cpu"
) -> Layout:
    """The cheapest layout found for a pattern; ``block`` fixes the number of queries in a block.

    Cached by pattern, lengths, block and device.
    """
    check_device(device)
    if m > LONGEST:
        raise ValueError(f"a layout is made for at most {LONGEST:,} keys, got m={m:,}")
    return _cached(pattern, n, m, block, device)


@functools.lru_cache(maxsize=64)
def _cached(pattern: Pattern, n: int, m: int, block: int | None, device: str) -> Layout:
    if device != "cpu":
        return layout(pattern, n, m, block).to(torch.device(device))
    refuse_lengths(n, m)
    pattern.refuse_misfit(m)
    pattern = pattern.sized(m)
    natural = Order("natural", (torch.arange(m),))
    parts = _disjoint(pattern, natural, m)
    undivided = [(pattern, natural)]
    if len(parts) > 1 and _cost_bound(undivided, n, m, block) <= _cost_bound(parts, n, m, block):
        parts = undivided
    laid = (part for of, order in parts for part in _lay_out(of, order, n, m, block))
    return Layout(n, m, tuple(part for part in laid if part))


def refuse_lengths(n: int, m: int) -> None:
    """A ValueError where the queries, the last n of m positions, would begin before the first."""
    if n > m:
        raise ValueError(
            f"{n} queries cannot stand last among {m} keys: give at most as many, or attend under "
            "a dense mask"
        )


def forget() -> None:
    """Empty the cache of layouts."""
    _cached.cache_clear()
    _block_cost.cache_clear()


def _disjoint(pattern: Pattern, natural: Order, m: int) -> list[tuple[Pattern, Order]]:
    """The pattern as a union of disjoint patterns, one for each order of its alternatives."""
    by_order: dict[Order, Pattern] = {}
    for alternative in pattern.alternatives():
        order = alternative.order(m) or natural
        known = by_order.get(order)
        by_order[order] = alternative if known is None else known | alternative
    parts: list[tuple[Pattern, Order]] = []
    done: Pattern = ~FULL
    for order, part in by_order.items():
        parts.append((part & ~done if parts else part, order))
        done = done | part
    return parts


def _cost_bound(parts: list[tuple[Pattern, Order]], n: int, m: int, block: int | None) -> int:
    """An upper bound of the cost, from whole blocks, without evaluating any pair."""
    return sum(min(_block_cost(*part, n, m, size) for size in _sizes(block)) for part in parts)


def _sizes(block: int | None) -> tuple[int, ...]:
    return BLOCKS if block is None else (block,)


@functools.lru_cache(maxsize=64)  # called for the bounds, and again to choose the size
def _block_cost(pattern: Pattern, order: Order, n: int, m: int, size: int) -> int:
    columns = _Columns.of(order, m)
    total = 0
    for queries in _row_blocks(order, n, m, size):
        for some in queries.split(max(1, PAIRS_AT_ONCE // 8 // len(columns.widths))):
            covered = pattern.covers(Intervals.hull(some)[:, None], columns.intervals).some
            total += int((covered * columns.widths).sum()) * (queries.shape[1] + GATHER_COST)
    return total


def _row_blocks(order: Order, n: int, m: int, size: int) -> Iterator[Tensor]:
    """The queries of an order in blocks; those of equal length are stacked, (blocks, rows)."""
    by_length: dict[int, list[Tensor]] = {}
    for run in order.runs:
        run = run[run >= m - n] if n < m else run  # the queries are the last positions
        whole = len(run) // size * size
        if whole:
            by_length.setdefault(size, []).append(run[:whole].view(-1, size))
        if whole < len(run):
            by_length.setdefault(len(run) - whole, []).append(run[None, whole:])
    return (torch.cat(blocks) for blocks in by_length.values())


@dataclass(frozen=True, eq=False)
class _Columns:
    """The keys in blocks, in the order of the queries if it contains all positions.

    ``keys`` (blocks, width) are positions, the last of a short block repeated.
    """

    keys: Tensor
    widths: Tensor
    intervals: Intervals

    @classmethod
    @functools.lru_cache(maxsize=8)
    def of(cls, order: Order, m: int) -> "_Columns":
        width = max(32, m // 1024)
        whole = sum(len(run) for run in order.runs) == m
        runs = order.runs if whole else (torch.arange(m),)
        blocks = [block for run in runs for block in run.split(width)]
        widths = torch.tensor([len(block) for block in blocks])
        flat = torch.cat(blocks)
        last = widths.cumsum(0) - 1
        places = (last - widths + 1)[:, None] + torch.arange(width)
        keys = flat[places.minimum(last[:, None])]
        return cls(keys, widths, Intervals.hull(keys))


def _lay_out(
    pattern: Pattern, order: Order, n: int, m: int, block: int | None
) -> Iterator[tuple[Batch, ...]]:
    """One part, or two: the keys that all queries of a block attend to, and the remaining keys.

    In a part of their own, the keys of the first kind need no mask, and those of the second kind
    often have the same mask in all blocks. Two parts are cheaper if most keys are of the first kind
    and their number is not the same in most blocks, as with global columns under a causal mask.
    """
    size = min(_sizes(block), key=lambda size: _block_cost(pattern, order, n, m, size))
    blocks = [
        made
        for positions in _row_blocks(order, n, m, size)
        for made in _blocks(pattern, positions, _Columns.of(order, m), m)
    ]
    numbers = [int(b.by_all.sum()) for b in blocks]
    by_some = sum(len(b.keys) for b in blocks) - sum(numbers)
    (_, commonest), *_ = Counter(numbers).most_common(1) or [(0, 0)]
    if by_some and sum(numbers) > by_some and 2 * commonest < len(blocks):
        yield tuple(_batches(pattern, [b.only(b.by_all) for b in blocks], m - n))
        blocks = [b.only(~b.by_all) for b in blocks]
    yield tuple(_batches(pattern, blocks, m - n))


class _Block(NamedTuple):
    """Queries, the keys that any of them attends to, and which of these all of them attend to."""

    queries: Tensor
    keys: Tensor
    by_all: Tensor

    @property
    def is_full(self) -> bool:
        return bool(self.by_all.all())

    def only(self, chosen: Tensor) -> "_Block":
        return _Block(self.queries, self.keys[chosen], self.by_all[chosen])


def _blocks(pattern: Pattern, positions: Tensor, columns: _Columns, m: int) -> Iterator[_Block]:
    for some in positions.split(max(1, PAIRS_AT_ONCE // m)):
        for queries, seen, by_all in zip(some, *_seen(pattern, some, columns, m), strict=True):
            keys = seen.nonzero().squeeze(-1)
            yield _Block(queries, keys, by_all[keys])


def _batches(pattern: Pattern, blocks: list[_Block], past: int) -> Iterator[Batch]:
    """Batches of blocks with equally many queries: of those that slide, and of the others.

    Among the others, blocks with key lists of about equal length are put together.
    """
    others: list[_Block] = []
    for alike in _sliding([b for b in blocks if len(b.keys)]):
        if len(alike) < LEAST_SLIDING:
            others += alike
        else:
            yield _batch(pattern, alike, past)
    others.sort(key=lambda b: (len(b.queries), b.is_full, len(b.keys)))
    while others:
        first = others[0]
        shortest = len(first.keys)
        # Lists are padded to the longest: about a sixteenth of the fetched keys at most.
        longest = shortest + shortest // 16 + 2
        similar = [b for b in others if _is_like(b, first) and len(b.keys) <= longest]
        others = others[len(similar) :]
        similar.sort(key=lambda b: int(b.queries[0]))
        yield _batch(pattern, similar, past)


def _is_like(block: _Block, other: _Block) -> bool:
    return len(block.queries) == len(other.queries) and block.is_full == other.is_full


def _sliding(blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Successive blocks whose keys are one run, the same in each but for a constant step."""
    alike: list[_Block] = []
    for block in blocks:
        if alike and not _slides_on(alike, block):
            yield alike
            alike = []
        alike.append(block)
    if alike:
        yield alike


def _slides_on(alike: list[_Block], block: _Block) -> bool:
    last = alike[-1]
    start, end = last.keys[0], last.keys[-1]
    step = block.keys[0] - start
    before = start - alike[-2].keys[0] if len(alike) > 1 else step
    is_run = end - start == len(last.keys) - 1
    regular = bool(is_run & (step == before) & (step >= 0))
    return regular and torch.equal(block.keys, last.keys + step) and _is_like(block, last)


def _batch(pattern: Pattern, blocks: list[_Block], past: int) -> Batch:
    """The batch of some blocks; lists are padded to the longest of them."""
    columns = max(len(b.keys) for b in blocks)
    keys = torch.stack([pad(b.keys, (0, columns - len(b.keys)), value=-1) for b in blocks])
    queries = torch.stack([b.queries for b in blocks])
    mask = _is_key(keys) if blocks[0].is_full else _mask(pattern, queries, keys)
    # What pads a list is masked: there its column number, so that a prefix stays consecutive.
    return Batch.of(queries - past, torch.where(keys < 0, torch.arange(columns), keys), mask)


def _seen(pattern: Pattern, positions: Tensor, columns: _Columns, m: int) -> tuple[Tensor, Tensor]:
    """For each block of queries, (blocks, m): keys that some of them attend to, and all of them."""
    rows = Intervals.hull(positions)
    coverage = pattern.covers(rows[:, None], columns.intervals)
    seen = torch.zeros(len(positions), m, dtype=torch.bool)
    block, column = coverage.every.nonzero(as_tuple=True)
    seen[block[:, None], columns.keys[column]] = True
    by_all = seen.clone()
    block, column = (coverage.some & ~coverage.every).nonzero(as_tuple=True)
    if not len(block):
        return seen, by_all
    # A column of a mixed block may be full or empty …
    key = columns.keys[column].flatten()
    block = block.repeat_interleave(columns.keys.shape[1])
    one = pattern.covers(rows[block], Intervals.singles(key))
    seen[block, key] = by_all[block, key] = one.every
    # … and a mixed column is evaluated pair by pair.
    mixed = one.some & ~one.every
    block, key = block[mixed], key[mixed]
    if not len(block):
        return seen, by_all
    at_once = max(1, PAIRS_AT_ONCE // positions.shape[1])
    for b, j in zip(block.split(at_once), key.split(at_once), strict=True):
        allowed = pattern.allows(positions[b], j[:, None])
        allowed = allowed.expand(*allowed.shape[:-2], len(b), positions.shape[1])
        seen[b, j] = allowed.any(-1).reshape(-1, len(b)).any(0)
        by_all[b, j] = allowed.all(-1).reshape(-1, len(b)).all(0)
    return seen, by_all


def _is_key(keys: Tensor) -> Tensor | None:
    """(blocks, 1, columns): which entries of the key lists are keys; None if all are."""
    is_key = (keys >= 0)[:, None]
    return None if is_key.all() else is_key


def _mask(pattern: Pattern, queries: Tensor, keys: Tensor) -> Tensor | None:
    """The allowed pairs of queries × keys: one block if all are equal, None if all are allowed."""
    per_step = max(1, PAIRS_AT_ONCE // (queries.shape[1] * keys.shape[1]))
    masks = []
    for i, j in zip(queries.split(per_step), keys.split(per_step), strict=True):
        allowed = pattern.allows(i[:, :, None], j[:, None, :].clamp(min=0)) & (j >= 0)[:, None]
        masks.append(allowed.expand(*allowed.shape[:-3], *i.shape, keys.shape[1]))
    mask = torch.cat(masks, dim=-3)
    if mask.all():
        return None
    first = mask[..., :1, :, :]
    return first.clone() if (mask == first).all() else mask
