"""Lesson 34's checks: a sharp enough β, the energy, repeated updates, patterns completed."""

import math

import torch

from attnlab.exercises import check_complete, check_energy, check_recalled, check_retrieve
from tests.exercises.frame import answers_to


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


def recall(xi, X):
    """The sums of each unit over the patterns, in plain numbers."""
    patterns, state, changed = X.tolist(), xi.tolist(), True
    while changed:
        changed = False
        for i in range(len(state)):
            overlaps = [sum(p * s for p, s in zip(x, state, strict=True)) for x in patterns]
            total = sum(x[i] * o for x, o in zip(patterns, overlaps, strict=True))
            total -= len(patterns) * state[i]
            if total * state[i] < 0:
                state[i], changed = -state[i], True
    return torch.tensor(state, dtype=xi.dtype)


RIGHT = [
    (check_recalled, recall),
    (check_energy, energy),
    (check_retrieve, retrieve),
    (check_complete, complete),
]

TestAnswers = answers_to(RIGHT)
