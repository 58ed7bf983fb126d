"""Checks of lessons 36 and 39: a half-life, the kernel of a few modes, a piece of a text; what a
step leaves, two spans joined, a layer that selects.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    Parts,
    expect_tensors,
    part_faults,
    random_tensors,
    run,
    same,
)
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.parts import PartsExercise
from attnlab.exercises.verdict import Function, Mistake, returns_verdict, says
from attnlab.exercises.work import require_no_loop

# ---- a half-life

check_mode_half_life = NumberExercise(
    "Is it the number of tokens after which a mode with Re A = -1/2 and Δ = 0.01 has halved?",
    right=math.log(2) / (0.5 * 0.01),
    tolerance=0.01,
    unit="tokens",
    mistakes={
        math.log(2) / 0.01: (
            "The real part of the pole is missing: a token multiplies by e^(Δ Re A)."
        ),
        1 / 0.005: "After so many tokens the state has fallen to 1/e, not to one half.",
        math.log(2) / 0.5: "That is the half-life in units of time, of which a token takes 0.01.",
        math.log2(math.e) / 0.005: "The logarithm of 2 multiplies: 2 = e^(0.005 n).",
    },
)


# ---- the kernel


def _kernel(
    A: Tensor, C: Tensor, step: float, n: int, *,
    twice: bool = True, late: int = 0, euler: bool = False, undriven: bool = False,
    trapezoid: bool = False,
) -> Tensor:  # fmt: skip
    """Zero-order hold with B = 1; every keyword is a mistake."""
    decay = (step * A).exp()
    drive = (decay - 1) / A
    if trapezoid:
        decay, drive = (1 + step * A / 2) / (1 - step * A / 2), step / (1 - step * A / 2)
    if euler:
        drive = torch.full_like(A, step)
    powers = decay ** (torch.arange(n) + late)[:, None]
    response = C * powers if undriven else C * drive * powers
    return (2 if twice else 1) * response.real.sum(1)


def _kernel_cases() -> Iterator[Arguments]:
    real, turn, first, second = random_tensors((5,), (5,), (5,), (5,), seed=36)
    A, C = torch.complex(-real.exp(), 3 * turn), torch.complex(first, second)
    for n in (7, 1):
        yield {"A": A, "C": C, "step": 0.3, "n": n}


check_mode_kernel = Exercise(
    """Is it the kernel of r modes with B = 1 under zero-order hold? `kernel(A, C, step, n)`.

    `A` and `C` (r,) are complex, one of each conjugate pair; it returns (n,), real.
    """,
    right=_kernel,
    cases=_kernel_cases,
    axes="n",
    mistakes={
        but(twice=False): (
            "The factor 2 is missing: one mode of each conjugate pair is stored, and the other "
            "adds the same real part."
        ),
        but(late=1): (
            "It starts with C Ā B̄. The state already holds the newest token, so K₀ = C B̄."
        ),
        but(euler=True): (
            "B̄ is the step times B here (Euler). Zero-order hold has (e^(ΔA) − 1) / A."
        ),
        but(undriven=True): "B̄ is missing: each input is multiplied by it.",
        but(trapezoid=True): "That is the bilinear rule; zero-order hold was asked for.",
    },
    praise="The recurrence and the convolution with this kernel are the same layer.",
    in_place=True,
)


# ---- a piece of a text

_PIECE, _PIECE_SHAPES = ("y", "state"), ("n", "r 2")


def _piece(
    u: Tensor, decay: Tensor, drive: Tensor, C: Tensor, state: Tensor, *,
    circular: bool = False, early: int = 1, alone: bool = False, turned: bool = False,
    kept: bool = True, twice: bool = True,
) -> Parts:  # fmt: skip
    """Outputs and the state afterwards, as two real numbers a mode; every keyword is a mistake."""
    n = len(u)
    powers = decay ** torch.arange(n + 1)[:, None]
    K = 2 * (C * drive * powers[:n]).sum(1).real
    points = n if circular else 2 * n
    y = torch.fft.irfft(torch.fft.rfft(u, points) * torch.fft.rfft(K, points), points)[:n]
    before = (C * state * powers[early : n + early]).sum(1).real
    y = y if alone else y + (2 if twice else 1) * before
    written = (drive * (powers[:n] if turned else powers[:n].flip(0)) * u[:, None]).sum(0)
    return y, torch.view_as_real(written + (powers[n] * state if kept else 0))


_PIECE_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The transform has no zeros behind the piece: its last tokens act on the first outputs.",
        partial(_piece, circular=True),
    ),
    (
        "The outputs are those of the piece alone: what the old state says is missing.",
        partial(_piece, alone=True),
    ),
    (
        "The old state has not faded at the first token: token t reads it after t + 1 steps.",
        partial(_piece, early=0),
    ),
    (
        "What the old state says has no factor 2: the conjugate modes are not stored.",
        partial(_piece, twice=False),
    ),
    (
        "In the new state the oldest token has faded least: token j is multiplied by "
        "Ā^(n − 1 − j).",
        partial(_piece, turned=True),
    ),
    (
        "The new state holds the piece alone: the old state is left in it, times Ā^n.",
        partial(_piece, kept=False),
    ),
)


def _piece_given(n: int) -> Arguments:
    (u,), parts = random_tensors((n,), seed=41), random_tensors(*[(5,)] * 8, seed=42)
    size, turn, *rest = parts
    decay = torch.polar(0.5 + 0.5 * size.sigmoid(), turn)
    pairs = [torch.complex(one, two) for one, two in zip(rest[::2], rest[1::2], strict=True)]
    return dict(zip(("u", "decay", "drive", "C", "state"), (u, decay, *pairs), strict=True))


@says(_PIECE_MISTAKEN)
@returns_verdict
def check_convolved_piece(function: Function) -> str:
    """Does it read a text in pieces? `piece(u, decay, drive, C, state)`, without a loop.

    `u` (n,) is real; `decay`, `drive`, `C` and `state` (r,) are complex, one mode of each conjugate
    pair. It returns the outputs (n,), real, and the state after the piece (r,), complex. Called
    with n = 7, r = 5, from a state that is not zero.
    """
    given = _piece_given(7)
    truth = _piece(*given.values())

    def real(*arguments: object) -> object:
        found = function(*arguments)
        if not isinstance(found, tuple | list):
            return found
        parts = [torch.as_tensor(x) if isinstance(x, np.ndarray) else x for x in found]
        return tuple(
            torch.view_as_real(x) if isinstance(x, Tensor) and x.is_complex() else x for x in parts
        )

    real.__name__ = str(getattr(function, "__name__", "piece"))
    parts = expect_tensors(run(real, given), _PIECE, _PIECE_SHAPES, truth)
    named = (text for text, wrong in _PIECE_MISTAKEN if same(parts, wrong(*given.values())))
    if faults := part_faults(parts, truth, given, _PIECE, ((), ())):
        raise Mistake(next(named, None) or " ".join(faults))
    require_no_loop(function, _piece_given(7), _piece_given(97), over="tokens")
    return "Outputs by convolution inside a piece, by the state between pieces: nothing is lost."


# ---- what a step leaves

check_share_left = NumberExercise(
    "Is it the share of a state with A = -0.5 that a token with the step 3 leaves?",
    right=math.exp(3 * -0.5),
    tolerance=0.02,
    mistakes={
        1 - math.exp(-1.5): "That is what has faded; asked is what is left.",
        math.exp(-3): "The pole A is missing: the state is multiplied by e^(ΔA).",
        math.exp(-0.5): "The step is missing: the state is multiplied by e^(ΔA).",
        math.exp(1.5): "A is negative, so that the state fades: e^(−1.5).",
        0.5**3: "The state is not halved three times: with A = −0.5 a step of 1 leaves e^(−0.5).",
        -1.5: "That is the exponent ΔA; the share is e to this power.",
        100 * math.exp(-1.5): "That is in per cent; a share is a number from 0 to 1.",
    },
)


# ---- two spans joined


def _joined(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack((first[0] * second[0], second[0] * first[1] + second[1]))


def _joined_spans_cases() -> Iterator[Arguments]:
    raw = random_tensors((2, 5), (2, 5), seed=37)
    first, second = (torch.stack((x[0].sigmoid(), x[1])) for x in raw)
    yield {"first": first, "second": second}


check_joined_spans = Exercise(
    """Are two neighbouring spans joined into one? `joined(first, second)`.

    Both are (2, dim): the product of the decays, and the state that the span leaves if the state
    before it was zero. It returns (2, dim).
    """,
    right=_joined,
    cases=_joined_spans_cases,
    axes="2 dim",
    mistakes={
        (lambda first, second: _joined(second, first)): (
            "The spans are exchanged: what the first has left fades while the second is read."
        ),
        (lambda first, second: torch.stack((first[0] * second[0], first[1] + second[1]))): (
            "The state of the first span fades while the second is read: multiply it by the decay "
            "of the second."
        ),
        (
            lambda first, second: torch.stack(
                (first[0] * second[0], first[0] * first[1] + second[1])
            )
        ): (
            "It fades by the decay of its own span once more. It has to be the decay of the second."
        ),
        (
            lambda first, second: torch.stack(
                (first[0] + second[0], second[0] * first[1] + second[1])
            )
        ): ("Decays multiply: half of a half is a quarter."),
        (
            lambda first, second: torch.stack(
                (first[0] * second[0], second[0] * (first[1] + second[1]))
            )
        ): ("What the second span has added does not fade: nothing was read after it."),
    },
    praise="Joining is associative, so that all spans can be joined in pairs, side by side.",
)


# ---- a layer that selects


def _layer(
    u: Tensor, W_step: Tensor, bias: Tensor, W_B: Tensor, W_C: Tensor, A: Tensor, D: Tensor,
    state: Tensor, *, outside: bool = False, exponential: bool = False, unstepped: bool = False,
    early: bool = False, skip: bool = True, fresh: bool = False, swapped: bool = False,
    raw: bool = False, unbiased: bool = False, held: bool = False,
) -> Parts:  # fmt: skip
    """Steps, B and C from the tokens, then the scan; every keyword is a mistake."""
    steps = u @ W_step
    bias = 0 * bias if unbiased else bias
    steps = F.softplus(steps) + bias if outside else steps + bias
    delta = steps if outside or raw else steps.exp() if exponential else F.softplus(steps)
    B, C = (u @ W_C, u @ W_B) if swapped else (u @ W_B, u @ W_C)
    h, y = torch.zeros_like(state) if fresh else state, []
    for t in range(len(u)):
        before = h
        written = (u[t] if unstepped else delta[t] * u[t])[:, None] * B[t]
        if held:
            written = ((delta[t, :, None] * A).exp() - 1) / A * u[t, :, None] * B[t]
        h = (delta[t, :, None] * A).exp() * h + written
        y.append((before if early else h) @ C[t] + (D * u[t] if skip else 0))
    return torch.stack(y), h


def _given() -> Arguments:
    u, W_step, W_B, W_C = random_tensors((7, 3), (3, 3), (3, 5), (3, 5), seed=38)
    bias, log_A, D, state = random_tensors((3,), (3, 5), (3,), (3, 5), seed=39)
    names = ("u", "W_step", "bias", "W_B", "W_C", "A", "D", "state")
    return dict(zip(names, (u, W_step, bias, W_B, W_C, -log_A.exp(), D, state), strict=True))


check_selective_layer = PartsExercise(
    """Does it select? `layer(u, W_step, bias, W_B, W_C, A, D, state)`.

    `u` is (t, dim), `W_step` (dim, dim) and `bias` (dim,) give the steps, `W_B` and `W_C` (dim, N)
    what is written and read; `A` and `state` are (dim, N), `D` is (dim,). It returns (y, the state
    afterwards). Called with t = 7, dim = 3, N = 5, from a state that is not zero.
    """,
    right=_layer,
    cases=lambda: [_given()],
    axes={"y": "t dim", "state": "dim N"},
    mistakes={
        but(outside=True): "The bias goes inside the softplus.",
        but(raw=True): "The softplus is missing: a step has to be positive.",
        but(unbiased=True): "The bias of the steps is missing.",
        but(held=True): (
            "That is zero-order hold, (e^(ΔA) − 1) / A; Mamba's code, and this exercise, write Δ B "
            "u."
        ),
        but(exponential=True): "The step is softplus of its logit, log(1 + e^x), not e^x.",
        but(unstepped=True): (
            "What is written is not multiplied by the step: with a step of 0 the state must stay "
            "as it is."
        ),
        but(early=True): (
            "The output is read before the token is written: y_t has C_t · h_t, with the new state."
        ),
        but(skip=False): "D u_t is missing in the output.",
        but(fresh=True): "It starts from zero, not from the given state.",
        but(swapped=True): "W_B and W_C are exchanged: B says what is written, C what is read.",
    },
    praise="Each token decides how much of the past stays, and what it adds.",
    in_place=True,
)
