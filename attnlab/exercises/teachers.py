"""Checks of lesson 82: a softened probability, Hinton's loss, its gradient, TinyBERT's layers."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- a softened probability

check_soft_share = NumberExercise(
    """Is it the probability of the 9 at T = 4, where a teacher's logits are 6 for the 4, 2 for the
    9, and minus infinity for all other digits?""",
    right=1 / (1 + math.e),
    tolerance=1e-3,
    mistakes={
        1 / (1 + math.exp(4)): "That is at T = 1. Divide the logits by 4 first.",
        1 / math.e: "That is the ratio of the two probabilities. They sum to 1.",
        math.e / (1 + math.e): "That is the probability of the 4.",
        1 / (1 + math.exp(16)): "The logits are divided by T, not multiplied.",
    },
)


# ---- Hinton's loss


def _loss(
    z_s: Tensor, z_t: Tensor, T: float,
    *, squared: bool = True, logs: bool = True, classes: bool = False, turned: bool = False,
    softened: bool = True,
) -> Tensor:  # fmt: skip
    """Every keyword is a mistake."""
    if turned:
        z_s, z_t = z_t, z_s
    own = z_s / T if softened else z_s
    p = own.log_softmax(-1) if logs else own.softmax(-1)
    q = (z_t / T).softmax(-1)
    each = q * ((z_t / T).log_softmax(-1) - p)
    found = each.mean() if classes else each.sum(-1).mean()
    return T**2 * found if squared else found


def _loss_cases() -> Iterator[Arguments]:
    for b, c, T in ((3, 5, 2.0), (2, 7, 4.0), (1, 3, 0.5)):
        z_s, z_t = random_tensors((b, c), (b, c), seed=c)
        yield {"z_s": 2 * z_s, "z_t": 3 * z_t, "T": T}


check_hinton_loss = Exercise(
    """Is it the mean over the rows of T² KL(teacher ‖ student)? `hinton_loss(z_s, z_t, T)`.

    z_s and z_t are the logits (b, c) of student and teacher, T the temperature of both.
    """,
    right=_loss,
    cases=_loss_cases,
    axes="",
    mistakes={
        but(squared=False): "The factor T² is missing, without which the gradient falls as 1/T².",
        but(logs=False): "The first argument of `F.kl_div` should hold log probabilities.",
        but(classes=True): "That is the mean over rows and classes: sum over the classes.",
        but(turned=True): "Teacher and student are exchanged: the mean is by the teacher's p.",
        but(softened=False): "Only the teacher is softened. Divide both logits by T.",
    },
    praise="At T = 1, with a teacher that is sure, it is the cross-entropy.",
)


# ---- its gradient


def _gradient(
    z_s: Tensor, z_t: Tensor, T: float,
    *, power: int = 1, turned: bool = False, softened: bool = True,
) -> Tensor:  # fmt: skip
    """Every keyword is a mistake."""
    t = T if softened else 1.0
    gap = (z_s / t).softmax(-1) - (z_t / t).softmax(-1)
    return T**power * (-gap if turned else gap)


def _gradient_cases() -> Iterator[Arguments]:
    for b, c, T in ((3, 5, 2.0), (2, 4, 8.0)):
        z_s, z_t = random_tensors((b, c), (b, c), seed=b)
        yield {"z_s": 2 * z_s, "z_t": 3 * z_t, "T": T}


check_hinton_gradient = Exercise(
    """Is it the gradient of T² KL(teacher ‖ student) at the student's logits, row by row?
    `hinton_gradient(z_s, z_t, T)`, (b, c).
    """,
    right=_gradient,
    cases=_gradient_cases,
    axes="b c",
    mistakes={
        but(power=2): "One factor T too many: the logits are divided by T inside the softmax.",
        but(power=0): "A factor T is missing: of T², division by T inside the softmax leaves T.",
        but(power=-1): "That is the gradient of the divergence without T².",
        but(turned=True): "The sign is turned: it is positive where the student says too much.",
        but(softened=False): "Both softmaxes are of the logits divided by T.",
    },
    praise="A descent along it takes the student's probabilities towards the teacher's.",
)


# ---- what the layers learn from


def _states(
    states: Tensor, layers: int, *, first: bool = False, shifted: bool = False, bare: bool = False
) -> Tensor:  # fmt: skip
    """Every keyword is a mistake."""
    i = torch.arange(layers + 1)
    each = (len(states) - 1) // layers
    places = i if first else i * each
    if shifted:
        places = (places - 1).clamp(min=0)
    return states[places[1:] if bare else places]


def _states_cases() -> Iterator[Arguments]:
    for teacher, student in ((6, 3), (12, 4), (4, 2)):
        (states,) = random_tensors((teacher + 1, 3, 2), seed=teacher)
        yield {"states": states, "layers": student}


check_layer_states = Exercise(
    """Are these the teacher's vectors from which a student learns? `layer_states(states, layers)`.

    states (N + 1, n, d) are what the teacher holds: its embedding first, then what each of its N
    layers leaves. A student with so many layers, which divide N, learns from M + 1 of them.
    """,
    right=_states,
    cases=_states_cases,
    axes="layers n d",
    mistakes={
        but(first=True): "Those are the first layers: the last of the teacher is among none.",
        but(shifted=True): "One layer too early: the embedding is 0, so layer i is at place i.",
        but(bare=True): "The embedding learns too: g(0) = 0.",
    },
    praise="The last layer of the student learns from the last of the teacher.",
)
