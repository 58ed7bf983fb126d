"""The inner model of TTT-Linear, its gradient, the state that decoding carries, and the output."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.carried import reset_rows
from attnlab.core.precision import exact_dtype
from attnlab.core.shapes import Tokens

EPSILON = 1e-6


class Inner(NamedTuple):
    """The inner model, f(x) = x + LN(x W + b) with a gain and an offset, (h, 1, d) each; without a
    norm x W + b times the gain, plus the offset."""

    gain: Tensor
    offset: Tensor
    norm: bool


def predicted(inner: Inner, x: Tensor, z: Tensor) -> Tensor:
    """f(x) where x W + b is ``z``."""
    beside = x + inner.offset if inner.norm else inner.offset
    return beside + inner.gain * (_standard(z)[0] if inner.norm else z)


def slope(inner: Inner, x: Tensor, z: Tensor, target: Tensor) -> Tensor:
    """The gradient of ½ ‖f(x) - target‖² with respect to ``z`` = x W + b."""
    g = (predicted(inner, x, z) - target) * inner.gain
    if not inner.norm:
        return g
    unit, deviation = _standard(z)
    along = (g * unit).mean(dim=-1, keepdim=True)
    return (g - g.mean(dim=-1, keepdim=True) - unit * along) / deviation


def _standard(z: Tensor) -> tuple[Tensor, Tensor]:
    """Rows less their mean and divided by their deviation; the deviation."""
    centred = z - z.mean(dim=-1, keepdim=True)
    deviation = (centred.square().mean(dim=-1, keepdim=True) + EPSILON).sqrt()
    return centred / deviation, deviation


def turned(x: Tensor, places: Tensor) -> Tensor:
    """(b, h, n, d) with the pairs (2t, 2t + 1) of each row turned by place · 10000^(-2t / d)."""
    d, exact = x.shape[-1], exact_dtype(x.device)
    theta = 10000 ** (-torch.arange(0, d, 2, dtype=exact, device=x.device) / d)
    angle = places.to(exact)[:, None] * theta
    cos, sin = (part.to(x.dtype) for part in (angle.cos(), angle.sin()))
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class State(NamedTuple):
    """What a layer knows of the tokens before, b being the last row of W: by how much W has changed
    since the first token, the sum of the gradients of the mini-batch that has begun, and how many
    of its tokens were read."""

    learned: Float[Tensor, "b h _ d"]
    gradients: Float[Tensor, "b h _ d"]
    place: Int[Tensor, "b 1"]

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """With nothing of the documents that have ended (b,)."""
        return reset_rows(self, ended)


def advanced_together(
    read: Callable[[Tensor, State, int], tuple[Tensor, State]], x: Tensor, state: State
) -> tuple[Tensor, State]:
    """``read`` of tokens, state and place, for sequences that may be at different places of their
    mini-batches: those at one place together."""
    places = state.place[:, 0]
    found = places.unique().tolist() or [0]
    if len(found) == 1:
        return read(x, state, found[0])
    groups = [(places == place).nonzero()[:, 0] for place in found]
    parts = [
        read(x[rows], State(*(each[rows] for each in state)), place)
        for rows, place in zip(groups, found, strict=True)
    ]
    back = torch.cat(groups).argsort()
    out, states = zip(*parts, strict=True)
    joined = (torch.cat(each)[back] for each in zip(*states, strict=True))
    return torch.cat(out)[back], State(*joined)


class NormalisedOutput(nn.Module):
    """All heads together less their mean and divided by their deviation, gated, projected."""

    def __init__(self, dim: int, width: int, *, gate: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.gate = nn.Linear(dim, width, bias=False) if gate else None
        self.project = nn.Linear(width, dim, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.project.weight

    def forward(self, out: Tensor, x: Tokens) -> Tokens:
        normed = self.norm(out)
        if self.gate is not None:
            normed = F.gelu(self.gate(x), approximate="tanh") * normed
        return self.project(normed)
