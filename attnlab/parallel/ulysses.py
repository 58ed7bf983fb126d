r"""Ulysses: instead of keys that travel, heads that are divided.

Each of P processes holds all h heads of n/P positions. An all-to-all gives it all n positions of
h/P heads; attention is then what it is on one process, in any form; a second all-to-all brings the
outputs back to the positions they belong to. The gradient of an all-to-all is the all-to-all back.

Sent by each process, in numbers, forward and again backward:

    (P - 1)/P (n/P) (h d + g d + g e + h e)      q, k, v and the output

So it shrinks with P, where the ring's does not; but P can be at most h. With fewer heads of keys
than processes, each is repeated P/g times before it is sent, and g is P in the formula.

Jacobs et al.: *DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long
Sequence Transformer Models*, 2023, arXiv 2309.14509. The paper's four equal terms 4 n h d / P are
these for h = g and d = e, without the part that a process keeps.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from attnlab.core.shapes import GroupKeys, GroupValues, Outputs, Queries, checked
from attnlab.parallel.group import Group
from attnlab.parallel.layouts import Layout, positions
from attnlab.parallel.shards import check_shards


@checked
def ulysses_attention(
    group: Group,
    q: Queries,
    k: GroupKeys,
    v: GroupValues,
    *,
    causal: bool = False,
    layout: Layout = "contiguous",
) -> Outputs:
    """Attention over the text of all processes, for the queries of this one.

    q, k, v: this process's shard (``layouts.positions``), as for ``ring_attention``.

    Raises ValueError if the heads cannot be divided among the processes, ProcessesError if a
    process is missing or has other shapes.
    """
    p, h, g = group.size, q.shape[1], k.shape[1]
    order = torch.cat(positions(layout, q.shape[2] * p, p))
    if h % p:
        raise ValueError(
            f"ulysses_attention: {h} heads cannot be divided among {p} processes; use a number of "
            "processes that divides the heads, or ring_attention"
        )
    check_shards("ulysses_attention", group, q, k, v, f"causal={causal}", f"layout='{layout}'")
    if g % p:
        if p % g:
            raise ValueError(
                f"ulysses_attention: {g} heads of keys can neither be divided among {p} processes "
                "nor be repeated evenly; use ring_attention"
            )
        k, v = (x.repeat_interleave(p // g, dim=1) for x in (k, v))
    by_heads = [_Exchange.apply(group, x, 1, 2, "heads") for x in (q, k, v)]
    back = order.argsort().to(q.device)
    with group.working("attention of own heads"):
        q, k, v = (x.index_select(2, back) for x in by_heads)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    own: Tensor = _Exchange.apply(group, out.index_select(2, order.to(q.device)), 2, 1, "outputs")
    return own


class _Exchange(Function):
    """Divide one dimension among the processes, and join the parts of all along another."""

    @staticmethod
    def forward(ctx: Any, group: Group, x: Tensor, divide: int, join: int, what: str) -> Tensor:
        ctx.group, ctx.dims, ctx.what = group, (divide, join), what
        return _exchanged(group, x, divide, join, what)

    @staticmethod
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor | None, ...]:
        divide, join = ctx.dims
        back = _exchanged(ctx.group, d_x, join, divide, f"{ctx.what}, backward")
        return None, back, None, None, None


def _exchanged(group: Group, x: Tensor, divide: int, join: int, what: str) -> Tensor:
    parts = x.chunk(group.size, divide)
    return torch.cat(group.all_to_all(parts, f"Ulysses, {what}"), join)


def numbers_sent(
    n: int,
    processes: int,
    heads: int,
    kv_heads: int,
    width: int,
    value_width: int,
    *,
    batch: int = 1,
) -> tuple[int, int]:
    """By the formula, the numbers that each process sends: forward, backward."""
    g = max(kv_heads, processes)
    of_a_position = heads * width + g * width + g * value_width + heads * value_width
    shard = batch * (n // processes) * of_a_position
    sent = shard // processes * (processes - 1)
    return sent, sent
