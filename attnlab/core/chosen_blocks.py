"""Attention to blocks of keys that each query has chosen.

The queries that chose a block stand side by side, in tiles, and each tile is compared with the keys
of its block. What a query took of its blocks is merged to one softmax over all their keys. On a CPU
PyTorch's kernel takes longer blocks as they are (``blocks_by_kernel``).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import blocks_by_kernel
from attnlab.core.tracing import is_abstract, transformed

NOTHING = -1
"""In place of a block, where a query has chosen fewer than others."""
LARGEST = 128
"""Rows of a tile: the last tile of each block is not full, and a tile reads all keys of its block,
so tiles are neither very large nor very small."""


def numbers(k: Tensor, padding: Tensor | None) -> Int[Tensor, "#b m"]:
    """The number of each token among those that are real."""
    if padding is None:
        return torch.arange(k.shape[2], device=k.device)[None]
    return (padding.cumsum(1) - 1).clamp(min=0)


def packed(x: Tensor, padding: Tensor | None) -> Tensor:
    """The real tokens first, in their order, then zeros."""
    if padding is None:
        return x
    order = (~padding).long().argsort(dim=1, stable=True)
    x = x.masked_fill(~padding[:, None, :, None], 0)
    return x.gather(2, order[:, None, :, None].expand_as(x))


def largest(scores: Float[Tensor, "... N"], k: int) -> Int[Tensor, "... k"]:
    """The k blocks of the largest scores, of equal ones the first; −1 where all others are −∞."""
    k = min(k, scores.shape[-1])
    if k < 2 or scores.device.type != "cpu" or is_abstract(scores) or transformed():
        return _one_by_one(scores, k)
    more = min(k + 1, scores.shape[-1])  # beyond the last, to see whether another equals it
    values, found = scores.topk(more, dim=-1)
    found = found[..., :k].masked_fill(values[..., :k] == -torch.inf, NOTHING)
    equal = (values[..., 1:] == values[..., :-1]) & (values[..., 1:] > -torch.inf)
    if (tied := equal.any(dim=-1)).any():  # topk orders them in any way
        found[tied] = _one_by_one(scores[tied], k)
    return found


def _one_by_one(scores: Tensor, k: int) -> Tensor:
    found = []
    for _ in range(k):
        best = scores.argmax(dim=-1, keepdim=True)
        found.append(best.masked_fill(scores.gather(-1, best) == -torch.inf, NOTHING))
        scores = scores.scatter(-1, best, -torch.inf)
    return torch.cat(found, dim=-1) if found else scores[..., :0].long()


def picked(chosen: Int[Tensor, "b h n k"], blocks: int) -> Bool[Tensor, "b h n blocks"]:
    """Whether each block is among the chosen ones."""
    found = torch.zeros(*chosen.shape[:3], blocks + 1, dtype=torch.bool, device=chosen.device)
    return found.scatter(-1, torch.where(chosen == NOTHING, blocks, chosen), True)[..., :-1]


def seen(
    chosen: Int[Tensor, "b h n k"], at: Tensor, padding: Tensor | None, block: int
) -> Bool[Tensor, "b h n m"]:
    """Which keys each query attends to, when it has chosen these blocks."""
    (b, h, n, _), m = chosen.shape, at.shape[1]
    allowed = picked(chosen, -(-m // block)).gather(
        -1, (at // block)[:, None, None].expand(b, h, n, m)
    )
    allowed = allowed & (at[:, None, None] <= at[:, None, m - n :, None])
    return allowed if padding is None else allowed & padding[:, None, None]


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
    q: Float[Tensor, "b h n d"], k: Float[Tensor, "b g N B d"], v: Float[Tensor, "b g N B e"],
    at: Int[Tensor, "#b 1 n"], chosen: Int[Tensor, "b g n k"], *, reach: int | None = None,
) -> Float[Tensor, "b h n e"]:  # fmt: skip
    """One softmax over the keys of all chosen blocks that are not after the query, or of these the
    last ``reach``. ``at`` is the number of each query, whose own block is among the chosen ones;
    heads that share keys share what they choose."""
    (b, h, n, d), (g, blocks, size) = q.shape, k.shape[1:4]
    if reach is None and blocks_by_kernel.takes(q, k, v, at):
        own = at[..., None] // size
        return blocks_by_kernel.attend(q, k, v, chosen.masked_fill(chosen == own, NOTHING))
    at = at.expand(b, h, n).flatten(0, 1)
    k, v, chosen = (x.repeat_interleave(h // g, dim=1).flatten(0, 1) for x in (k, v, chosen))
    q = q.flatten(0, 1)
    tiles = tiled(chosen, blocks, min(size, LARGEST, n))
    many, rows = tiles.queries.shape[1:]
    query = tiles.queries.flatten(1)
    asking = q.gather(1, query[..., None].expand(-1, -1, d)).unflatten(1, (many, rows))
    scores = asking @ _of_tiles(k, tiles).mT * d**-0.5
    number = tiles.blocks[..., None] * size + torch.arange(size, device=q.device)
    until = at.gather(1, query).unflatten(1, (many, rows))
    hidden = number[:, :, None] > until[..., None]
    if reach is not None:
        hidden = hidden | (number[:, :, None] <= until[..., None] - reach)
    scores = scores.masked_fill(hidden, -torch.inf)
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
