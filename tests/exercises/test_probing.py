"""Lesson 68's checks: the expected layer, and from which layer on an answer is right."""

import math

import torch

from attnlab.exercises import check_expected_layer, check_known_from
from attnlab.lens.edge_probes import Cumulative, EdgeProbed
from tests.exercises.frame import answers_to


def expected_layer(scores):
    """By parts: the last layer less the shares of the gain that are there before it."""
    gained = (scores[1:-1] - scores[0]) / (scores[-1] - scores[0])
    return len(scores) - 1 - gained.sum()


def known_from(chosen, label):
    """From the last layer down, as long as all are right."""
    all_right = (chosen == label).flip(0).long().cumprod(0)
    return len(chosen) - all_right.sum(0)


TestAnswers = answers_to([(check_expected_layer, expected_layer), (check_known_from, known_from)])


def test_it_is_that_of_the_lens() -> None:
    scores = torch.tensor([0.5, 0.62, 0.58, 0.9], dtype=torch.float64)
    none = torch.empty(0)
    found = Cumulative(scores, none, EdgeProbed(0.9, none, none)).expected_layer
    assert math.isclose(found, float(expected_layer(scores)))
