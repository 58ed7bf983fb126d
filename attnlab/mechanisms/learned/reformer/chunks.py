"""The pairs of LSH attention chunk by chunk; nothing of the size n × m is kept for backward.

A round goes through blocks of chunks. A block gathers its queries, and the keys and values of their
chunks and of the chunk before each, and gives each query its sum of weights times values and its
sum of weights. Rounds are added up as tiles are by an online softmax. The backward pass computes
the weights of a block again, from the scores and the log-sum-exp of each query.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from attnlab.core.tracing import on_cpu
from attnlab.mechanisms.learned.reformer.hashing import NOT_HASHED, Places

BLOCK = {"cpu": 1 << 18, "else": 1 << 24}
"""Scores computed at once: on a CPU few enough for its cache."""
NOBODY = -2  # in place of the bucket of a key: that of no query

At = tuple[slice, slice]
"""Some chunks of some groups."""
Both = tuple[Tensor, Tensor]
"""The output (g, n, e) and the log-sum-exp of each query (g, n)."""


class Rounds:
    """All rounds of ``Places``, cut into chunks; batch and heads are one axis of g groups.

    With ``exact`` a pair counts in the first round that has it alone; otherwise in each, divided by
    the number of rounds in which the two share a bucket.
    """

    def __init__(self, places: Places, chunk: int, *, exact: bool) -> None:
        given = (places.order, places.rank, places.buckets)
        self.order, self.rank, self.buckets = (x.flatten(0, 1).unbind(1) for x in given)
        self.places, self.exact = places, exact
        self.groups, self.n = self.order[0].shape
        self.chunk = min(chunk, self.n)
        self.chunks = -(-self.n // self.chunk)

    def __len__(self) -> int:
        return len(self.order)

    def blocks(self) -> list[At]:
        """All chunks of some groups, or some chunks of one group."""
        scores = BLOCK["cpu" if on_cpu(self.order[0]) else "else"]
        at_once = max(1, scores // (2 * self.chunk**2))
        groups, chunks = max(1, at_once // self.chunks), min(self.chunks, at_once)
        return [
            (slice(g, g + groups), slice(c, c + chunks))
            for g in range(0, self.groups, groups)
            for c in range(0, self.chunks, chunks)
        ]

    def in_chunks(self, x: Tensor, fill: int) -> tuple[Tensor, Tensor]:
        """(g, n) in the order of a round → (g, chunks, m) of queries and (g, chunks, 2m) of keys.

        ``fill`` stands for the chunk before the first and for what the last one lacks.
        """
        short = self.chunks * self.chunk - self.n
        own = F.pad(x, (0, short), value=fill).unflatten(1, (self.chunks, self.chunk))
        before = F.pad(own[:, :-1], (0, 0, 1, 0), value=fill)
        return own, torch.cat([before, own], dim=-1)

    def by_position(self, x: Tensor, round_: int) -> Tensor:
        """(g, chunks, m, w) in the order of a round → (g, n, w)."""
        x, order = x.flatten(1, 2)[:, : self.n], self.order[round_][..., None]
        return torch.empty_like(x).scatter_(1, order.expand_as(x), x)


class Round:
    """One round: the rows of its queries and keys, and which of their pairs attend."""

    def __init__(self, rounds: Rounds, index: int) -> None:
        self.rounds, self.index = rounds, index
        places, order = rounds.places, rounds.order[index]
        first = torch.arange(rounds.groups, device=order.device)[:, None, None] * rounds.n
        self.positions = rounds.in_chunks(order, 0)
        self.rows = tuple(side + first for side in self.positions)
        own, keys = self._sorted(rounds.buckets[index], NOT_HASHED)
        self.bucket = own, keys.masked_fill(keys == NOT_HASHED, NOBODY)
        self.causal, self.nearest = places.causal, places.nearest
        # 0 ≤ i - j ≤ reach is |2i - reach - 2j| ≤ reach: one comparison
        ranks = [self._sorted(2 * rank, 0) for rank in rounds.rank[:index] if rounds.exact]
        self.earlier = [(own - places.reach, keys) for own, keys in ranks]
        others = [b for b in rounds.buckets if b is not rounds.buckets[index] and not rounds.exact]
        self.shared = [self._sorted(bucket, NOT_HASHED) for bucket in others]

    def _sorted(self, x: Tensor, fill: int) -> tuple[Tensor, Tensor]:
        return self.rounds.in_chunks(x.gather(1, self.rounds.order[self.index]), fill)

    def gather(self, x: Tensor, at: At, side: int) -> Tensor:
        """The rows of x (g·n, w) that are queries (``side`` 0) or keys (1) of a block."""
        rows = self.rows[side][at].flatten(0, 1)
        return x.index_select(0, rows.flatten()).unflatten(0, rows.shape)

    def hidden(self, at: At) -> Tensor:
        """(c, m, 2m): where a query does not attend to a key, or did in an earlier round."""
        own, keys = _pairs(self.bucket, at)
        hidden = own != keys
        if self.nearest:
            hidden |= self._band
        else:
            own, keys = _pairs(self.positions, at)
            hidden |= own <= keys if self.causal else own == keys
        for ranks in self.earlier:
            own, keys = _pairs(ranks, at)
            hidden |= (own - keys).abs_() <= self.rounds.places.reach
        return hidden

    @property
    def _band(self) -> Tensor:
        """(m, 2m): the keys that are not among the m sorted before the query."""
        m, device = self.rounds.chunk, self.positions[0].device
        ahead = torch.arange(m, 2 * m, device=device)[:, None] - torch.arange(2 * m, device=device)
        return (ahead <= 0) | (ahead > m)

    def divide(self, weights: Tensor, at: At) -> Tensor:
        """The weights (c, m, 2m) by the number of rounds in which the two share a bucket."""
        if self.shared:
            number = torch.ones_like(weights)
            for buckets in self.shared:
                own, keys = _pairs(buckets, at)
                number += own == keys
            weights /= number
        return weights


def _pairs(sides: tuple[Tensor, ...], at: At) -> tuple[Tensor, Tensor]:
    own, keys = (side[at].flatten(0, 1) for side in sides)
    return own[..., :, None], keys[..., None, :]


def over_rounds(
    q: Tensor, k: Tensor, v: Tensor, places: Places, chunk: int, *, exact: bool
) -> Both:
    """q (scaled), k, v (g, n, d or e) → (out, log-sum-exp (g, n)), zero and -inf without keys."""
    if torch.compiler.is_compiling():
        return _compiled(q, k, v, *places, chunk, exact)
    return OverRounds.apply(q, k, v, Rounds(places, chunk, exact=exact))


def _attended(q: Tensor, k: Tensor, v: Tensor, rounds: Rounds) -> Both:
    queries, keys = q.flatten(0, 1), k.flatten(0, 1)
    values = F.pad(v, (0, 1), value=1).flatten(0, 1)  # a column of ones: the sum of weights
    shape = rounds.groups, rounds.chunks, rounds.chunk
    sums = v.new_zeros(*v.shape[:2], v.shape[2] + 1)
    largest = v.new_full(v.shape[:2], -torch.inf)
    for index in range(len(rounds)):
        round_ = Round(rounds, index)
        found, most = v.new_empty(*shape, values.shape[1]), v.new_empty(*shape, 1)
        for at in rounds.blocks():
            scores = round_.gather(queries, at, 0) @ round_.gather(keys, at, 1).mT
            scores.masked_fill_(round_.hidden(at), -torch.inf)
            top = scores.amax(dim=-1, keepdim=True)
            scores.sub_(top.masked_fill(top == -torch.inf, 0)).exp_()
            weights = round_.divide(scores, at)
            found[at] = (weights @ round_.gather(values, at, 1)).view_as(found[at])
            most[at] = top.view_as(most[at])
        found, most = (rounds.by_position(x, index) for x in (found, most))
        sums, largest = _added(sums, largest, found, most.squeeze(-1))
    total = sums[..., -1:]
    return sums[..., :-1] / (total + (total == 0)), largest + total.squeeze(-1).log()


def _gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, log_sum: Tensor, rounds: Rounds
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    queries, keys, values, grads = (x.flatten(0, 1) for x in (q, k, v, grad))
    log_sum = log_sum.masked_fill(log_sum == -torch.inf, 0)
    of_rows = torch.stack([log_sum, (grad * out).sum(dim=-1)], dim=-1).flatten(0, 1)
    shape = rounds.groups, rounds.chunks, rounds.chunk
    total = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for index in range(len(rounds)):
        round_ = Round(rounds, index)
        own = [x.new_empty(*shape, x.shape[-1]) for x in (q, k, v)]
        before = [x.new_empty(*shape, x.shape[-1]) for x in (k, v)]
        for at in rounds.blocks():
            q_, grad_, rows_ = (round_.gather(x, at, 0) for x in (queries, grads, of_rows))
            k_, v_ = (round_.gather(x, at, 1) for x in (keys, values))
            weights = (q_ @ k_.mT).sub_(rows_[..., :1])
            weights.masked_fill_(round_.hidden(at), -torch.inf).exp_()
            weights = round_.divide(weights, at)
            grad_v = weights.mT @ grad_
            grad_scores = weights.mul_((grad_ @ v_.mT).sub_(rows_[..., 1:]))
            own[0][at] = (grad_scores @ k_).view_as(own[0][at])
            for i, both in enumerate((grad_scores.mT @ q_, grad_v)):
                earlier, later = both.split(rounds.chunk, dim=-2)
                before[i][at] = earlier.reshape(before[i][at].shape)
                own[i + 1][at] = later.reshape(own[i + 1][at].shape)
        for mine, earlier in zip(own[1:], before, strict=True):
            mine[:, :-1] += earlier[:, 1:]
        for whole, mine in zip(total, own, strict=True):
            whole += rounds.by_position(mine, index)
    return total


class OverRounds(torch.autograd.Function):
    """The two passes, with what the second needs of the first."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rounds: Rounds) -> Both:
        out, log_sum = _attended(q, k, v, rounds)
        ctx.save_for_backward(q, k, v, out, log_sum)
        ctx.rounds = rounds
        ctx.mark_non_differentiable(log_sum)
        return out, log_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_sum = ctx.saved_tensors
        return *_gradients(grad, q, k, v, out, log_sum, ctx.rounds), None


# To torch.compile each pass is one operator: to follow rounds and blocks would take it seconds.


@torch.library.custom_op("attnlab::over_rounds", mutates_args=())
def _compiled(
    q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, order: Tensor, rank: Tensor, reach: int,
    causal: bool, nearest: bool, chunk: int, exact: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    places = Places(buckets, order, rank, reach, causal, nearest)
    return _attended(q, k, v, Rounds(places, chunk, exact=exact))


@_compiled.register_fake
def _shapes(q: Tensor, k: Tensor, v: Tensor, *_: object) -> Both:
    return v.new_empty(v.shape), v.new_empty(v.shape[:2])


@torch.library.custom_op("attnlab::over_rounds_backward", mutates_args=())
def _compiled_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, log_sum: Tensor, buckets: Tensor,
    order: Tensor, rank: Tensor, reach: int, causal: bool, nearest: bool, chunk: int, exact: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    places = Places(buckets, order, rank, reach, causal, nearest)
    return _gradients(grad, q, k, v, out, log_sum, Rounds(places, chunk, exact=exact))


@_compiled_backward.register_fake
def _shapes_of_gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object
) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Both) -> None:
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:6])
    ctx.options = inputs[6:]


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_compiled_backward(grad, *ctx.saved_tensors, *ctx.options), *[None] * 8


_compiled.register_autograd(_differentiate, setup_context=_keep)


def _added(sums: Tensor, largest: Tensor, more: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
    """Two sums of powers in units of e^largest and e^top, as one."""
    both = torch.maximum(largest, top)
    unit = both.masked_fill(both == -torch.inf, 0)
    old, new = (torch.exp(x - unit)[..., None] for x in (largest, top))
    return sums * old + more * new, both
