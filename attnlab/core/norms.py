"""The norms of a stream, by the names that joins take as ``norm=``.

``"layer_norm"``  mean 0 and variance 1 over the width (Ba, Kiros and Hinton, 2016,
                  arXiv:1607.06450).
``"rms_norm"``    mean square 1, the mean stays (Zhang and Sennrich, NeurIPS 2019,
                  arXiv:1910.07467).
``"no_norm"``     scale and shift alone, γ x + β, without statistics (Sun et al., MobileBERT, ACL
                  2020, arXiv:2004.02984, section 3.4).

Each has a learned scale, which begins at 1, and all but RMSNorm a learned shift, which begins at 0.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.options import Size, check_value

Norm = Literal["layer_norm", "rms_norm", "no_norm"]
EPSILON = 1e-5
"""What is added to the variance, or the mean square, unless a norm is given its own."""


class NoNorm(nn.Module):
    """γ x + β at each position: what is left of a layer norm without its statistics."""

    def __init__(self, dim: Size) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Float[Tensor, "... dim"]) -> Float[Tensor, "... dim"]:
        return torch.addcmul(self.bias, self.weight, x)


class RMSNorm(nn.RMSNorm):
    """PyTorch's, which also reads what autocast has rounded; it gives the precision of its scale,
    as a layer norm does on a GPU."""

    def forward(self, x: Float[Tensor, "... dim"]) -> Float[Tensor, "... dim"]:
        wider = torch.promote_types(x.dtype, self.weight.dtype)
        return super().forward(x.to(wider))


def norm_of(name: Norm, dim: Size, epsilon: float | None = None) -> nn.Module:
    """A new norm of this name and width. A ValueError for a name that there is not, for an
    ``epsilon`` that is not above 0, and for one beside ``"no_norm"``, which divides by nothing."""
    check_value("norm", name, Norm)
    epsilon = check_value("epsilon", epsilon, float | None)
    if epsilon is not None:
        if name == "no_norm":
            raise ValueError("norm='no_norm' divides by no statistics: leave epsilon out")
        if epsilon <= 0:
            raise ValueError(f"epsilon should be above 0, got {epsilon!r}")
    if name == "no_norm":
        return NoNorm(dim)
    made = nn.LayerNorm if name == "layer_norm" else RMSNorm
    return made(dim, eps=EPSILON if epsilon is None else epsilon)


class Normed(nn.Module):
    """A linear layer that reads through a norm: W norm(x) + b."""

    def __init__(self, norm: nn.Module, linear: nn.Linear) -> None:
        super().__init__()
        self.norm, self.linear = norm, linear

    @property
    def weight(self) -> Tensor:
        return self.linear.weight

    @property
    def bias(self) -> Tensor | None:
        return self.linear.bias

    @property
    def in_features(self) -> int:
        return self.linear.in_features

    def forward(self, x: Float[Tensor, "... width"]) -> Float[Tensor, "... dim"]:
        out: Tensor = self.linear(self.norm(x))
        return out
