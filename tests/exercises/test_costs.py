"""The checks of lesson 70 name each mistake, and accept every way of writing the right answer."""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.exercises import (
    check_exponent,
    check_stopwatch,
)
from tests.exercises.frame import answers_to

# ---- an exponent


def by_numpy(sizes: Tensor, costs: Tensor) -> float:
    return float(np.polyfit(sizes.log().numpy(), costs.log().numpy(), 1)[0])


def by_least_squares(sizes: Tensor, costs: Tensor) -> Tensor:
    rows = torch.stack([sizes.log2(), torch.ones_like(sizes)], 1)
    return torch.linalg.lstsq(rows, costs.log2()[:, None]).solution[0, 0]


# ---- a stop-watch


def pairs(ours: Any, base: Any, rounds: int, clock: Any, warm: bool = True) -> np.ndarray:
    if warm:
        ours(), base()
    times = np.empty((rounds, 2))
    for one in times:
        before = clock()
        ours()
        between = clock()
        base()
        one[:] = between - before, clock() - between
    return times


def fair(*given: Any) -> float:
    times = pairs(*given)
    return statistics.median(times[:, 0] / times[:, 1])


def fair_tensor(*given: Any) -> Tensor:
    times = torch.from_numpy(pairs(*given))
    return (times[:, 0] / times[:, 1]).quantile(0.5)


def in_blocks(of_medians: bool) -> Callable:
    def ratio(ours: Any, base: Any, rounds: int, clock: Any) -> float:
        ours(), base()
        first = pairs(ours, lambda: None, rounds, clock, warm=False)[:, 0]
        then = pairs(base, lambda: None, rounds, clock, warm=False)[:, 0]
        return float(np.median(first) / np.median(then) if of_medians else np.median(first / then))

    return ratio


def of(reduce: Callable, **options: bool) -> Callable:
    return lambda *given: reduce(*pairs(*given, **options).T)


WATCH_WRONG = {
    "first call": ("first call of each", of(lambda a, b: np.median(a / b), warm=False)),
    "mean": ("mean of the ratios", of(lambda a, b: np.mean(a / b))),
    "medians": ("ratio of the two medians", of(lambda a, b: np.median(a) / np.median(b))),
    "blocks": ("and the second pays for it", in_blocks(of_medians=False)),
    "blocks of medians": ("and the second pays for it", in_blocks(of_medians=True)),
    "upside down": ("upside down", of(lambda a, b: np.median(b / a))),
    "totals": ("one total over the other", of(lambda a, b: a.sum() / b.sum())),
    "smallest": ("smallest ratio", of(lambda a, b: (a / b).min())),
    "nothing": ("was called 0 times", lambda *given: 1.5),
    "no number": ("should give one number", lambda *given: list(pairs(*given))),
    "raises": ("ZeroDivisionError", lambda *given: 1 / 0),
    "other": ("it should be 1.4", of(lambda a, b: np.median(a / b) + 1)),
}


RIGHT = [
    *((check_exponent, solution) for solution in (by_numpy, by_least_squares)),
    *((check_stopwatch, solution) for solution in (fair, fair_tensor)),
]

TestAnswers = answers_to(RIGHT, [(check_stopwatch, WATCH_WRONG)])
