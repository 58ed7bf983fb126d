"""Checks of lesson 40: turning by the position, biases by distance, and T5's buckets."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors, sizes
from attnlab.exercises.exercise import Exercise

# ---- the rotation


def _rotated(x: Tensor, positions: Tensor, theta: Tensor) -> Tensor:
    angles = positions[:, None].to(theta.dtype) * theta
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


def _interleaved(x: Tensor, positions: Tensor, theta: Tensor) -> Tensor:
    order = torch.cat((torch.arange(0, x.shape[-1], 2), torch.arange(1, x.shape[-1], 2)))
    return _rotated(x[:, order], positions, theta)[:, order.argsort()]


def _two_plus(x: Tensor, positions: Tensor, theta: Tensor) -> Tensor:
    angles = positions[:, None] * theta
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos + second * sin, first * sin + second * cos), dim=-1)


def _reflected(x: Tensor, positions: Tensor, theta: Tensor) -> Tensor:
    angles = positions[:, None] * theta
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos - first * sin), dim=-1)


def _rotation_cases() -> Iterator[Arguments]:
    x, theta = random_tensors((7, 6), (3,), seed=1)
    positions = torch.tensor([4, 5, 6, 9, 10, 2, 31])
    yield {"x": x, "positions": positions, "theta": theta.abs()}


check_rotation = Exercise(
    """Is each pair of coordinates turned? `rotate(x, positions, theta) -> (n, d)`.

    `x` (n, d) are queries or keys, `positions` (n,) whole numbers, `theta` (d/2,) radians per
    position; coordinate t is turned together with coordinate t + d/2. Called with n = 7, d = 6 and
    positions that do not begin at 0.
    """,
    right=_rotated,
    cases=_rotation_cases,
    axes="n d",
    mistakes={
        _interleaved: (
            "The pairs are neighbours, coordinates 2t and 2t + 1: that is the interleaved layout. "
            "Here coordinate t is turned together with t + d/2."
        ),
        (lambda x, positions, theta: _rotated(x, -positions, theta)): (
            "It turns the other way: the signs of the sines are exchanged."
        ),
        _reflected: "Both sines have a minus: a rotation has it in one of the two lines only.",
        _two_plus: (
            "Both sines have a plus, so that lengths change: one of the two lines has a minus."
        ),
        (lambda x, positions, theta: _rotated(x, torch.ones_like(positions), theta)): (
            "Every position is turned by θ alone: the angle is position times θ."
        ),
        (lambda x, positions, theta: _rotated(x, torch.arange(len(x)), theta)): (
            "It uses the number of the row as position; use `positions`, which may begin anywhere."
        ),
        (lambda x, positions, theta: _rotated(x, positions + 1, theta)): (
            "Positions are counted from 0: the angle is position times θ, not (position + 1) times "
            "θ."
        ),
        (lambda x, positions, theta: _rotated(x, positions, theta / math.sqrt(x.shape[-1]))): (
            "The angles are divided by √d; only scores are."
        ),
        (lambda x, positions, theta: x + (positions[:, None] * theta).repeat(1, 2)): (
            "The angles are added to the coordinates: that is not a rotation. Multiply by cosines "
            "and sines."
        ),
    },
    praise="Lengths are kept, and the score of two turned vectors depends on the distance alone.",
)


# ---- biases by distance


def _biases(slopes: Tensor, n: int) -> Tensor:
    i = torch.arange(n, dtype=slopes.dtype)
    return -slopes[:, None, None] * (i[:, None] - i).abs()


def _distance_biases_cases() -> Iterator[Arguments]:
    (slopes,) = random_tensors((3,), seed=2)
    yield {"slopes": slopes.abs() + 0.2, "n": 5}


check_distance_biases = Exercise(
    """Are these ALiBi's biases? `biases(slopes, n) -> (h, n, n)`.

    `slopes` (h,) has a number per head; the bias of query i and key j is −slope · |i − j|, for
    later keys, too. Called with h = 3 and n = 5.
    """,
    right=_biases,
    cases=_distance_biases_cases,
    axes="h n n",
    mistakes={
        (lambda slopes, n: -_biases(slopes, n)): (
            "The sign is missing: scores should fall with the distance."
        ),
        (lambda slopes, n: _biases(slopes, n) * (1 - 2 * torch.ones(n, n).triu(1))): (
            "Later keys get a positive bias: the distance is |i − j|, without its sign."
        ),
        (lambda slopes, n: _biases(slopes, n) * (1 - 2 * torch.ones(n, n).tril(-1))): (
            "Keys of the past get a positive bias: the distance is |i − j|, without its sign."
        ),
        (
            lambda slopes, n: (
                -slopes[:, None, None] * (_biases(slopes, n) / slopes[:, None, None]) ** 2
            )
        ): ("The distance is squared; ALiBi's bias is linear."),
        (lambda slopes, n: _biases(slopes, n) / slopes[:, None, None] ** 2): (
            "It divides by the slope; multiply by it."
        ),
        (lambda slopes, n: slopes[:, None, None] * torch.arange(n).expand(n, n)): (
            "The biases depend on the key alone: subtract the query's position. In a causal layer "
            "the weights would be the same, but here the bias of the distance is asked for."
        ),
        (lambda slopes, n: _biases(slopes, n) - slopes[:, None, None]): (
            "The token itself has the distance 0, not 1."
        ),
    },
    praise="Every head falls by its slope with each position of distance.",
)


# ---- buckets


def _buckets(distance: Tensor, buckets: int, largest: int) -> Tensor:
    exact = buckets // 2
    ratio = distance.clamp(min=1).double() / exact
    steps = ratio.log() / math.log(largest / exact) * (buckets - exact)
    shared = (exact + (steps + 1e-9).floor().long()).clamp(max=buckets - 1)
    return torch.where(distance < exact, distance, shared)


def _linear(distance: Tensor, buckets: int, largest: int) -> Tensor:
    exact = buckets // 2
    share = (distance - exact) * (buckets - exact) // (largest - exact)
    return torch.where(distance < exact, distance, (exact + share).clamp(max=buckets - 1))


def _unbounded(distance: Tensor, buckets: int, largest: int) -> Tensor:
    exact = buckets // 2
    ratio = distance.clamp(min=1).double() / exact
    steps = ratio.log() / math.log(largest / exact) * (buckets - exact)
    return torch.where(distance < exact, distance, exact + (steps + 1e-9).floor().long())


def _without_exact(distance: Tensor, buckets: int, largest: int) -> Tensor:
    exact = buckets // 2
    ratio = distance.clamp(min=1).double() / exact
    steps = ratio.log() / math.log(largest / exact) * (buckets - exact)
    return torch.where(distance < exact, distance, (steps + 1e-9).floor().long())


def _buckets_cases() -> Iterator[Arguments]:
    for buckets, largest in sizes((32, 128), (10, 50)):
        yield {"distance": torch.arange(200), "buckets": buckets, "largest": largest}


check_buckets = Exercise(
    """Are these T5's buckets of the past? `bucket(distance, buckets, largest) -> (m,)`.

    `distance` (m,) are whole numbers from 0. The first E = buckets // 2 have a bucket of their own;
    those from E on share, bucket E + ⌊log(t/E) / log(largest/E) · (buckets − E)⌋, at most
    buckets − 1. Called with 0 … 199, buckets 32 and 10, largest 128 and 50.
    """,
    right=_buckets,
    cases=_buckets_cases,
    axes="m",
    mistakes={
        _linear: (
            "Far distances share buckets of equal width; the widths should grow by a constant "
            "ratio: use the logarithm."
        ),
        _unbounded: (
            "Distances of `largest` and more fall beyond the last bucket: clamp to buckets − 1."
        ),
        _without_exact: "The shared buckets begin at 0 and collide with the exact ones: add E.",
        (lambda distance, buckets, largest: distance.clamp(max=buckets - 1)): (
            "Every distance has a bucket of its own up to the last; from E on distances share."
        ),
        (
            lambda distance, buckets, largest: torch.where(
                distance < buckets // 2,
                distance,
                (
                    buckets // 2
                    + (
                        (distance.clamp(min=1) / (buckets // 2)).log()
                        / math.log(largest / (buckets // 2))
                        * (buckets - buckets // 2)
                    ).round()
                )
                .long()
                .clamp(max=buckets - 1),
            )
        ): ("The numbers are rounded to the nearest bucket; take the floor."),
    },
    praise="Near distances are told apart one by one, far ones by their order of magnitude.",
)


# ---- a turn of the slowest pair

check_slowest_turn = NumberExercise(
    "Is it the number of positions after which θ = 0.001 radians have become a full turn?",
    right=2 * math.pi / 0.001,
    tolerance=1e-3,
    unit="positions",
    mistakes={
        1 / 0.001: "After 1,000 positions it has turned by 1 radian; once around is 2π radians.",
        2 * math.pi: "That is the fastest pair, θ = 1.",
        360 / 0.001: "θ is in radians: once around is 2π, not 360.",
        10_000: "10,000 is the base; the slowest θ is 10000^(-6/8) = 0.001.",
        2 * math.pi / 0.0001: (
            "Pair t = 3 of a head of width 8 has θ = 10000^(-6/8) = 0.001, not 0.0001."
        ),
    },
)
