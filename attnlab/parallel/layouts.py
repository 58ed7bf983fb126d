r"""Which positions of a text a process holds, and how much work a causal mask leaves it.

With n positions on P processes, process r holds

    contiguous   n/P positions in a row, from r n/P
    zigzag       the chunks r and 2P - 1 - r of 2P chunks: an early one and a late one
    striped      r, r + P, r + 2P, …

A late query attends to many keys, an early one to few. Contiguous shards give the last process
2 - 1/P times the mean work, and in a ring all wait for it; in zigzag every process has the same
number of pairs, in each step.

Sources: zigzag: Zhu, *ring-flash-attention*, 2024 (code); striped: Brandon et al., *Striped
Attention*, 2023, arXiv 2311.09431.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice

Layout = Literal["contiguous", "zigzag", "striped"]
LAYOUTS: tuple[str, ...] = get_args(Layout)


def positions(layout: str, n: int, processes: int) -> list[Tensor]:
    """The positions that each of the processes holds, in the order in which it holds them.

    Raises ValueError if n positions cannot be divided so.
    """
    check_choice("`layout`", layout, LAYOUTS)
    p = check_integer("`processes`", processes, at_least=1)
    n = check_integer("`n`", n, at_least=1)
    pieces = 2 * p if layout == "zigzag" else p
    if n % pieces:
        raise ValueError(
            f"{n} positions cannot be divided into {pieces} equal pieces for {p} processes with "
            f"layout '{layout}'; pad the text to {n + -n % pieces} positions"
        )
    if layout == "striped":
        return [torch.arange(rank, n, p) for rank in range(p)]
    chunks = torch.arange(n).chunk(pieces)
    if layout == "contiguous":
        return list(chunks)
    return [torch.cat((chunks[rank], chunks[-1 - rank])) for rank in range(p)]


def whole(shards: list[Tensor], layout: str, dim: int = 2) -> Tensor:
    """The tensor in the order of the text, from the shards of all processes."""
    together = torch.cat(shards, dim)
    order = torch.cat(positions(layout, together.shape[dim], len(shards)))
    return together.index_select(dim, order.argsort().to(together.device))


class Block(NamedTuple):
    """Queries and keys of two shards that are multiplied: where they are in their shards, and the
    mask if only some of the pairs are allowed."""

    queries: slice
    keys: slice
    mask: Tensor | None
    pairs: int


def blocks(layout: str, queries: Tensor, keys: Tensor, *, causal: bool) -> list[Block]:
    """The blocks that a process multiplies, of queries and keys at these positions.

    A block in which no query may attend to a key is left out; one in which every query may attend
    to every key needs no mask.
    """
    parts = 2 if layout == "zigzag" else 1
    found = []
    for rows in _slices(len(queries), parts):
        for columns in _slices(len(keys), parts):
            i, j = queries[rows], keys[columns]
            if not causal or i.min() >= j.max():
                found.append(Block(rows, columns, None, len(i) * len(j)))
            elif i.max() >= j.min():
                mask = i[:, None] >= j
                found.append(Block(rows, columns, mask, int(mask.sum())))
    return found


def _slices(size: int, parts: int) -> list[slice]:
    step = size // parts
    return [slice(start, start + step) for start in range(0, size, step)]


def counted_pairs(layout: str, n: int, processes: int, *, causal: bool = True) -> Tensor:
    """Pairs of a query and a key that each process (a row) computes in each step of the ring (a
    column), counted block by block: (P, P) whole numbers."""
    held = positions(layout, n, processes)
    counts = torch.zeros(processes, processes, dtype=torch.int64)
    for rank in range(processes):
        for step in range(processes):
            keys = held[(rank - step) % processes]
            counts[rank, step] = sum(
                block.pairs for block in blocks(layout, held[rank], keys, causal=causal)
            )
    return counts


def claimed_pairs(layout: str, n: int, processes: int, rank: int) -> int:
    """Pairs that process ``rank`` computes in all steps, under a causal mask, by the formula."""
    p, m = processes, n // processes
    if layout == "contiguous":
        return rank * m * m + m * (m + 1) // 2
    if layout == "zigzag":
        half = m // 2
        return (2 * p - 1) * half * half + half * (half + 1)
    return (rank + 1) * m * (m + 1) // 2 + (p - 1 - rank) * m * (m - 1) // 2
