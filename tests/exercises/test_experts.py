"""Lesson 08's checks: the balance loss, and two choices with places."""

import torch
from torch import Tensor

from attnlab.core.experts import balance, placed
from attnlab.exercises import check_balance_loss, check_two_choices
from tests.exercises.frame import answers_to


def by_counting(p: Tensor) -> float:
    counts = torch.bincount(p.argmax(-1), minlength=p.shape[1])
    return float(p.shape[1] * (counts / len(p) * p.mean(0)).sum())


def by_library(p: Tensor) -> Tensor:
    return balance(p[None], p.argmax(-1)[None, :, None])


def places_of_library(p: Tensor, capacity: int) -> Tensor:
    chosen = p.topk(2).indices[None]
    return placed(chosen, torch.tensor([capacity]), p.shape[1])[0] >= 0


def by_lists(p: Tensor, capacity: int) -> Tensor:
    room, out = [capacity] * p.shape[1], torch.zeros(len(p), 2)
    ranked = p.argsort(-1, descending=True)
    for choice in (0, 1):
        for i, e in enumerate(ranked[:, choice].tolist()):
            if room[e] > 0:
                room[e] -= 1
                out[i, choice] = 1
    return out.bool()


TestAnswers = answers_to(
    [
        (check_balance_loss, by_counting),
        (check_balance_loss, by_library),
        (check_two_choices, places_of_library),
        (check_two_choices, by_lists),
    ],
    [],
)
