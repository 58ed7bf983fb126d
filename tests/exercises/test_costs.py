"""The checks of lesson 70 name each mistake, and accept every way of writing the right answer."""

import statistics
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.exercises import check_exponent, check_stopwatch
from tests.exercises.frame import answers_to

# ---- an exponent


def by_numpy(sizes: Tensor, costs: Tensor) -> float:
    return float(np.polyfit(sizes.log().numpy(), costs.log().numpy(), 1)[0])


def by_least_squares(sizes: Tensor, costs: Tensor) -> Tensor:
    rows = torch.stack([sizes.log2(), torch.ones_like(sizes)], 1)
    return torch.linalg.lstsq(rows, costs.log2()[:, None]).solution[0, 0]


# ---- a stop-watch


def pairs(ours: Any, base: Any, rounds: int, clock: Any) -> np.ndarray:
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


def fair_float32(*given: Any) -> Tensor:
    return fair_tensor(*given).float()


WATCH_WRONG = {
    "nothing": ("was called 0 times", lambda *given: 1.5),
    "no number": ("should give one number", lambda *given: list(pairs(*given))),
    "raises": ("ZeroDivisionError", lambda *given: 1 / 0),
    "other": ("it should be 1.4", lambda *given: fair(*given) + 1),
}


RIGHT = [
    *((check_exponent, solution) for solution in (by_numpy, by_least_squares)),
    *((check_stopwatch, solution) for solution in (fair, fair_tensor, fair_float32)),
]

TestAnswers = answers_to(RIGHT, [(check_stopwatch, WATCH_WRONG)])
