"""The queries that chose a block side by side, in tiles, and what they took of several blocks."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

NOTHING = -1
"""In place of a block, where a query has chosen fewer than others."""
LARGEST = 128
"""Rows of a tile: the last tile of each block is not full, and a tile reads all keys of its block,
so tiles are neither very large nor very small."""


class Tiles(NamedTuple):
    """Pairs of a query and a block that it chose, in T rows for one block each.

    ``queries`` (g, t, T): the query in each row of t tiles, 0 where a row is empty. ``blocks`` (g,
    t): the block of each tile. ``rows`` (g, n, k): in which of the t·T rows each pair stands; t·T
    for those that are none.
    """

    queries: Int[Tensor, "g t T"]
    blocks: Int[Tensor, "g t"]
    rows: Int[Tensor, "g n k"]


def tiled(chosen: Int[Tensor, "g n k"], blocks: int, size: int) -> Tiles:
    """The pairs in the order of their blocks; each block begins a tile.

    How many tiles there are depends on sizes alone: each block may leave one that is not full.
    """
    (g, n, k), device = chosen.shape, chosen.device
    pairs = n * k
    many = pairs // size + (min(blocks, pairs) if size > 1 else 0)
    of = torch.where(chosen == NOTHING, blocks, chosen).flatten(1)
    counts = of.new_zeros(g, blocks + 1).scatter_add(1, of, torch.ones_like(of))
    ends = ((counts[:, :blocks] + size - 1) // size).cumsum(1)  # tiles up to each block's last
    order = of.argsort(dim=1, stable=True)
    sorted_of = of.gather(1, order)
    place = torch.arange(pairs, device=device) - F.pad(counts.cumsum(1), (1, -1)).gather(
        1, sorted_of
    )
    row = F.pad(ends, (1, 0)).gather(1, sorted_of) * size + place
    row = row.masked_fill(sorted_of == blocks, many * size)
    rows = torch.zeros_like(order).scatter(1, order, row)
    query = (torch.arange(pairs, device=device) // k).expand(g, pairs)
    queries = of.new_zeros(g, many * size + 1).scatter(1, rows, query)[:, :-1]
    tile = torch.arange(many, device=device).expand(g, many).contiguous()
    block = torch.searchsorted(ends, tile, right=True).clamp(max=blocks - 1)
    return Tiles(queries.unflatten(1, (many, size)), block, rows.unflatten(1, (n, k)))


def by_tiles(
    q: Float[Tensor, "b h n d"], k: Float[Tensor, "b h N B d"], v: Float[Tensor, "b h N B e"],
    at: Int[Tensor, "#b 1 n"], chosen: Int[Tensor, "b h n k"],
) -> Float[Tensor, "b h n e"]:  # fmt: skip
    """One softmax over the keys of all chosen blocks that are not after the query. ``at`` is the
    number of each query."""
    (b, h, n, d), (blocks, size) = q.shape, k.shape[2:4]
    at = at.expand(b, h, n).flatten(0, 1)
    q, k, v, chosen = (x.flatten(0, 1) for x in (q, k, v, chosen))
    tiles = tiled(chosen, blocks, min(size, LARGEST, n))
    many, rows = tiles.queries.shape[1:]
    query = tiles.queries.flatten(1)
    asking = q.gather(1, query[..., None].expand(-1, -1, d)).unflatten(1, (many, rows))
    scores = asking @ _of_tiles(k, tiles).mT * d**-0.5
    number = tiles.blocks[..., None] * size + torch.arange(size, device=q.device)
    until = at.gather(1, query).unflatten(1, (many, rows))
    scores = scores.masked_fill(number[:, :, None] > until[..., None], -torch.inf)
    largest = scores.detach().amax(dim=-1, keepdim=True)
    largest = largest.masked_fill(largest == -torch.inf, 0)
    powers = (scores - largest).exp()
    sums = powers @ _of_tiles(v, tiles)
    return _merged(sums, powers.sum(dim=-1, keepdim=True), largest, tiles.rows).unflatten(0, (b, h))


def _of_tiles(x: Tensor, tiles: Tiles) -> Tensor:
    """The keys or values (g, N, B, d) of the block of each tile, (g, t, B, d)."""
    size, width = x.shape[2:]
    flat = x.flatten(2)
    found = flat.gather(1, tiles.blocks[..., None].expand(-1, -1, flat.shape[-1]))
    return found.unflatten(-1, (size, width))


def _merged(sums: Tensor, total: Tensor, largest: Tensor, rows: Tensor) -> Tensor:
    """Each query's parts as one: sums of exponentials times values, those of the exponentials
    alone, and the scores that were subtracted in their exponents."""
    n, k = rows.shape[1:]
    last = sums.shape[1] * sums.shape[2] - 1
    found = rows.clamp(max=last).flatten(1)[..., None]
    sums, total, largest = (
        x.flatten(1, 2).gather(1, found.expand(-1, -1, x.shape[-1])).unflatten(1, (n, k))
        for x in (sums, total, largest)
    )
    largest = largest.masked_fill((rows > last)[..., None], -torch.inf)
    whole = largest.amax(dim=2, keepdim=True)
    share = (largest - whole.masked_fill(whole == -torch.inf, 0)).exp()
    below = (share * total).sum(dim=2)
    return (share * sums).sum(dim=2) / (below + (below == 0))
