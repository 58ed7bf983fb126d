"""Checks of lesson 09: parameters of shared layers, probabilities of leaving, the gradient of a
fixed point."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- parameters of shared layers

check_shared_parameters = NumberExercise(
    """Is it the number of parameters of 12 layers, where attention has 3 million and the
    feed-forward layer 5 million, and all layers share their attention alone?""",
    right=3_000_000 + 12 * 5_000_000,
    tolerance=1e-6,
    mistakes={
        12 * 8_000_000: "That is without sharing. The attention of all layers is one.",
        8_000_000: "That shares the feed-forward layers, too. Each layer has its own here.",
        12 * 3_000_000 + 5_000_000: "There the feed-forward layer is shared. Here attention is.",
        63: "That is in millions. How many parameters are they?",
    },
)


# ---- probabilities of leaving


def _leaving(chi: Tensor, *, rest: bool = True, earlier: bool = True, late: int = 0) -> Tensor:
    """Every keyword is a mistake."""
    stay = torch.cat([torch.ones(1, dtype=chi.dtype), (1 - chi).cumprod(0)])
    q = chi * (stay[:-1] if not late else stay[1:]) if earlier else chi
    last = stay[-1:] if rest else torch.ones(1, dtype=chi.dtype)
    return torch.cat([q, last])


def _leaving_cases() -> Iterator[Arguments]:
    for size in (3, 5):
        (scores,) = random_tensors((size,), seed=size)
        yield {"chi": scores.sigmoid()}


check_leaving = Exercise(
    """Is it the probability of leaving after each of N layers? `leaving(chi)` with `chi` (N − 1,).

    A token that is there leaves after layer n with probability chi[n], and after the last one for
    certain; it returns (N,).
    """,
    right=_leaving,
    cases=_leaving_cases,
    axes="N",
    mistakes={
        but(earlier=False): "A token can leave after layer n only if it has not left before.",
        but(rest=False): "The last probability is what is left of 1, not 1.",
        but(late=1): "The product ends before n: whoever leaves after n has stayed n − 1 times.",
    },
    praise="They sum to 1, whatever chi is.",
)


# ---- the gradient of a fixed point


def _through(
    J: Tensor, grad: Tensor, *, steps: int = 2000, turned: bool = False, plus: bool = False
) -> Tensor:
    """y with y = y J + grad; every keyword is a mistake."""
    used = J.mT if turned else J
    y = grad
    for _ in range(steps):
        y = (y @ used) * (-1 if plus else 1) + grad
    return y


def _through_cases() -> Iterator[Arguments]:
    for size in (4, 7):
        J, grad = random_tensors((size, size), (size,), seed=90 + size)
        yield {"J": 0.8 * J / torch.linalg.matrix_norm(J, 2), "grad": grad}


check_fixed_point_gradient = Exercise(
    """Is it the gradient that a fixed point passes on? `through(J, grad)` gives y (n,).

    z* = f(z*) + …, `J` (n, n) is the Jacobian of f at z*, J[i, j] = ∂f_i/∂z_j, with a norm below
    0.8; `grad` (n,) is the gradient of the loss with respect to z*.
    """,
    right=_through,
    cases=_through_cases,
    axes="n",
    mistakes={
        but(steps=0): "That is the gradient of the last step alone: y = grad.",
        but(steps=1): "That is one step of y ← y J + grad. Go on until y does not change.",
        but(turned=True): "J is transposed: a gradient is a row, y J.",
        but(plus=True): "That solves y = −y J + grad; it is (I − J)⁻¹, not (I + J)⁻¹.",
    },
    praise="No step of the forward pass was needed: J at the fixed point says it all.",
)
