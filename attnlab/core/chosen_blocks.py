"""Attention to blocks of keys that each query has chosen.

The queries that chose a block stand side by side, in tiles, and each tile is compared with the keys
of its block. What a query took of its blocks is merged to one softmax over all their keys.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.chunks import cut
from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.probe import listening

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


def largest(scores: Tensor, k: int) -> Int[Tensor, "b h n k"]:
    """The k blocks of the largest scores, of equal ones the first; −1 where all others are −∞."""
    found = []
    for _ in range(min(k, scores.shape[-1])):
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
    q: Float[Tensor, "b h n d"], k: Float[Tensor, "b h N B d"], v: Float[Tensor, "b h N B e"],
    at: Int[Tensor, "#b 1 n"], chosen: Int[Tensor, "b h n k"], *, reach: int | None = None,
) -> Float[Tensor, "b h n e"]:  # fmt: skip
    """One softmax over the keys of all chosen blocks that are not after the query, or of these the
    last ``reach``. ``at`` is the number of each query, whose own block is among the chosen ones."""
    (b, h, n, d), (blocks, size) = q.shape, k.shape[2:4]
    at = at.expand(b, h, n).flatten(0, 1)
    q, k, v, chosen = (x.flatten(0, 1) for x in (q, k, v, chosen))
    if reach is None and _kernel_takes(q, k, v, at):
        out: Tensor = _ByKernel.apply(q, k, v, chosen, d**-0.5)
        return out.unflatten(0, (b, h))
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


# ---- by PyTorch's kernel for CPUs


ROWS = 256
"""Rows of a tile that the kernel computes: it takes more of them at once."""
LEAST = 64
"""Shorter blocks are not worth its calls."""
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def _kernel_takes(q: Tensor, k: Tensor, v: Tensor, at: Tensor) -> bool:
    """One width and one dtype, on a CPU, and queries that are all tokens of the text; whoever
    records, and ``torch.compile``, is shown PyTorch's functions instead."""
    if listening() or torch.compiler.is_compiling() or q.device.type != "cpu":
        return False
    if q.shape[-1] != v.shape[-1] or not q.dtype == k.dtype == v.dtype:
        return False
    n, (blocks, size) = q.shape[1], k.shape[1:3]
    if size < LEAST or -(-n // size) != blocks:
        return False
    return bool((at == torch.arange(n)).all())


class _ByKernel(torch.autograd.Function):
    """The own block causally, the others, which are complete, by tiles; merged by their
    log-sum-exps. With those of the whole, each part's gradients are those of ordinary attention
    (Dao et al. 2022, arXiv:2205.14135, section 3.1)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, scale: float) -> Tensor:
        (g, n), (blocks, size) = q.shape[:2], k.shape[1:3]
        own = torch.arange(n)[:, None] // size
        tiles = tiled(chosen.masked_fill(chosen == own, NOTHING), blocks, min(ROWS, n))
        out, lse = _flash(*_diagonal(q, k, v), 0.0, True, scale=scale)
        out, lse = (_back(x, g)[:, :n] for x in (out, lse[..., None]))
        parts, lses = _flash(*_asked(q, k, v, tiles), 0.0, False, scale=scale)
        parts, lses = (_back(x, g) for x in (parts, lses[..., None]))
        last = parts.shape[1] - 1
        found = tiles.rows.clamp(max=last)
        each = lses.gather(1, found.flatten(1)[..., None]).view(g, n, -1)
        each = each.masked_fill(tiles.rows > last, -torch.inf)
        total = torch.cat((lse, each), dim=-1).logsumexp(dim=-1, keepdim=True)
        whole = (lse - total).exp() * out
        for j, share in enumerate((each - total).exp().unbind(-1)):
            whole = whole.addcmul_(share[..., None].to(out.dtype), _taken(parts, found[..., j]))
        ctx.save_for_backward(q, k, v, whole, total, *tiles)
        ctx.scale = scale
        return whole

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        forbid_double_backward("attention to chosen blocks")
        q, k, v, out, lse, *given = ctx.saved_tensors
        tiles, (g, n), size = Tiles(*given), q.shape[:2], k.shape[2]
        whole = [cut(x[:, None], size).flatten(0, 2)[:, None] for x in (do, out, lse)]
        dq, dk, dv = _flash_backward(
            whole[0], *_diagonal(q, k, v), whole[1], whole[2][..., 0], 0.0, True, scale=ctx.scale
        )
        dq, dk, dv = _back(dq, g)[:, :n].contiguous(), *(_together(x, k) for x in (dk, dv))
        query = tiles.queries.flatten(1)
        full = torch.zeros(g, query.shape[1] + 1, dtype=torch.bool)
        full = full.scatter_(1, tiles.rows.flatten(1), True)[:, :-1, None]  # rows that are pairs
        asked = [_tall(x, tiles) for x in (_taken(do, query) * full, _taken(out, query))]
        sums = _tall(_taken(lse, query), tiles)[..., 0]
        d_rows, d_keys, d_values = _flash_backward(
            asked[0], *_asked(q, k, v, tiles), asked[1], sums, 0.0, False, scale=ctx.scale
        )
        _add(dq, query, _back(d_rows, g))
        _add(dk, tiles.blocks, d_keys.reshape(g, -1, dk.shape[-1]))
        _add(dv, tiles.blocks, d_values.reshape(g, -1, dv.shape[-1]))
        return dq, dk.view_as(k), dv.view_as(v), None, None


def _diagonal(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Each block of queries with its own keys, (g · N, 1, B, d)."""
    blocks = cut(q[:, None], k.shape[2])[:, 0], k, v
    return tuple(x.flatten(0, 1)[:, None] for x in blocks)


def _asked(q: Tensor, k: Tensor, v: Tensor, tiles: Tiles) -> tuple[Tensor, ...]:
    """The queries, the keys and the values of each tile, (g · t, 1, …, d)."""
    keys, values = (_taken(x.flatten(2), tiles.blocks).view(-1, 1, *x.shape[2:]) for x in (k, v))
    return _tall(_taken(q, tiles.queries.flatten(1)), tiles), keys, values


def _taken(x: Tensor, rows: Int[Tensor, "g r"]) -> Tensor:
    """Some rows of x (g, n, d): (g, r, d)."""
    return x.flatten(0, 1).index_select(0, _numbered(rows, x)).unflatten(0, rows.shape)


def _add(x: Tensor, rows: Int[Tensor, "g r"], more: Tensor) -> None:
    """Add to some rows of x (g, n, d), in place."""
    x.view(-1, x.shape[-1]).index_add_(0, _numbered(rows, x), more.flatten(0, 1))


def _numbered(rows: Int[Tensor, "g r"], x: Tensor) -> Tensor:
    """The same rows, counted through all groups."""
    return (rows + torch.arange(len(x))[:, None] * x.shape[1]).flatten()


def _together(x: Tensor, like: Tensor) -> Tensor:
    """(g · N, 1, B, d) → (g, N, B · d)."""
    return x.reshape(like.shape).flatten(2)


def _tall(x: Tensor, tiles: Tiles) -> Tensor:
    """(g, t · T, d) → (g · t, 1, T, d)."""
    return x.unflatten(1, tiles.queries.shape[1:]).flatten(0, 1)[:, None]


def _back(x: Tensor, g: int) -> Tensor:
    """(g · t, 1, T, d) → (g, t · T, d)."""
    return x[:, 0].unflatten(0, (g, -1)).flatten(1, 2)
