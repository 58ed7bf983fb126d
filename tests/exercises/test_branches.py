"""Lesson 50's check: the mean along each branch."""

import torch
from torch import Tensor

from attnlab.exercises import check_upward_average
from tests.exercises.frame import answers_to


def by_loops(s: Tensor, covers: Tensor) -> Tensor:
    out = torch.zeros_like(s[1:])
    for i in range(len(covers)):
        for j in range(covers.shape[1]):
            if covers[i, j]:
                branch = [s[t + 1, j] for t in range(i + 1) if covers[t, j]]
                out[i, j] = (s[0, j] + sum(branch)) / (1 + len(branch))
    return out


def by_running_sums(s: Tensor, covers: Tensor) -> Tensor:
    return s.cumsum(0)[1:] / (covers.cumsum(0)[..., None] + 1) * covers[..., None]


RIGHT = [(check_upward_average, by_running_sums)]
LOOPS = {"loops": ("there is a loop over nodes or leaves", by_loops)}

TestAnswers = answers_to(RIGHT, [(check_upward_average, LOOPS)])
