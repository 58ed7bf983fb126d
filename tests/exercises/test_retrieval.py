"""Lesson 34's checks: a sharp enough β, the energy, repeated updates, a pattern completed."""

import math

import pytest
import torch

from attnlab.exercises import (
    check_complete,
    check_energy,
    check_retrieve,
    check_sharp,
    retrieval,
)


def energy(xi, X, beta):
    spread = torch.log(sum(torch.exp(beta * (x * xi).sum()) for x in X)) / beta
    largest = max((x * x).sum() for x in X)
    return -spread + (xi * xi).sum() / 2 + math.log(X.shape[0]) / beta + largest / 2


def retrieve(xi, X, beta, steps):
    for _ in range(steps):
        powers = torch.exp(beta * xi @ X.T)
        xi = powers @ X / powers.sum(1, keepdim=True)
    return xi


def complete(xi, known, X, beta, steps):
    state = xi.clone()
    state[~known] = 0
    for _ in range(steps):
        new = retrieve(state, X, beta, 1)
        new[known] = xi[known]
        state = new
    return state


RIGHT = [(check_energy, energy), (check_retrieve, retrieve), (check_complete, complete)]
TABLES = [
    (check_energy, retrieval._ENERGY_MISTAKEN),
    (check_retrieve, retrieval._RETRIEVE_MISTAKEN),
    (check_complete, retrieval._COMPLETE_MISTAKEN),
]


@pytest.mark.parametrize(("check", "function"), RIGHT)
def test_right_answers(check, function):
    assert check(function).right, check(function).message


@pytest.mark.parametrize(
    ("check", "sentence", "mistake"), [(c, *m) for c, table in TABLES for m in table]
)
def test_each_mistake_is_named(check, sentence, mistake):
    found = check(mistake)
    assert not found.right
    assert sentence in found.message


def test_beta():
    assert check_sharp(2.2).right
    for wrong, sentence in retrieval._SHARP_MISTAKEN.items():
        found = check_sharp(wrong)
        assert not found.right
        assert sentence[1:] in found.message


@pytest.mark.parametrize("check", [check_energy, check_retrieve, check_complete, check_sharp])
def test_an_answer_not_yet_given_is_no_mistake(check):
    assert not check(...).right
