"""Lesson 40's checks: the rotation, biases by distance, and buckets."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises import Verdict, check_buckets, check_distance_biases, check_rotation
from attnlab.mechanisms.positions import alibi
from attnlab.mechanisms.positions.t5_bias import Buckets
from tests.exercises.frame import answers_to


def rotate(x: Tensor, positions: Tensor, theta: Tensor, sign: int = 1) -> Tensor:
    complex_x = torch.complex(*x.chunk(2, -1))
    turned = complex_x * torch.polar(torch.ones_like(theta), theta * positions[:, None] * sign)
    return torch.cat((turned.real, turned.imag), -1)


def by_loops(slopes: Tensor, n: int) -> Tensor:
    rows = [[[-m * abs(i - j) for j in range(n)] for i in range(n)] for m in slopes.tolist()]
    return torch.tensor(rows, dtype=slopes.dtype)


def bucket(distance: Tensor, buckets: int, largest: int) -> Tensor:
    half = buckets // 2
    found = []
    for t in distance.tolist():
        far = math.log(max(t, 1) / half) / math.log(largest / half) * (buckets - half)
        found.append(t if t < half else min(buckets - 1, half + math.floor(far + 1e-9)))
    return torch.tensor(found)


def of_library(distance: Tensor, buckets: int, largest: int) -> Tensor:
    if buckets % 4:
        return bucket(distance, buckets, largest)
    return Buckets(buckets=buckets, max_distance=largest).of(-distance, causal=True)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_rotation, rotate),
    (check_distance_biases, by_loops),
    (check_distance_biases, lambda m, n: alibi.naive(torch.arange(n), torch.arange(n), m)),
    (check_buckets, bucket),
    (check_buckets, of_library),
]


def neighbours(x: Tensor, positions: Tensor, theta: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(len(x), -1, 2))
    turn = torch.polar(torch.ones_like(theta), theta * positions[:, None])
    return torch.view_as_real(pairs * turn).flatten(1)


def mirror(x: Tensor, positions: Tensor, theta: Tensor) -> Tensor:
    (a, b), angle = x.chunk(2, -1), positions[:, None] * theta
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() - a * angle.sin()), -1)


ROTATION_WRONG: dict[str, tuple[str, Any]] = {
    "neighbours": ("interleaved", neighbours),
    "other way": ("the other way", lambda x, p, t: rotate(x, p, t, -1)),
    "mirror": ("in one of the two lines", mirror),
    "two plus": (
        "have a plus",
        lambda x, p, t: torch.cat((rotate(x, p, t, -1)[:, :3], rotate(x, p, t)[:, 3:]), -1),
    ),
    "no position": ("turned by θ alone", lambda x, p, t: rotate(x, p * 0 + 1, t)),
    "rows": ("number of the row", lambda x, p, t: rotate(x, torch.arange(len(x)), t)),
    "from one": ("counted from 0", lambda x, p, t: rotate(x, p + 1, t)),
    "scaled": ("divided by √d", lambda x, p, t: rotate(x, p, t / 6**0.5)),
    "added": ("added to the coordinates", lambda x, p, t: x + torch.cat((t, t)) * p[:, None]),
    "None": ("`return`", lambda x, p, t: None),
}
BIASES_WRONG: dict[str, tuple[str, Any]] = {
    "sign": ("The sign is missing", lambda m, n: -by_loops(m, n)),
    "later": (
        "Later keys get a positive bias",
        lambda m, n: m[:, None, None] * (torch.arange(n) - torch.arange(n)[:, None]),
    ),
    "past": (
        "Keys of the past get a positive bias",
        lambda m, n: m[:, None, None] * (torch.arange(n)[:, None] - torch.arange(n)),
    ),
    "square": ("squared", lambda m, n: -(by_loops(m, n) ** 2) / m[:, None, None]),
    "divided": ("divides by the slope", lambda m, n: by_loops(m, n) / m[:, None, None] ** 2),
    "key": ("key alone", lambda m, n: m[:, None, None] * torch.arange(n).repeat(n, 1)),
    "one": ("distance 0, not 1", lambda m, n: by_loops(m, n) - m[:, None, None]),
    "None": ("`return`", lambda m, n: None),
}
BUCKETS_WRONG: dict[str, tuple[str, Any]] = {
    "equal widths": (
        "buckets of equal width",
        lambda t, b, far: torch.where(
            t < b // 2,
            t,
            (b // 2 + (t - b // 2) * (b - b // 2) // (far - b // 2)).clamp(max=b - 1),
        ),
    ),
    "beyond": (
        "beyond the last bucket",
        lambda t, b, far: torch.where(t < far, bucket(t, b, far), past_the_end(t, b, far)),
    ),
    "collide": (
        "collide with the exact ones",
        lambda t, b, far: torch.where(t < b // 2, t, past_the_end(t, b, far) - b // 2),
    ),
    "own": ("a bucket of its own", lambda t, b, far: t.clamp(max=b - 1)),
    "nearest": ("take the floor", lambda t, b, far: nearest(t, b, far)),
    "None": ("`return`", lambda t, b, far: None),
}


def steps(t: Tensor, b: int, far: int) -> Tensor:
    half = b // 2
    return (t.clamp(min=1) / half).log() / math.log(far / half) * (b - half)


def past_the_end(t: Tensor, b: int, far: int) -> Tensor:
    return b // 2 + (steps(t.double(), b, far) + 1e-9).floor().long()


def nearest(t: Tensor, b: int, far: int) -> Tensor:
    shared = (b // 2 + steps(t, b, far).round()).long().clamp(max=b - 1)
    return torch.where(t < b // 2, t, shared)


TABLES = [
    (check_rotation, ROTATION_WRONG),
    (check_distance_biases, BIASES_WRONG),
    (check_buckets, BUCKETS_WRONG),
]


TestAnswers = answers_to(RIGHT, TABLES)
