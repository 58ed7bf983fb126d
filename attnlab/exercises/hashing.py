"""Checks of lesson 14: how many rounds, the hash, and attention over the union of rounds."""

import torch
from torch import Tensor

from attnlab.exercises.answers import check_number
from attnlab.exercises.attempt import KnownMistake, random_tensors, require
from attnlab.exercises.verdict import Function, Verdict, returns_verdict

# ---- how many rounds

_ROUNDS_MISTAKEN: dict[float, str] = {
    4: "That is the number of rounds for 94 %: 1 - 0.5⁴.",
    6: "Six rounds find it with 98.4 %, still below 99 %.",
    8: "Eight rounds are enough, and so are fewer.",
    198: "Chances do not add up: two rounds of 50 % find it with 75 %, not 100 %.",
    2: "Chances do not add up: two rounds of 50 % find it with 75 %, not 100 %.",
}


def check_rounds(rounds: object) -> Verdict:
    """Is it the smallest number of rounds, each with a chance of 50 %, that find it with 99 %?"""
    return check_number(rounds, 7, unit="rounds", mistakes=_ROUNDS_MISTAKEN)


# ---- the hash


def _buckets(x: Tensor, R: Tensor) -> Tensor:
    products = x @ R
    return torch.cat([products, -products], dim=-1).argmax(dim=-1)


_BUCKETS_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "Those are half of the buckets: the opposite of each direction is a bucket too, [xR; -xR].",
        lambda x, R: (x @ R).argmax(-1),
    ),
    (
        "A direction and its opposite are one bucket here: of |xR| the sign is missing.",
        lambda x, R: (x @ R).abs().argmax(-1),
    ),
    (
        "Buckets and their opposites are exchanged: the equation has argmax [xR; -xR].",
        lambda x, R: torch.cat([-x @ R, x @ R], dim=-1).argmax(-1),
    ),
    (
        "argmax over the tokens: take it over the buckets, the last axis.",
        lambda x, R: torch.cat([x @ R, -x @ R], dim=-1).argmax(0),
    ),
    (
        "Those are the numbers of which the largest decides; its index is the bucket.",
        lambda x, R: torch.cat([x @ R, -x @ R], dim=-1),
    ),
)


@returns_verdict
def check_hash(function: Function) -> str:
    """Is it the hash? `buckets(x (n, d), R (d, k)) -> n numbers from 0 to 2k - 1`."""
    for n, d, k in ((23, 5, 3), (17, 3, 4)):
        x, directions = random_tensors((n, d), (d, k))
        given = {"x": x, "R": directions}
        require(function, given, _buckets, shape="n", known_mistakes=_BUCKETS_MISTAKEN)
    return "The nearest of k directions and their k opposites."


# ---- one softmax over the union of the rounds


def _keys(q: Tensor) -> Tensor:
    return q / q.norm(dim=-1, keepdim=True)


def _pairs(buckets: Tensor) -> Tensor:
    """For each round the earlier tokens of the same bucket."""
    same = buckets[:, :, None] == buckets[:, None, :]
    return same & torch.ones_like(same[0]).tril(-1)


def _attended(
    q: Tensor, v: Tensor, times: Tensor, *, keys: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Weights times e^score, and itself alone where there is nothing."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    powers = (q @ (_keys(q) if keys is None else keys).mT * scale).exp() * times
    alone = (times.sum(-1) == 0).to(q.dtype).diag()
    powers = powers + alone
    return powers / powers.sum(-1, keepdim=True) @ v


def _union(q: Tensor, v: Tensor, buckets: Tensor) -> Tensor:
    return _attended(q, v, _pairs(buckets).any(0).to(q.dtype))


def _with_itself(q: Tensor, v: Tensor, buckets: Tensor) -> Tensor:
    pairs = _pairs(buckets).any(0) | torch.eye(len(q), dtype=torch.bool)
    return _attended(q, v, pairs.to(q.dtype))


def _without_the_lonely(q: Tensor, v: Tensor, buckets: Tensor) -> Tensor:
    lonely = ~_pairs(buckets).any(0).any(-1)
    return _union(q, v, buckets).masked_fill(lonely[:, None], 0)


def _later_too(q: Tensor, v: Tensor, buckets: Tensor) -> Tensor:
    same = (buckets[:, :, None] == buckets[:, None, :]).any(0)
    return _attended(q, v, (same & ~torch.eye(len(q), dtype=torch.bool)).to(q.dtype))


_UNION_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "A key that several rounds find counts several times. Divide by how many rounds find it, "
        "or ask whether any does.",
        lambda q, v, buckets: _attended(q, v, _pairs(buckets).sum(0).to(q.dtype)),
    ),
    (
        "Each round has a softmax of its own here, and the outputs are averaged. The rounds are "
        "one softmax over the union of what they find.",
        lambda q, v, buckets: torch.stack([_union(q, v, one[None]) for one in buckets]).mean(0),
    ),
    (
        "Tokens attend to themselves although they have other keys: its score |q| is always the "
        "largest.",
        _with_itself,
    ),
    ("A token without an earlier one in its buckets attends to itself.", _without_the_lonely),
    ("Later tokens are attended to: it should be causal.", _later_too),
    (
        "The keys are as long as the queries; they have length 1.",
        lambda q, v, buckets: _attended(q, v, _pairs(buckets).any(0).to(q.dtype), keys=q),
    ),
    (
        "The scores are not divided by √d.",
        lambda q, v, buckets: _attended(q, v, _pairs(buckets).any(0).to(q.dtype), scale=1.0),
    ),
    (
        "Only keys that all rounds find are attended to; one round is enough.",
        lambda q, v, buckets: _attended(q, v, _pairs(buckets).all(0).to(q.dtype)),
    ),
)


@returns_verdict
def check_lsh_attention(function: Function) -> str:
    """Is it causal LSH attention? `lsh_attention(q (n, d), v (n, e), buckets (r, n)) -> (n, e)`.

    Keys are the queries at unit length; no token attends to itself, unless it has no other key.
    """
    for n, d, e, rounds in ((13, 5, 3, 2), (7, 3, 2, 3)):
        q, v = random_tensors((n, d), (n, e))
        buckets = torch.randint(4, (rounds, n), generator=torch.Generator().manual_seed(n))
        given = {"q": q, "v": v, "buckets": buckets}
        require(function, given, _union, shape="n e", known_mistakes=_UNION_MISTAKEN)
    return "One softmax over what any of the rounds finds."
