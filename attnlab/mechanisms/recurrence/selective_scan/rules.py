"""The options of a selective scan, and how a step of it is discretised."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.core.shapes import Tokens
from attnlab.core.state_space import zero_order_hold

PerState = Float[Tensor, "dim r"]


Held = Float[Tensor, "b dim r"]


@dataclass(frozen=True, kw_only=True)
class SelectiveScanOptions(Options):
    """The state space of every channel, and the block around it.

    ``state``   numbers of state per channel (N)
    ``expand``  channels of the scan for each of the dim of the block (E)
    ``width``   taps of the short convolution (p)
    ``rule``    how B is discretised: euler, the step times B, or zoh
    ``decay``   whether A is N numbers for each channel, diagonal, or one, scalar
    """

    state: Size = 16
    expand: Size = 2
    width: Size = 4
    rule: Literal["euler", "zoh"] = "euler"
    decay: Literal["diagonal", "scalar"] = "diagonal"


def euler(dA: Tensor) -> tuple[Tensor, None]:
    """The decay, and no factor beside the step for what is written."""
    return dA.exp(), None


RULES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor | None]]] = {
    "euler": euler,
    "zoh": zero_order_hold,
}


def initial_state(x: Tokens, log_A: PerState) -> Held:
    """The state before the first token."""
    return upcast(x).new_zeros(len(x), *log_A.shape)


def coefficients(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, options: SelectiveScanOptions
) -> tuple[Tensor, Tensor]:
    """By what each state is multiplied, and what is added to it: both (…, dim, r)."""
    decay, weight = RULES[options.rule](delta[..., None] * A)
    drive = (delta * x)[..., None] * B[..., None, :]
    return decay, drive if weight is None else weight * drive
