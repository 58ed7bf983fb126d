"""Layouts: a pattern made ready to be run block by block.

A layout says which queries are attended together, which keys they need, and what of these pairs is
allowed. Three things make it small:

**Order.** Queries that see alike stand side by side. In natural order a stride touches every
block; ordered by residue it is local. A union of patterns with different orders is laid out part
by part, over disjoint pairs; the parts meet in the output by their log-sum-exp.

**Key lists.** A block of queries takes the keys that any of them may see, one by one, not block by
block: a summary column costs one key in a list, not 128.

**Masks**, only where a block is not full, and only once where all blocks have the same.

None of it needs an n × m tensor: blocks are asked by interval arithmetic (``Pattern.covers``), then
single columns, and only what is still mixed is looked at pair by pair.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.patterns import FULL, Order, Pattern, Spans

BLOCKS = (32, 64, 128)  # queries in a block
GATHERED = 24  # what fetching a key for a block costs, in pairs
LOOKED_AT = 1 << 22  # pairs looked at in one go


@dataclass(frozen=True, eq=False)
class Batch:
    """Blocks of queries that are attended at once: equally many queries, equally many keys.

    ``queries`` and ``keys`` are indices into q and k. ``mask`` is None where every pair is allowed;
    its block axis is 1 where all blocks have the same mask; head and batch axes may stand in front.
    ``lonely`` marks queries with no key.
    """

    queries: Int[Tensor, "blocks rows"]
    keys: Int[Tensor, "blocks columns"]
    mask: Bool[Tensor, "... #blocks rows columns"] | None

    @property
    def pairs(self) -> int:
        """The pairs that are computed, allowed or not."""
        return self.queries.numel() * self.keys.shape[-1]

    def split(self, blocks: int) -> Iterator["Batch"]:
        """The same in batches of so many blocks."""
        for start in range(0, len(self.queries), blocks):
            part = slice(start, start + blocks)
            mask = self.mask
            if mask is not None and mask.shape[-3] > 1:
                mask = mask[..., part, :, :]
            yield Batch(self.queries[part], self.keys[part], mask)

    def to(self, device: torch.device) -> "Batch":
        mask = None if self.mask is None else self.mask.to(device)
        return Batch(self.queries.to(device), self.keys.to(device), mask)


@dataclass(frozen=True, eq=False)
class Layout:
    """The parts of a pattern for n queries and m keys. Within a part a query appears once."""

    n: int
    m: int
    parts: tuple[tuple[Batch, ...], ...]

    @property
    def pairs(self) -> int:
        """The pairs that are computed; ``pattern.count(n, m)`` of them are allowed."""
        return sum(batch.pairs for part in self.parts for batch in part)

    @property
    def gathered(self) -> int:
        """The keys that are fetched, a key once for each block of queries that takes it."""
        return sum(batch.keys.numel() for part in self.parts for batch in part)

    @property
    def cost(self) -> int:
        return self.pairs + GATHERED * self.gathered

    def dense(self) -> Bool[Tensor, "... n m"]:
        """The mask that the layout stands for, put together again (for tests and pictures)."""
        seen = torch.zeros(self.n, self.m, dtype=torch.long)
        for batch in (batch for part in self.parts for batch in part):
            shape = batch.queries.shape + batch.keys.shape[-1:]
            allowed = torch.ones(shape) if batch.mask is None else batch.mask.expand(shape)
            i, j = batch.queries[:, :, None].expand(shape), batch.keys[:, None, :].expand(shape)
            seen.index_put_((i, j), allowed.long(), accumulate=True)
        if (seen > 1).any():
            raise AssertionError("a pair is computed twice")
        return seen > 0

    def to(self, device: torch.device) -> "Layout":
        parts = tuple(tuple(batch.to(device) for batch in part) for part in self.parts)
        return replace(self, parts=parts)


def layout(
    pattern: Pattern, n: int, m: int, block: int | None = None, device: str = "cpu"
) -> Layout:
    """The cheapest layout found for a pattern; ``block`` fixes the number of queries in a block.

    Remembered: the same pattern at the same lengths is laid out once.
    """
    return _remembered(pattern, n, m, block, device)


@functools.lru_cache(maxsize=64)
def _remembered(pattern: Pattern, n: int, m: int, block: int | None, device: str) -> Layout:
    if device != "cpu":
        return layout(pattern, n, m, block).to(torch.device(device))
    pattern.refuse_misfit(m)
    pattern = pattern.sized(m)
    natural = Order("natural", (torch.arange(m),))
    parts = _disjoint(pattern, natural, m)
    whole = [(pattern, natural)]
    if len(parts) > 1 and _bound(whole, n, m, block) <= _bound(parts, n, m, block):
        parts = whole
    laid = (_lay_out(part, order, n, m, block) for part, order in parts)
    return Layout(n, m, tuple(part for part in laid if part))


def forget() -> None:
    """Drop the remembered layouts."""
    _remembered.cache_clear()


def _disjoint(pattern: Pattern, natural: Order, m: int) -> list[tuple[Pattern, Order]]:
    """The pattern as a union over disjoint pairs, one part for each order that it asks for."""
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


def _bound(parts: list[tuple[Pattern, Order]], n: int, m: int, block: int | None) -> int:
    """An upper bound of the cost, from whole blocks, without looking at any pair."""
    return sum(min(_block_cost(*part, n, m, size) for size in _sizes(block)) for part in parts)


def _sizes(block: int | None) -> tuple[int, ...]:
    return BLOCKS if block is None else (block,)


def _block_cost(pattern: Pattern, order: Order, n: int, m: int, size: int) -> int:
    columns = _Columns.of(order, m)
    total = 0
    for queries in _row_blocks(order, n, m, size):
        for some in queries.split(max(1, LOOKED_AT // 8 // len(columns.widths))):
            covered = pattern.covers(Spans.hull(some)[:, None], columns.spans).some
            total += int((covered * columns.widths).sum()) * (queries.shape[1] + GATHERED)
    return total


def _row_blocks(order: Order, n: int, m: int, size: int) -> Iterator[Tensor]:
    """The queries of an order in blocks, stacked where they are equally long: (blocks, rows)."""
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
    """The keys in blocks, in the order of the queries where it holds all positions.

    ``keys`` (blocks, width) are positions, the last of a short block repeated.
    """

    keys: Tensor
    widths: Tensor
    spans: Spans

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
        return cls(keys, widths, Spans.hull(keys))


def _lay_out(
    pattern: Pattern, order: Order, n: int, m: int, block: int | None
) -> tuple[Batch, ...]:
    size = min(_sizes(block), key=lambda size: _block_cost(pattern, order, n, m, size))
    batches: list[Batch] = []
    for positions in _row_blocks(order, n, m, size):
        batches.extend(_batches(pattern, positions, _Columns.of(order, m), n, m))
    return tuple(batches)


def _batches(
    pattern: Pattern, positions: Tensor, columns: _Columns, n: int, m: int
) -> Iterator[Batch]:
    """Key lists for blocks of queries, then batches of blocks whose lists are about as long."""
    lists: list[Tensor] = []
    full: list[bool] = []
    for some in positions.split(max(1, LOOKED_AT // m)):
        seen, every = _seen_columns(pattern, some, columns, m)
        lists.extend(row.nonzero().squeeze(-1) for row in seen)
        full.extend(every.tolist())
    lengths = torch.tensor([len(keys) for keys in lists])
    for same in _alike(lengths, torch.tensor(full)):
        blocks = same.tolist()
        longest = max(len(lists[b]) for b in blocks)
        keys = torch.stack([_padded(lists[b], longest) for b in blocks])
        queries = positions[same]
        whole = full[blocks[0]] and int(lengths[same].min()) == longest
        mask = None if whole else _mask(pattern, queries, keys)
        yield Batch(queries - (m - n), keys.clamp(min=0), mask)


def _seen_columns(
    pattern: Pattern, positions: Tensor, columns: _Columns, m: int
) -> tuple[Tensor, Tensor]:
    """For each block of queries: the keys that some of them see, and whether all see all these."""
    rows = Spans.hull(positions)
    coverage = pattern.covers(rows[:, None], columns.spans)
    seen = torch.zeros(len(positions), m, dtype=torch.bool)
    block, column = coverage.every.nonzero(as_tuple=True)
    seen[block[:, None], columns.keys[column]] = True
    block, column = (coverage.some & ~coverage.every).nonzero(as_tuple=True)
    if not len(block):
        return seen, torch.ones(len(positions), dtype=torch.bool)
    # What is mixed as a block may be known column by column …
    key = columns.keys[column].flatten()
    block = block.repeat_interleave(columns.keys.shape[1])
    one = pattern.covers(rows[block], Spans.singles(key))
    seen[block, key] = one.every
    # … and what is still mixed is looked at.
    mixed = one.some & ~one.every
    block, key = block[mixed], key[mixed]
    looked = [
        _any_head(pattern.allows(positions[b], j[:, None])).any(-1)
        for b, j in zip(
            block.split(LOOKED_AT // positions.shape[1]),
            key.split(LOOKED_AT // positions.shape[1]),
            strict=True,
        )
    ]
    if looked:
        seen[block, key] = torch.cat(looked)
    unsure = torch.zeros(len(positions), dtype=torch.bool)
    unsure[block] = True
    return seen, ~unsure


def _any_head(allowed: Tensor) -> Tensor:
    return allowed.flatten(0, -3).any(0) if allowed.dim() > 2 else allowed


def _alike(lengths: Tensor, full: Tensor) -> Iterator[Tensor]:
    """Indices of blocks that are run together: at most an eighth of what is gathered is idle."""
    for kind in (True, False):
        ordered = lengths.argsort(stable=True)
        ordered = ordered[(full[ordered] == kind) & (lengths[ordered] > 0)]
        while len(ordered):
            shortest = int(lengths[ordered[0]])
            longest = shortest if kind else shortest + shortest // 8 + 4
            together = int((lengths[ordered] <= longest).sum())
            yield ordered[:together].sort().values
            ordered = ordered[together:]


def _padded(keys: Tensor, columns: int) -> Tensor:
    return torch.nn.functional.pad(keys, (0, columns - len(keys)), value=-1)


def _mask(pattern: Pattern, queries: Tensor, keys: Tensor) -> Tensor | None:
    """What is allowed of queries × keys: once if all blocks are alike, None if all of it is."""
    per_look = max(1, LOOKED_AT // (queries.shape[1] * keys.shape[1]))
    looks = []
    for i, j in zip(queries.split(per_look), keys.split(per_look), strict=True):
        allowed = pattern.allows(i[:, :, None], j[:, None, :].clamp(min=0)) & (j >= 0)[:, None]
        looks.append(allowed.expand(*allowed.shape[:-3], *i.shape, keys.shape[1]))
    mask = torch.cat(looks, dim=-3)
    if mask.all():
        return None
    first = mask[..., :1, :, :]
    return first.clone() if (mask == first).all() else mask
