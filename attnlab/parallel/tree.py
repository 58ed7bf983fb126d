r"""Tree decoding: one new query at the keys of all processes.

When a text is decoded its keys lie on P processes, and each new token has one query, which all
processes know. Each attends to its own keys; what remains is to merge P pairs (o, L), and as the
merge is associative (``merge``) it can be done in a tree: in round i each process swaps its pair
with the one whose number differs in bit i, and merges. After log2 P rounds all have the result.
A number of processes that is no power of two costs one message before and one after: those beyond
the largest power of two give their pair to one below, and are told the result.

Sent by each process: log2 P (e + 1) numbers for each head and query, however long the text is. A
ring would send (P - 1) shards of keys and values.

Backward, keys and values have their gradients where they are; that of the query, known to all, is
the sum over all processes, by an all-reduce of h d numbers.

Shyam et al.: *Tree Attention: Topology-aware Decoding for Long-Context Attention on GPU Clusters*,
2024, arXiv 2408.04093. Departure: the paper reduces the maximum, the numerator and the denominator
one after the other with NCCL's all-reduce; here the pairs are merged as they stand.
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from attnlab.core.shapes import GroupKeys, GroupValues, Outputs, Queries, checked
from attnlab.parallel.group import Group
from attnlab.parallel.merge import Partial, attended, gradients, merged
from attnlab.parallel.shards import check_shards, scale_of


@checked
def tree_attention(group: Group, q: Queries, k: GroupKeys, v: GroupValues) -> Outputs:
    """Attention of queries that all processes hold, over the keys of all processes.

    q: (b, h, n, d), the same in every process; each receives the whole output.
    k, v: this process's shard, of any order: a query that is decoded attends to all of them.

    The gradient that comes in has to be the same in every process, too, as it is if each computes
    the same loss. Raises ProcessesError if a process is missing or has other shapes.
    """
    check_shards("tree_attention", group, q, k, v)
    out: Tensor = _Tree.apply(group, q, k, v)
    return out


class _Tree(Function):
    @staticmethod
    def forward(ctx: Any, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with group.working("own keys"):
            own = attended(q, k, v, None, scale_of(q))
        total = _merged_by_all(group, own)
        ctx.group = group
        ctx.save_for_backward(q, k, v, total.out, total.lse)
        return total.out.to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        total = Partial(out, lse)
        d_q, d_k, d_v = gradients(d_out, q, k, v, total, None, scale_of(q))
        d_q = ctx.group.all_reduce(d_q, "tree attention, gradient of the query")
        return None, *(x.to(q.dtype) for x in (d_q, d_k, d_v))


def _merged_by_all(group: Group, own: Partial) -> Partial:
    rank, full = group.rank, 1 << (group.size.bit_length() - 1)
    beyond = group.size - full
    if rank >= full:
        group.send(own, rank - full, "tree attention, to a process of the tree")
        return Partial(*group.receive(own, rank - full, "tree attention, the result"))
    if rank < beyond:
        beyond_it = group.receive(own, rank + full, "tree attention, from beyond the tree")
        own = merged(own, Partial(*beyond_it))
    for round_ in range(full.bit_length() - 1):
        partner = rank ^ (1 << round_)
        other = Partial(*group.swap(own, partner, f"tree attention, round {round_}"))
        # In one order on both sides, so that both round alike.
        own = merged(own, other) if rank < partner else merged(other, own)
    if rank < beyond:
        group.send(own, rank + full, "tree attention, the result")
    return own


def numbers_sent(processes: int, heads: int, value_width: int, *, queries: int = 1) -> int:
    """By the formula, the numbers that each process sends forward; P a power of two."""
    return (processes.bit_length() - 1) * heads * queries * (value_width + 1)
