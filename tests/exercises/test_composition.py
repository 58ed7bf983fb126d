"""Lesson 73's checks: information gain and best sums, in other ways and by the library."""

import itertools

import pytest
import torch

from attnlab.exercises import check_best_sums, check_gain
from attnlab.structures.computation import relative_information_gain, spaced_sum
from tests.exercises.frame import answers_to


def gain(counts):
    """By the mean entropy of the rows."""
    p = counts / counts.sum()
    rows = p.sum(1, keepdim=True)
    left = -(p * (p / rows).log()).sum()
    y = p.sum(0)
    return 1 - left / -(y * y.log()).sum()


def best_sums(values):
    """By all choices without neighbours."""
    n = len(values)
    choices = [c for c in itertools.product((0, 1), repeat=n) if "11" not in "".join(map(str, c))]
    totals = lambda at, choice: sum(values[i].item() * choice[i] for i in range(at, n))  # noqa: E731
    sums = [max(totals(at, choice) for choice in choices) for at in range(n)]
    return torch.tensor(sums, dtype=values.dtype)


TestAnswers = answers_to([(check_gain, gain), (check_best_sums, best_sums)])


def test_they_are_those_of_the_library() -> None:
    counts = torch.tensor([[3.0, 1], [2, 5]])
    pairs = [(x, y) for x in (0, 1) for y in (0, 1) for _ in range(int(counts[x, y]))]
    known = relative_information_gain(*zip(*pairs, strict=True))
    assert float(check_gain.right(counts)) == pytest.approx(known, abs=1e-6)
    values = [3, -1, 5, 2, -4, 1]
    made = spaced_sum(values)
    best = [made.values[f"best {at}"] for at in range(6)]
    assert check_best_sums.right(torch.tensor(values)).tolist() == best
