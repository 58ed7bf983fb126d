"""The system of every channel: its options, where its poles begin, and its discretisation.

DSS has N modes without conjugates and takes the real part once: here it is ``state`` 2N. Its code
takes the softmax over the sequence at hand, so that a prefix has another kernel and there is no
recurrence; with a given ``length`` there is one, and longer sequences go on with it. The code also
adds 1e-7 to the square of what it divides by, allows poles with a positive real part, lets channels
share their poles, and has one step of time for the real and one for the imaginary part.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from attnlab.core import state_space
from attnlab.core.options import Options, Size
from attnlab.core.precision import exact_dtype, upcast
from attnlab.core.state_space import Modes, as_complex


class Learned(NamedTuple):
    """What the state space of each channel learns: poles A = -e^log_decay + i frequency, which are
    always stable, steps e^log_step, B and C (real and imaginary parts), and D as ``skip``."""

    frequency: Float[Tensor, "dim r"]
    log_decay: Float[Tensor, "dim r"]
    log_step: Float[Tensor, "dim"]
    B: Float[Tensor, "dim r 2"]
    C: Float[Tensor, "dim r 2"]
    skip: Float[Tensor, "dim"]


@dataclass(frozen=True, kw_only=True)
class S4DOptions(Options):
    """The system of every channel, before it is learned.

    ``state``           numbers of state per channel (N), two for each mode that is stored
    ``discretization``  zero-order hold, the trapezoidal rule, or DSS's softmax
    ``length``          tokens over which the softmax is taken; with it only
    ``initial``         where the poles begin: legs, lin, inv or real
    ``shortest``        steps of time are drawn between this
    ``longest``         and this, on a logarithmic scale
    ``chunk``           tokens per chunk of the chunked form (c)
    """

    state: Size = 64
    discretization: Literal["zoh", "bilinear", "softmax"] = "zoh"
    length: Size | None = None
    initial: Literal["legs", "lin", "inv", "real"] = "legs"
    shortest: float = 0.001
    longest: float = 0.1
    chunk: Size = 64

    def check(self) -> None:
        if self.state % 2:
            raise ValueError(
                f"state should be even, got {self.state}: modes come in conjugate pairs, of which "
                "one is stored"
            )
        if not 0 < self.shortest <= self.longest:
            raise ValueError(
                f"steps should satisfy 0 < shortest <= longest, got {self.shortest} and "
                f"{self.longest}"
            )
        if self.discretization == "softmax" and self.length is None:
            raise ValueError(
                "discretization='softmax' needs length=…, the tokens over which the softmax is "
                "taken: the longest sequence that you will give"
            )
        if self.discretization != "softmax" and self.length is not None:
            raise ValueError(
                f"length={self.length} goes with discretization='softmax' only: leave it out, a "
                "kernel of zoh or bilinear is the same at any length"
            )

    @property
    def rule(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """From Δ A to Ā and B̄ / (Δ B)."""
        if self.length is None:
            return state_space.RULES[self.discretization]
        return partial(state_space.softmax_hold, n=self.length)


def initial(options: S4DOptions) -> tuple[Complex[Tensor, "r"], Complex[Tensor, "r"]]:
    """A and B of one channel before learning."""
    modes = options.state // 2
    if options.initial == "legs":
        A, B, _ = state_space.legs(modes)
        return A, B
    poles = {"lin": state_space.lin, "inv": state_space.inv, "real": state_space.real}
    A = poles[options.initial](modes)
    return A, torch.ones_like(A)


class System(NamedTuple):
    """Decay Ā, drive B̄ (double precision) and weight C of every mode."""

    decay: Modes
    drive: Modes
    C: Modes


def system(learned: Learned, options: S4DOptions) -> System:
    """The discretised system."""
    exact = exact_dtype(learned.C.device)
    A = torch.complex(-learned.log_decay.to(exact).exp(), learned.frequency.to(exact))
    step = learned.log_step.to(exact).exp()[:, None]
    decay, drive = options.rule(step * A)
    B, C = as_complex(learned.B.to(exact)), as_complex(upcast(learned.C))
    return System(decay, step * drive * B, C)
