"""Lesson 64's checks: answers that are scored, a masked text, a linear probe."""

import numpy as np
import torch
from torch import Tensor

from attnlab.exercises import check_linear_probe, check_masked_text, check_scored_answers
from tests.exercises.frame import answers_to


def one_by_one(tokens: Tensor, scored: Tensor, kind: Tensor, other: Tensor, mask: int) -> Tensor:
    read = []
    for i, token in enumerate(tokens.tolist()):
        if not scored[i] or kind[i] >= 0.9:
            read.append(token)
        else:
            read.append(mask if kind[i] < 0.8 else int(other[i]))
    return torch.tensor(read)


def in_place(tokens: Tensor, scored: Tensor, kind: Tensor, other: Tensor, mask: int) -> Tensor:
    read = tokens.clone()
    read[scored & (kind < 0.9)] = other[scored & (kind < 0.9)]
    read[scored & (kind < 0.8)] = mask
    return read


def by_normal_equations(states: Tensor, labels: Tensor, new: Tensor) -> Tensor:
    x = torch.cat([torch.ones(len(states), 1), states], 1)
    w = torch.linalg.solve(x.T @ x, x.T @ (2 * labels - 1).to(x.dtype))
    return torch.cat([torch.ones(len(new), 1), new], 1) @ w


def by_numpy(states: Tensor, labels: Tensor, new: Tensor) -> np.ndarray:
    mean = states.mean(0)
    target = 2.0 * labels.numpy() - 1
    w, *_ = np.linalg.lstsq((states - mean).numpy(), target - target.mean(), rcond=None)
    return (new - mean).numpy() @ w + target.mean()


TestAnswers = answers_to(
    [
        (check_masked_text, one_by_one),
        (check_masked_text, in_place),
        (check_linear_probe, by_normal_equations),
        (check_linear_probe, by_numpy),
    ],
    [],
)


def test_the_number_is_that_of_the_objective() -> None:
    from attnlab.objectives.masked_lm import MaskedLM
    from attnlab.tasks import Batch

    tokens = torch.randint(50, (32, 128))
    asked = MaskedLM(50).prepare(Batch(tokens, tokens))
    assert (asked.targets >= 0).sum() == check_scored_answers.right
