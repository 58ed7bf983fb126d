r"""Ring attention: every process keeps its queries, and the keys and values travel.

P processes stand in a ring. Each holds n/P positions: their queries, keys and values. In step s
process r attends to the keys of process r - s, merges the result with what it has (``merge``), and
has meanwhile passed keys and values on to the next process. After P steps every query has met every
key, and no process ever held more than two shards of them.

Backward, keys and values travel again, and beside each shard its gradients, to which every process
adds its part; one more step brings them home.

Sent by each process, in numbers, with g heads of keys and values of widths d and e:

    forward    (P - 1) (n/P) g (d + e)
    backward   (2P - 1) (n/P) g (d + e)      keys and values P - 1 times, their gradients P times

Keys and values of a half precision travel as they are; sums, and so the gradients, are in float32
(``bytes_sent``).

In a causal text the last process of contiguous shards has twice the work of the mean, and the
others wait for it in every round; ``layout="zigzag"`` gives all the same (``layouts``).

PyTorch has a context-parallel API (``torch.distributed.tensor.experimental.context_parallel``). It
replaces three CUDA kernels of ``scaled_dot_product_attention`` by rings and has none for a CPU; its
sums are in float32 whatever is given. On GPUs it is the faster one, its kernels being fused; here
the steps are written out, they run anywhere and in float64, and each exchange has a time limit. Its
ring is a second oracle in the tests, as is its order of the zigzag.

Liu, Zaharia, Abbeel: *Ring Attention with Blockwise Transformers for Near-Infinite Context*, 2023,
arXiv 2310.01889. Departure: the paper's ring also computes the feed-forward layer blockwise.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from attnlab.core.precision import upcast_dtype
from attnlab.core.shapes import GroupKeys, GroupValues, Outputs, Queries, checked
from attnlab.parallel.group import Group
from attnlab.parallel.layouts import Layout, blocks, positions
from attnlab.parallel.merge import Partial, attended, gradients, merged, nothing
from attnlab.parallel.shards import check_shards, scale_of


@checked
def ring_attention(
    group: Group,
    q: Queries,
    k: GroupKeys,
    v: GroupValues,
    *,
    causal: bool = False,
    layout: Layout = "zigzag",
) -> Outputs:
    """Attention over the text of all processes, for the queries of this one.

    q, k, v: this process's shard, as ``layouts.positions`` divides the text; the same shapes in all
        processes. Heads of keys and values may be fewer than those of queries and divide them.
    causal: no query attends to a later position.

    Raises ValueError for a shard that the layout cannot be made of, ProcessesError if a process is
    missing or has other shapes.
    """
    positions(layout, q.shape[2] * group.size, group.size)
    if k.shape[2] != q.shape[2]:
        raise ValueError(
            f"ring_attention: {q.shape[2]} queries but {k.shape[2]} keys in a shard; every process "
            "holds queries, keys and values of the same positions"
        )
    check_shards("ring_attention", group, q, k, v, f"causal={causal}", f"layout='{layout}'")
    out: Tensor = _Ring.apply(group, causal, layout, q, k, v)
    return out


class _Ring(Function):
    @staticmethod
    def forward(
        ctx: Any, group: Group, causal: bool, layout: str, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        ring = _Rounds(group, q.shape[2], causal, layout, scale_of(q))
        total = ring.attend(q, k, v)
        ctx.ring = ring
        ctx.save_for_backward(q, k, v, total.out, total.lse)
        return total.out.to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        found = ctx.ring.differentiate(d_out, q, k, v, Partial(out, lse))
        return None, None, None, *(x.to(q.dtype) for x in found)


class _Rounds:
    """The steps of one ring, forward and backward."""

    def __init__(self, group: Group, n: int, causal: bool, layout: str, scale: float) -> None:
        self.group, self.scale = group, scale
        held = positions(layout, n * group.size, group.size)
        sources = [(group.rank - step) % group.size for step in range(group.size)]
        self.blocks = [
            blocks(layout, held[group.rank], held[source], causal=causal) for source in sources
        ]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Partial:
        parts = [nothing(q[:, :, rows], v) for rows in self._rows(q)]
        for step, here in enumerate(self.blocks):
            shift = self._pass_on([k, v], "keys and values", step, last=self.group.size - 1)
            with self.group.working(f"step {step}"):
                for block in here:
                    rows, keys = block.queries, block.keys
                    mask = None if block.mask is None else block.mask.to(q.device)
                    more = attended(q[:, :, rows], k[:, :, keys], v[:, :, keys], mask, self.scale)
                    number = rows.start // (rows.stop - rows.start)
                    parts[number] = merged(parts[number], more)
            k, v = shift.wait() if shift else (k, v)
        outs, lses = zip(*parts, strict=True)
        return Partial(torch.cat(outs, 2), torch.cat(lses, 2))

    def differentiate(
        self, d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, total: Partial
    ) -> tuple[Tensor, Tensor, Tensor]:
        d_q, d_k, d_v = (torch.zeros_like(x, dtype=upcast_dtype(x)) for x in (q, k, v))
        for step, here in enumerate(self.blocks):
            shift = self._pass_on([k, v], "keys and values, backward", step, self.group.size - 1)
            with self.group.working(f"step {step}, backward"):
                for block in here:
                    rows, keys = block.queries, block.keys
                    mask = None if block.mask is None else block.mask.to(q.device)
                    part = Partial(total.out[:, :, rows], total.lse[:, :, rows])
                    more = gradients(
                        d_out[:, :, rows], q[:, :, rows], k[:, :, keys], v[:, :, keys],
                        part, mask, self.scale,
                    )  # fmt: skip
                    d_q[:, :, rows] += more[0]
                    d_k[:, :, keys] += more[1]
                    d_v[:, :, keys] += more[2]
            k, v = shift.wait() if shift else (k, v)
            home = self._pass_on([d_k, d_v], "gradients of keys and values", step, self.group.size)
            d_k, d_v = home.wait() if home else (d_k, d_v)
        return d_q, d_k, d_v

    def _rows(self, q: Tensor) -> list[slice]:
        """The pieces of the shard's queries, each with a result of its own."""
        found = {(b.queries.start, b.queries.stop) for here in self.blocks for b in here}
        return [slice(*ends) for ends in sorted(found)]

    def _pass_on(self, tensors: list[Tensor], what: str, step: int, last: int) -> Any:
        if step >= last or self.group.size == 1:
            return None
        return self.group.shift(tensors, f"ring attention, {what}, step {step}")


def numbers_sent(
    n: int, processes: int, kv_heads: int, width: int, value_width: int, *, batch: int = 1
) -> tuple[int, int]:
    """By the formula, the numbers that each process sends: forward, backward."""
    if processes == 1:
        return 0, 0
    shard = batch * (n // processes) * kv_heads * (width + value_width)
    return (processes - 1) * shard, (2 * processes - 1) * shard


def bytes_sent(
    n: int,
    processes: int,
    kv_heads: int,
    width: int,
    value_width: int,
    dtype: torch.dtype,
    *,
    batch: int = 1,
) -> tuple[int, int]:
    """By the formula, the bytes that each process sends: forward, backward.

    dtype: of keys and values, which travel in it, forward and backward; their gradients travel in
        float32, or in float64 where that is the dtype.
    """
    forward, backward = numbers_sent(n, processes, kv_heads, width, value_width, batch=batch)
    own = torch.empty(0, dtype=dtype)
    of_a_gradient = upcast_dtype(own).itemsize
    return dtype.itemsize * forward, dtype.itemsize * forward + of_a_gradient * (backward - forward)
