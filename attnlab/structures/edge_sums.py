"""Two sums over edges, each the gradient of the other, that keep no vector for each edge.

With queries, keys, values and weights of h heads,

    products(q, k)    s_{a h} = q_{t h} · k_{s h}, for each edge a from s to t
    collected(w, v)   o_{t h} = Σ_a w_{a h} v_{s h}, over the edges a that lead to t

The gradient of the first with respect to q is the second, of the weights' own gradients and k; with
respect to k it is the second on the edges turned round. PyTorch's ``embedding_bag`` computes the
second, but its own gradient sorts the edges and takes longer than this one. While ``torch.compile``
traces, which does not follow two functions that are each other's gradient, both are written out.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


class Edges(NamedTuple):
    """m edges between tokens, ordered by their targets, and the same turned round.

    ``first`` (bn,): where the edges that lead to each token begin; ``turn`` (m,): in which order
    the edges stand by their sources; ``turned_first``: ``first`` of these; ``back``: the order that
    undoes ``turn``.
    """

    targets: Int[Tensor, "m"]
    sources: Int[Tensor, "m"]
    first: Int[Tensor, "bn"]
    turn: Int[Tensor, "m"]
    turned_first: Int[Tensor, "bn"]
    back: Int[Tensor, "m"]

    @classmethod
    def of(cls, targets: Int[Tensor, "m"], sources: Int[Tensor, "m"], tokens: int) -> "Edges":
        """``targets`` are in ascending order."""
        numbers, turn = torch.arange(tokens, device=targets.device), sources.argsort(stable=True)
        first, turned_first = (
            torch.searchsorted(ends, numbers) for ends in (targets, sources[turn])
        )
        return cls(targets, sources, first, turn, turned_first, turn.argsort())

    def turned(self) -> "Edges":
        """Each edge leads from its target to its source."""
        ends = self.sources[self.turn], self.targets[self.turn]
        return Edges(*ends, self.turned_first, self.back, self.first, self.turn)


def products(
    q: Float[Tensor, "bn h d"], k: Float[Tensor, "bn h d"], edges: Edges
) -> Float[Tensor, "m h"]:
    """For each edge the dot product of the query of its target and the key of its source."""
    if torch.compiler.is_compiling():
        return _products(q, k, edges)
    found: Tensor = _Products.apply(q, k, *edges)
    return found


def collected(
    weights: Float[Tensor, "m h"], v: Float[Tensor, "bn h e"], edges: Edges
) -> Float[Tensor, "bn h e"]:
    """For each token the sum of the values of the sources, each times the weight of its edge."""
    if torch.compiler.is_compiling():
        messages = weights[..., None] * v.index_select(0, edges.sources)
        return torch.zeros_like(v).index_add(0, edges.targets, messages)
    found: Tensor = _Collected.apply(weights, v, *edges)
    return found


def _products(q: Tensor, k: Tensor, edges: Edges) -> Tensor:
    return (q.index_select(0, edges.targets) * k.index_select(0, edges.sources)).sum(-1)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(q: Tensor, k: Tensor, *edges: Tensor) -> Tensor:
        return _products(q, k, Edges(*edges))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, *rest = ctx.saved_tensors
        edges = Edges(*rest)
        of_keys = collected(grad.index_select(0, edges.turn), q, edges.turned())
        return collected(grad, k, edges), of_keys, *[None] * len(edges)


class _Collected(torch.autograd.Function):
    @staticmethod
    def forward(weights: Tensor, v: Tensor, *edges: Tensor) -> Tensor:
        _, sources, first, *_ = edges
        (m, h), tokens = weights.shape, len(v)
        heads = torch.arange(h, device=v.device)[:, None]
        total = F.embedding_bag(
            (sources + heads * tokens).flatten(),
            v.transpose(0, 1).flatten(0, 1),
            (first + heads * m).flatten(),
            mode="sum",
            per_sample_weights=weights.mT.flatten(),
        )
        return total.unflatten(0, (h, tokens)).transpose(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, v, *rest = ctx.saved_tensors
        edges = Edges(*rest)
        of_values = collected(weights.index_select(0, edges.turn), grad, edges.turned())
        return products(grad, v, edges), of_values, *[None] * len(edges)
