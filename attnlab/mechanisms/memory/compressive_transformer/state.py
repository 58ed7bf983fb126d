"""One segment of queries with the columns before it, and what is carried to the next."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.carried import check_carried, check_inputs
from attnlab.core.precision import upcast
from attnlab.core.relative import past_weights
from attnlab.core.segments import Reading
from attnlab.mechanisms.memory.compressive_transformer.compression import (
    CompressiveOptions,
    compressed_for_task,
    most_used,
    windows,
)


def attended(
    q: Tensor, k: Tensor, v: Tensor, u: Tensor, t: Tensor, r: Tensor, seen: Tensor
) -> tuple[Tensor, Tensor]:
    """What the queries, the last of the m columns, take from those that are ``seen`` (b, m), and
    with what weights."""
    n, m = q.shape[2], k.shape[2]
    causal = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    weights = past_weights(q, k, u, t, r, causal & seen[:, None, None])
    return (weights @ upcast(v)).to(v.dtype), weights


def used(weights: Tensor, first: int, count: int, by: Tensor) -> Float[Tensor, "b m"]:
    """How much ``count`` columns from ``first`` on were attended to, by queries (b, n) that are
    tokens."""
    given = weights.detach()[..., first : first + count] * by[:, None, :, None]
    return given.sum(dim=(1, 2))


class _Parts(NamedTuple):
    compressed: Float[Tensor, "b k dim"]
    memory: Float[Tensor, "b m dim"]
    segment: Float[Tensor, "b s dim"]
    seen: Bool[Tensor, "b r"]
    usage: Float[Tensor, "b m"]


class CompressiveState(Reading, _Parts):
    """The inputs that later queries may need, which of them are of the present document, and how
    much those of the memory were used.

    ``compressed``  up to ``Compression.compressed`` vectors, the oldest first (b, k, dim).
    ``memory``      up to ``Compression.memory`` inputs before the present segment, without gradient
                    (b, m, dim).
    ``segment``     those of the present segment so far (b, s, dim).
    ``seen``        for the k + m + s of all three: True if it may be attended to.
    ``usage``       the weights that were given to each input of the memory, summed (b, m).
    """

    __slots__ = ()

    def closed(self, kernel: nn.Conv1d | None, options: CompressiveOptions) -> "CompressiveState":
        """This state; after the last token of a segment the segment enters the memory, and what
        leaves is compressed."""
        c, k = options.segment, options.compressed
        if self.segment.shape[1] < c:
            return self
        of_short, of_inputs = self.seen.tensor_split((self.compressed.shape[1],), dim=1)
        inputs = torch.cat((self.memory, self.segment.detach()), dim=1)
        usage = F.pad(self.usage, (0, c))
        if inputs.shape[1] <= options.memory:
            return CompressiveState(self.compressed, inputs, self.segment[:, :0], self.seen, usage)
        old, seen = inputs[:, :c], of_inputs[:, :c]
        if options.compression == "most_used":
            chosen = most_used(usage[:, :c], options)
            new = old.gather(1, chosen[..., None].expand(-1, -1, old.shape[2]))
            seen = seen.gather(1, chosen)
        else:
            new = compressed_for_task(old, seen, kernel, options)
            seen = windows(seen, options).any(dim=2)
        short = torch.cat((self.compressed, new), dim=1)[:, -k:]
        of_short = torch.cat((of_short, seen), dim=1)[:, -k:]
        seen = torch.cat((of_short, of_inputs[:, c:]), dim=1)
        return CompressiveState(short, inputs[:, c:], self.segment[:, :0], seen, usage[:, c:])


def checked_state(
    state: CompressiveState | None, x: Tensor, options: CompressiveOptions
) -> CompressiveState:
    """The state, or an empty one for None; raises for that of another layer."""
    if state is None:
        nothing = x.new_zeros(len(x), 0, x.shape[2])
        usage = upcast(nothing)[..., 0]
        return CompressiveState(nothing, nothing, nothing, nothing[..., 0].bool(), usage)
    most = {
        "compressed": (state.compressed, options.compressed),
        "memory": (state.memory, options.memory),
        "segment": (state.segment, options.segment - 1),
    }
    check_inputs(most, state.seen, x)
    check_carried({"usage": (state.usage, (state.memory.shape[1],))}, len(x), upcast(x))
    return state
