"""Lesson 40's checks: the rotation, biases by distance, and buckets."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.exercises import Verdict, check_buckets, check_distance_biases, check_rotation
from attnlab.mechanisms.positions import alibi
from attnlab.mechanisms.positions.t5_bias import T5BiasOptions
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
    return T5BiasOptions(buckets=buckets, max_distance=largest).of(-distance, causal=True)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_rotation, rotate),
    (check_distance_biases, by_loops),
    (check_distance_biases, lambda m, n: alibi.naive(torch.arange(n), torch.arange(n), m)),
    (check_buckets, bucket),
    (check_buckets, of_library),
]


TestAnswers = answers_to(RIGHT)
