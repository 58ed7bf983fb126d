"""Attention to chosen blocks by PyTorch's kernel for CPUs: ``chosen_blocks`` without tiles.

A block is read once, by all queries that chose it, wherever they stand. What is gathered for that
fits the processor's cache: tiles of all blocks at once would be written to memory that is new, and
take longer than the products.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.probe import listening
from attnlab.core.tracing import transformed

LEAST = 64
"""Shorter blocks are not worth its calls."""
AT_ONCE = 512
"""Queries that one thread takes of a block in the backward pass."""
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def takes(q: Tensor, k: Tensor, v: Tensor, at: Tensor) -> bool:
    """One width and one dtype, on a CPU, and queries that are all tokens of the text; whoever
    records, ``torch.compile`` and ``torch.func`` are shown PyTorch's functions instead."""
    hidden = torch.compiler.is_compiling() or transformed()
    if hidden or listening() or q.device.type != "cpu":
        return False
    if q.shape[-1] != v.shape[-1] or not q.dtype == k.dtype == v.dtype:
        return False
    n, (blocks, size) = q.shape[2], k.shape[2:4]
    if size < LEAST or -(-n // size) != blocks:
        return False
    return bool((at == torch.arange(n)).all())


def attend(
    q: Float[Tensor, "b h n d"], k: Float[Tensor, "b g N B d"], v: Float[Tensor, "b g N B d"],
    others: Int[Tensor, "b g n k"],
) -> Float[Tensor, "b h n d"]:  # fmt: skip
    """One softmax of each query over its own block up to itself and the blocks before that it
    chose, ``others``, which is less than 0 where it chose fewer. Heads that share keys share it."""
    b, g = k.shape[:2]
    k, v, others = (x.flatten(0, 1) for x in (k, v, others))
    grouped = q.unflatten(1, (g, -1)).permute(0, 1, 3, 2, 4).flatten(0, 1)
    out: Tensor = _ByKernel.apply(grouped, k, v, others, q.shape[-1] ** -0.5)
    return out.unflatten(0, (b, g)).transpose(2, 3).flatten(1, 2)


class _Pairs(NamedTuple):
    """Pairs of a query and a block that it chose, those of a block side by side.

    ``queries`` (g, p): the query of each pair. ``places`` (g, n, k): where each pair of a query
    stands; p for those that are none. ``ends``: where the pairs of each block end, for each group.
    """

    queries: Int[Tensor, "g p"]
    places: Int[Tensor, "g n k"]
    ends: Int[Tensor, "g N"]

    def of(self, group: int) -> Iterator[tuple[int, slice]]:
        """The blocks that some query chose, and where their pairs stand."""
        start = 0
        for block, end in enumerate(self.ends[group].tolist()):
            if end > start:
                yield block, slice(start, end)
            start = end


def _paired(others: Int[Tensor, "g n k"], blocks: int) -> _Pairs:
    (g, n, k), pairs = others.shape, others[0].numel()
    of = torch.where(others < 0, blocks, others).flatten(1)
    each = (group.sort(stable=True) for group in of)  # one by one PyTorch sorts them by digits
    sorted_of, order = (torch.stack(x) for x in zip(*each, strict=True))
    ends = torch.searchsorted(sorted_of, torch.arange(blocks).repeat(g, 1), right=True)
    place = torch.arange(pairs).expand(g, pairs).masked_fill(sorted_of == blocks, pairs)
    places = torch.empty_like(order).scatter_(1, order, place)
    return _Pairs(order // max(k, 1), places.unflatten(1, (n, k)), ends)


class _ByKernel(torch.autograd.Function):
    """The own block causally, the others, which are complete, one after the other with all queries
    that chose them; merged by their log-sum-exps. With those of the whole, each part's gradients
    are those of ordinary attention (Dao et al. 2022, arXiv:2205.14135, section 3.1).

    ``q`` is (g, n, r, d): r heads share keys and what they chose.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, others: Tensor, scale: float) -> Tensor:
        g, _, r, d = q.shape
        pairs = _paired(others, k.shape[1])
        out, total = _flash(*_diagonal(q, k, v), 0.0, True, scale=scale)
        out, total = (_undone(x, q) for x in (out, total[..., None]))
        last = pairs.queries.shape[1]  # the part of those that are none
        parts, lses = q.new_empty(last + 1, r, d), total.new_empty(last + 1, r)
        parts[last], lses[last] = 0, -torch.inf
        for a in range(g):
            for block, some in pairs.of(a):
                rows = q[a].index_select(0, pairs.queries[a, some]).view(1, 1, -1, d)
                part, lse = _flash(rows, *_one(block, k[a], v[a]), 0.0, False, scale=scale)
                parts[some], lses[some] = part.view(-1, r, d), lse.view(-1, r)
            _merge(out[a], total[a], parts, lses, pairs.places[a])
        ctx.save_for_backward(q, k, v, out, total, *pairs)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        forbid_double_backward("attention to chosen blocks")
        q, k, v, out, lse, *given = ctx.saved_tensors
        pairs, (g, _, r, d), do = _Pairs(*given), q.shape, do.contiguous()
        whole = [_blocks_of(x, k.shape[2]) for x in (do, out, lse)]
        dq, dk, dv = _flash_backward(
            whole[0], *_diagonal(q, k, v), whole[1], whole[2][..., 0], 0.0, True, scale=ctx.scale
        )
        dq, dk, dv = _undone(dq, q), *(x.sum(1).view_as(k) for x in (dk, dv))
        for a in range(g):
            for block, some in pairs.of(a):
                query = pairs.queries[a, some]
                d_part, rows, part = (_shared(x[a].index_select(0, query)) for x in (do, q, out))
                sums = _shared(lse[a].index_select(0, query))[..., 0]
                keys, values = (x.expand(len(rows), -1, -1, -1) for x in _one(block, k[a], v[a]))
                d_rows, d_keys, d_values = _flash_backward(
                    d_part, rows, keys, values, part, sums, 0.0, False, scale=ctx.scale
                )
                dq[a].index_add_(0, query, d_rows.reshape(-1, r, d)[: len(query)])
                dk[a, block] += d_keys.sum((0, 1))
                dv[a, block] += d_values.sum((0, 1))
        return dq, dk, dv, None, None


def _merge(out: Tensor, total: Tensor, parts: Tensor, lses: Tensor, places: Tensor) -> None:
    """Add to outputs (n, r, d) and their log-sum-exps (n, r, 1), in place, the parts of which each
    query has those at its ``places`` (n, k)."""
    each = lses[places].mT  # (n, r, k)
    whole = torch.cat((total, each), dim=-1).logsumexp(dim=-1, keepdim=True)
    rows = places[:, None] * lses.shape[1] + torch.arange(lses.shape[1])[:, None]
    shares = (each - whole).exp().to(parts.dtype)
    taken = F.embedding_bag(
        rows.flatten(0, 1), parts.flatten(0, 1), mode="sum", per_sample_weights=shares.flatten(0, 1)
    )
    out.mul_((total - whole).exp()).add_(taken.view_as(out))
    total.copy_(whole)


def _diagonal(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Each block of queries with its own keys, (g · N, r, B, d)."""
    own = (x.flatten(0, 1)[:, None].expand(-1, q.shape[2], -1, -1) for x in (k, v))
    return _blocks_of(q, k.shape[2]), *own


def _blocks_of(x: Tensor, size: int) -> Tensor:
    """(g, n, r, d) → (g · N, r, B, d), with zeros after the last token."""
    short = -x.shape[1] % size
    padded = F.pad(x, (0, 0, 0, 0, 0, short)) if short else x
    return padded.unflatten(1, (-1, size)).flatten(0, 1).transpose(1, 2)


def _undone(x: Tensor, like: Tensor) -> Tensor:
    """(g · N, r, B, d) → (g, n, r, d)."""
    g, n, r = like.shape[:3]
    return x.transpose(1, 2).reshape(g, -1, r, x.shape[-1])[:, :n].contiguous()


def _one(block: int, *sequences: Tensor) -> tuple[Tensor, ...]:
    """One block of the keys and of the values (N, B, d) of a group, (1, 1, B, d)."""
    return tuple(x[block][None, None] for x in sequences)


def _shared(x: Tensor) -> Tensor:
    """Some rows (m, r, d) in equal parts for the threads, (t, 1, ⌈m / t⌉ · r, d), with zeros after
    the last: the kernel's backward pass gives a thread whole heads."""
    parts = max(1, min(torch.get_num_threads(), len(x) // AT_ONCE))
    short = -len(x) % parts
    padded = F.pad(x, (0, 0, 0, 0, 0, short)) if short else x
    return padded.reshape(parts, 1, -1, x.shape[-1])
