"""Checks of lesson 07: a constant of DeepNorm, one sublayer, drop path, and gradients by depth."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- the factor of the stream

check_stream_factor = NumberExercise(
    "Is it α of DeepNorm, for a decoder of 100 layers without an encoder?",
    right=200**0.25,
    mistakes={
        100**0.25: "That is (M)^(1/4): a layer has two sublayers, so it is (2M)^(1/4).",
        300**0.25: "That is α beside an encoder, where a layer has three sublayers.",
        800**-0.25: "That is β, the factor of the initial weights.",
        200**0.5: "That is the square root; α is the fourth root.",
        400**0.25: "That is (4M)^(1/4): are the sublayers counted twice?",
    },
)


# ---- one sublayer of DeepNorm


def _normal(x: Tensor, dim: int = -1) -> Tensor:
    return (x - x.mean(dim, keepdim=True)) / x.std(dim, keepdim=True, correction=0)


def _deep_norm(
    x: Tensor, added: Tensor, alpha: float, *, of_stream: bool = True, dim: int = -1
) -> Tensor:
    total = alpha * x + added if of_stream else x + alpha * added
    return _normal(total, dim)


def _deep_norm_cases() -> Iterator[Arguments]:
    x, added = random_tensors((7, 5), (7, 5), seed=7)
    for alpha in (3.0, 1.5):
        yield {"x": x, "added": added, "alpha": alpha}


check_deep_norm = Exercise(
    """Is it one sublayer of DeepNorm? `deep_norm(x, added, alpha)`, `x` and `added` (n, dim).

    `added` is what the sublayer adds; the norm has no gain and no shift. It returns (n, dim).
    """,
    right=_deep_norm,
    cases=_deep_norm_cases,
    axes="n dim",
    mistakes={
        but(of_stream=False): "α multiplies what is added; it should multiply the stream.",
        but(dim=0): "The norm is over the tokens: each token has its own mean and variance.",
        (lambda x, added, alpha: alpha * x + added): "The norm after the sum is missing.",
        (lambda x, added, alpha: _normal(x + added)): "That is post-norm: α is missing.",
        (lambda x, added, alpha: alpha * x + _normal(added)): (
            "The norm is of what is added; it should be of the sum."
        ),
    },
    praise="A larger stream before the norm: each sublayer changes its direction a little less.",
)


# ---- drop path


def _drop_path(x: Tensor, added: Tensor, kept: Tensor, p: float, *, power: int = 1) -> Tensor:
    return x + kept[:, None, None] * added / (1 - p) ** power


def _drop_path_cases() -> Iterator[Arguments]:
    x, added = random_tensors((5, 7, 3), (5, 7, 3), seed=8)
    for p, kept in ((0.25, [1, 0, 1, 1, 0]), (0.6, [0, 0, 1, 0, 1])):
        yield {"x": x, "added": added, "kept": torch.tensor(kept).bool(), "p": p}


check_drop_path = Exercise(
    """Is it drop path? `drop_path(x, added, kept, p)`, `x` and `added` (b, n, dim), `kept` (b,).

    `kept` is True where the sublayer is kept, and p the probability that it is not. It returns
    (b, n, dim), in expectation x + added.
    """,
    right=_drop_path,
    cases=_drop_path_cases,
    axes="b n dim",
    mistakes={
        but(power=0): "What is kept is not divided by 1 − p, so the mean is too small.",
        but(power=-1): "What is kept is multiplied by 1 − p: divide by it.",
        (lambda x, added, kept, p: kept[:, None, None] * (x + added) / (1 - p)): (
            "The stream is dropped too: only what is added should be."
        ),
        (lambda x, added, kept, p: x + kept[:, None, None] * added / p): (
            "It is divided by p, the probability of a sublayer that is left out."
        ),
        (lambda x, added, kept, p: _drop_path(x, added, ~kept, p)): (
            "It keeps what should be left out."
        ),
        (lambda x, added, kept, p: x + added): "Nothing is left out.",
    },
    praise="Whole sequences leave a sublayer out, and the mean is right.",
)


# ---- gradients by depth


def _gradients(
    x: Tensor, matrices: Tensor, alpha: float, g: Tensor, *, of_last: bool = True, norm: bool = True
) -> Tensor:
    streams = []
    x = x.detach().clone().requires_grad_()
    for matrix in matrices:
        x = alpha * x + x @ matrix.mT
        x = _normal(x) if norm else x
        streams.append(x)
    norms = torch.stack([each.norm() for each in torch.autograd.grad(x, streams, g)])
    return norms / norms[-1] if of_last else norms


def _gradients_cases() -> Iterator[Arguments]:
    x, matrices, g = random_tensors((7, 5), (4, 5, 5), (7, 5), seed=9)
    for alpha in (1.0, 2.0):
        yield {"x": x, "matrices": matrices / 5**0.5, "alpha": alpha, "g": g}


check_gradients_by_depth = Exercise(
    """Are they the gradients by depth? `gradients(x, matrices, alpha, g)`, `x` and `g` (n, dim).

    `matrices` (layers, dim, dim) are the sublayers, x ← norm(α x + x Wᵀ); g is the gradient of the
    stream after the last one. It returns (layers,): the norm of the gradient of the stream after
    each sublayer, divided by the last of them.
    """,
    right=_gradients,
    cases=_gradients_cases,
    axes="layers",
    mistakes={
        but(of_last=False): "They are the norms themselves: divide them by the last one.",
        but(norm=False): "There is no norm after the sum.",
        (lambda x, matrices, alpha, g: _gradients(x, matrices.mT, alpha, g)): (
            "The matrices are not transposed: a sublayer is x @ W.mT."
        ),
        (lambda x, matrices, alpha, g: _gradients(x, matrices, alpha, g).flip(0)): (
            "The order is from the last sublayer to the first."
        ),
        (lambda x, matrices, alpha, g: _gradients(x, matrices, 1.0, g)): "α is missing.",
        (lambda x, matrices, alpha, g: _gradients(x, matrices, alpha, g) ** 2): (
            "They are squares of norms: take the root."
        ),
    },
    praise="The same measurement as that of the lesson, on sublayers of one matrix.",
)
