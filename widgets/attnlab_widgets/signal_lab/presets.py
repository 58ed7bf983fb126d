"""The signals and kernels that SignalLab offers, and those of trained layers."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.core import state_space
from attnlab.mechanisms.convolution.lightweight_convolution import LightweightConvolution
from attnlab.mechanisms.recurrence.s4d import S4D

LENGTH = 64
DIGIT = (
    "0 0 5 13 9 1 0 0 0 0 13 15 10 15 5 0 0 3 15 2 0 11 8 0 0 4 12 0 0 8 8 0 "
    "0 5 8 0 0 9 8 0 0 4 11 0 1 12 7 0 0 2 14 5 10 12 0 0 0 0 6 13 10 0 0 0"
)
"""The first image of scikit-learn's digits, a 0 of 8 × 8 pixels from 0 to 16, row by row."""
PHOTOGRAPH = (
    "70 102 109 119 122 120 126 117 84 36 38 64 51 62 60 48 54 64 75 104 92 96 104 75 64 62 66 66 "
    "99 124 154 150 152 102 109 181 203 201 205 208 209 208 206 203 201 202 199 205 205 212 216 "
    "219 219 217 215 115 135 60 49 42 94 88 45 87"
)
"""The brightness (0 to 255) along row 250 of ``china.jpg``, a photograph by danielbuechele that
comes with scikit-learn (CC BY 2.0): means of ten pixels each."""
_SHORT = torch.tensor([1.4, 1.0, 0.2, -0.3, 0.5, -1.0, -1.6])
"""Made-up weights of a lightweight convolution before their softmax, the newest token's first."""

Kernel = dict[str, Any]


def signals() -> list[dict[str, Any]]:
    """Name and numbers of each."""
    k = np.arange(LENGTH)
    made = {
        "step": np.where(k < 8, 0.0, 1.0),
        "impulse": np.where(k == 8, 1.0, 0.0),
        "chirp": np.sin(0.45 * np.pi * k**2 / LENGTH),
        "noise": 0.5 * np.random.default_rng(19).standard_normal(LENGTH),
        "a digit, row by row": _read(DIGIT) / 16,
        "a row of a photograph": (_read(PHOTOGRAPH) - 128) / 128,
    }
    return [{"name": name, "signal": found.round(3).tolist()} for name, found in made.items()]


def _read(text: str) -> np.ndarray:
    return np.array([float(word) for word in text.split()])


def kernels() -> list[Kernel]:
    """Name, state and what to try of each."""
    lin, inv, (legs, drive, _) = state_space.lin(4), state_space.inv(4), state_space.legs(4)
    ones = torch.ones_like(lin)
    made = {
        "one pole": (
            of_poles(torch.tensor([-0.5 + 2j]), ones[:1], step=0.2),
            "Drag the pole: to the left its mode fades sooner, up it turns faster. Then choose "
            "the impulse as the signal: the output is the kernel itself.",
        ),
        "S4D-Lin": (
            of_poles(lin, ones),
            "The kernel is a damped Fourier series: all modes turn in step at token 0, and again "
            "where the slowest has turned once. Make the steps larger until a mode turns by more "
            "than half a circle in a step.",
        ),
        "S4D-Inv": (
            of_poles(inv, ones),
            "The fastest pole is far up, the others near 0. Choose the bilinear rule: which mode "
            "changes most?",
        ),
        "S4D-LegS": (
            of_poles(legs, drive),
            "These poles are the normal part of HiPPO-LegS. Change the length of the steps: the "
            "same system reads the signal on another scale of time.",
        ),
        "moving average": (
            of_taps(torch.full((8,), 1 / 8)),
            "Choose the noise: what is left of it? A constant signal passes unchanged, a turn of "
            "8 tokens not at all: the spectrum is 0 there.",
        ),
        "difference": (
            of_taps(torch.tensor([1.0, -1.0])),
            "Choose the step: only its edge is left. Choose the digit: so are its edges.",
        ),
        "lightweight convolution": (
            of_taps(_SHORT.softmax(0)),
            "A softmax makes the taps a weighted mean. Drag one of them: the same change appears "
            "along a whole diagonal of the map.",
        ),
    }
    return [{"name": name, **state, "try": text} for name, (state, text) in made.items()]


def of_poles(
    poles: Tensor, weights: Tensor, *, step: float = 0.1, rule: str = "zoh", skip: float = 0.0
) -> Kernel:
    """The state of a diagonal state space with poles (r,) and weights C B (r,)."""
    return {
        "poles": pairs(poles), "weights": pairs(weights), "step": step, "rule": rule, "skip": skip,
        "taps": [],
    }  # fmt: skip


def of_taps(taps: Tensor) -> Kernel:
    """The state of a kernel of a few taps (m,), the newest token's first."""
    one = of_poles(torch.tensor([-0.5 + 2j]), torch.ones(1, dtype=torch.complex64), step=0.2)
    return {**one, "taps": taps.double().tolist()}


def pairs(numbers: Tensor) -> list[list[float]]:
    """Complex numbers (r,) as (r, 2)."""
    found: list[list[float]] = torch.view_as_real(numbers.to(torch.complex128)).tolist()
    return found


@torch.no_grad()
def of_layer(layer: nn.Module, most: int) -> list[Kernel]:
    """The kernels of a layer's channels or heads, at most the first ``most``."""
    text = "Compare the kernels of several channels: how far back does each reach?"
    if isinstance(layer, S4D):
        found = [("channel", one) for one in _of_s4d(layer, most)]
    elif isinstance(layer, LightweightConvolution):
        if not layer.causal:
            raise ValueError(
                "`kernel` is a lightweight convolution that also reads tokens to come; make it "
                "with causal=True"
            )
        weight = layer.weight.double()
        taps = weight.softmax(-1) if layer.options.normalize else weight
        found = [("head", of_taps(one.flip(0))) for one in taps[:most]]
    else:
        raise TypeError(
            "`kernel` should be a layer of class S4D or LightweightConvolution, got "
            f"{type(layer).__name__}; give the kernels of other layers as numbers (count, m)"
        )
    return [{"name": f"{of} {at}", **one, "try": text} for at, (of, one) in enumerate(found)]


def _of_s4d(layer: S4D, most: int) -> list[Kernel]:
    A = torch.complex(-layer.log_decay.double().exp(), layer.frequency.double())
    B, C = (state_space.as_complex(x.double()) for x in (layer.B, layer.C))
    steps, rule = layer.log_step.double().exp(), layer.options.discretization
    return [
        of_poles(A[at], (B * C)[at], step=steps[at].item(), rule=rule, skip=layer.skip[at].item())
        for at in range(min(most, layer.dim))
    ]
