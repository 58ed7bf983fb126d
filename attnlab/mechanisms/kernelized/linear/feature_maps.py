r"""Feature maps φ, whose dot products replace the exponential; r features of a head of width d.

``elu``     $\mathrm{elu}(x) + 1$, r = d: the paper's; positive.
``relu``    $\max(x, 0)$, r = d: sparse; a dot product of two may be zero.
``dpfp``    $\phi_{(i,j)}(x) = a_j\, a_{j+i}$ with $a = \mathrm{relu}([x, -x])$, indices modulo 2d,
            $i = 1 \ldots \nu$, r = 2dν: "deterministic parameter-free projection", sparse and of
            more dimensions than x, so that more keys can be distinguished.
``taylor``  $\phi(x) = (1,\, y,\, y^{\otimes 2} / \sqrt{2!},\, \ldots,\, y^{\otimes p} /
            \sqrt{p!})$ with $y = x\, d^{-1/4}$, $r = \sum_{i \le p} d^i$: $\phi(q) \cdot \phi(k)$
            is the exponential series of $q \cdot k / \sqrt d$ up to degree p, so the map tends to
            the softmax's. Degree 0 is a plain mean.
``based``   the same of degree 2 with each product of two entries once: r = (d + 1)(d + 2) / 2. A
            weight $1 + s + s^2 / 2$ is at least 1/2; a score far below 0 has a large one, too.
"""

import math
from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.options import Count, Options, Size

MOST_FEATURES = 2**24
"""How many features a head may have."""


def elu_features(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    # PyTorch's compiler expects other strides of the gradient of elu unless x is contiguous.
    return F.elu(x.contiguous() if torch.compiler.is_compiling() else x) + 1


def relu_features(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    return F.relu(x)


def dpfp_features(x: Float[Tensor, "... d"], nu: int = 1) -> Float[Tensor, "... r"]:
    """Products of an entry of relu([x, −x]) with each of the ``nu`` next ones, cyclically."""
    both = torch.cat((F.relu(x), F.relu(-x)), dim=-1)
    if not 1 <= nu < both.shape[-1]:
        raise ValueError(
            f"nu should be between 1 and 2d - 1 = {both.shape[-1] - 1} for heads of width "
            f"d = {x.shape[-1]}, got {nu}: beyond, the products repeat"
        )
    return torch.cat([both * both.roll(-i, dims=-1) for i in range(1, nu + 1)], dim=-1)


def exponential_features(x: Float[Tensor, "... d"], degree: int = 2) -> Float[Tensor, "... r"]:
    """Features whose dot product is exp(x · y / √d), up to a ``degree`` of its series."""
    if degree < 0 or degree % 2:
        raise ValueError(
            f"degree should be even and not negative, got {degree}: cut after an odd power, the "
            "exponential series falls below zero, and the sum of weights may vanish"
        )
    if degree > MOST_FEATURES.bit_length() or x.shape[-1] ** degree > MOST_FEATURES:
        raise ValueError(
            f"degree={degree} makes more than {MOST_FEATURES:,} features of heads of width "
            f"{x.shape[-1]}"
        )
    x = x * x.shape[-1] ** -0.25
    power = torch.ones_like(x[..., :1])
    powers = [power]
    for i in range(1, degree + 1):  # y^{⊗i} / √i!, from the one before
        power = (power[..., :, None] * x[..., None, :]).flatten(-2) / math.sqrt(i)
        powers.append(power)
    return torch.cat(powers, dim=-1)


def based_features(x: Float[Tensor, "... d"]) -> Float[Tensor, "... r"]:
    """Features whose dot product is 1 + s + s²/2 with s = x · y / √d, as ``exponential_features``
    of degree 2; each product of two different entries stands once, and counts twice."""
    x = x * x.shape[-1] ** -0.25
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1], 1, device=x.device)
    return torch.cat(
        (torch.ones_like(x[..., :1]), x, x**2 / math.sqrt(2), x[..., i] * x[..., j]), -1
    )


@dataclass(frozen=True, kw_only=True)
class LinearOptions(Options):
    """The feature map φ.

    ``feature``  "elu", "relu", "dpfp", "taylor" or "based".
    ``nu``       of dpfp, ν (1 unless given).
    ``degree``   of taylor, where the series is cut: even (2 unless given).
    ``chunk``    how many tokens the chunked form and ``step`` take at once.
    """

    feature: Literal["elu", "relu", "dpfp", "taylor", "based"] = "elu"
    nu: Size | None = None
    degree: Count | None = None
    chunk: Size = 64

    def check(self) -> None:
        for name, owner in (("nu", "dpfp"), ("degree", "taylor")):
            if getattr(self, name) is not None and self.feature != owner:
                raise ValueError(
                    f'{name} is an option of feature="{owner}", not of "{self.feature}"'
                )

    def __call__(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... r"]:
        """φ(x)."""
        if self.feature == "dpfp":
            return dpfp_features(x, 1 if self.nu is None else self.nu)
        if self.feature == "taylor":
            return exponential_features(x, 2 if self.degree is None else self.degree)
        if self.feature == "based":
            return based_features(x)
        return elu_features(x) if self.feature == "elu" else relu_features(x)

    def count(self, d: sympy.Expr) -> sympy.Expr:
        """r, the number of features for width d."""
        if self.feature == "dpfp":
            return 2 * d * (self.nu or 1)
        if self.feature == "taylor":
            return sum(d**i for i in range((2 if self.degree is None else self.degree) + 1))
        if self.feature == "based":
            return (d + 1) * (d + 2) / 2
        return d
