"""Random features: how the rows are drawn, and the features of each kernel."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core.options import Options, Size
from attnlab.core.shapes import checked
from attnlab.core.suggest import choose

Projection = Float[Tensor, "h r d"]  # r drawn vectors for each head


def gaussian_rows(features: int, width: int, generator: torch.Generator) -> Float[Tensor, "r d"]:
    """Independent rows ω ~ N(0, I)."""
    return torch.randn(
        features, width, generator=generator, device=generator.device, dtype=torch.float64
    )


def orthogonal_rows(
    features: int, width: int, generator: torch.Generator, *, norms: str = "chi"
) -> Float[Tensor, "r d"]:
    """Rows orthogonal within blocks of ``width``, each uniform in direction.

    ``norms="chi"``: as long as Gaussian vectors, so that each row alone is N(0, I) and estimates
    stay unbiased. ``"fixed"``: all √d long, the paper's regularised kernel: biased, with a lower
    variance.
    """
    blocks = gaussian_rows(-(-features // width) * width, width, generator).unflatten(
        0, (-1, width)
    )
    q, r = torch.linalg.qr(blocks)
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]  # else q is not uniform
    rows = q.mT.flatten(0, 1)[:features]
    return rows * choose("norms", norms, NORMS)(features, width, generator)


NORMS: dict[str, Callable[[int, int, torch.Generator], Tensor | float]] = {
    "chi": lambda r, d, generator: gaussian_rows(r, d, generator).norm(dim=-1, keepdim=True),
    "fixed": lambda r, d, generator: math.sqrt(d),
}


def default_features(width: int) -> int:
    """r = d log d (theorem 4), and at least 2 d, which is more where d < 8."""
    return max(int(width * math.log(width)), 2 * width)


class Features(NamedTuple):
    """φ = ``values`` · e^``size`` / √r: features over their largest entry, and its logarithm."""

    values: Float[Tensor, "... n r"]
    size: Float[Tensor, "... n"]


def _exponential(x: Tensor, rows: Tensor) -> Features:
    """exp(ω·x - |x|²/2) over its largest entry. Both exponents from one product."""
    half_square = x.square().sum(dim=-1, keepdim=True) / 2
    one = rows.new_ones(*rows.shape[:-1], 1)
    exponents = torch.cat((x, -half_square), dim=-1) @ torch.cat((rows, one), dim=-1).mT
    size = exponents.detach().amax(dim=-1, keepdim=True)
    return Features(exponents.sub_(size).exp_(), size.squeeze(-1))  # in place: one n × r tensor


def _relu(x: Tensor, rows: Tensor) -> Features:
    """max(ω·x, 0) over its largest entry. A key whose features are all zero has no weight."""
    values = (x @ rows.mT).relu_()
    largest = values.detach().amax(dim=-1, keepdim=True)
    return Features(values / largest.masked_fill(largest == 0, 1), largest.log().squeeze(-1))


class Kernel(NamedTuple):
    """The rows ω made from a drawn projection, and the features of their products with x."""

    rows: Callable[[Tensor], Tensor]
    features: Callable[[Tensor, Tensor], Features]


KERNELS = {
    "positive": Kernel(lambda drawn: drawn, _exponential),
    "hyperbolic": Kernel(lambda drawn: torch.cat((drawn, -drawn), dim=-2), _exponential),
    "relu": Kernel(lambda drawn: drawn, _relu),
}


@checked
def features(
    x: Float[Tensor, "... n d"], projection: Float[Tensor, "... r d"], *, kernel: str = "positive"
) -> Float[Tensor, "... n s"]:
    """φ(x) as the paper writes it (r of them, "hyperbolic" 2 r), for x already times d^(-1/4)."""
    chosen = choose("kernel", kernel, KERNELS)
    values, size = chosen.features(x, chosen.rows(projection))
    return values * (size.exp() / math.sqrt(values.shape[-1]))[..., None]


@checked
def trigonometric_features(
    x: Float[Tensor, "... n d"], projection: Float[Tensor, "... r d"]
) -> Float[Tensor, "... n s"]:
    """e^(|x|²/2) / √r (cos ω·x, sin ω·x): unbiased too, but dot products may be negative."""
    angles = x @ projection.mT
    waves = torch.cat((angles.cos(), angles.sin()), dim=-1)
    scale = (x.square().sum(dim=-1, keepdim=True) / 2).exp()
    return scale / math.sqrt(angles.shape[-1]) * waves


class FeatureMap(NamedTuple):
    """A kernel and its rows, applied to unscaled queries and keys."""

    kernel: Kernel
    rows: Tensor

    @classmethod
    def of(cls, name: str, projection: Tensor) -> "FeatureMap":
        kernel = choose("kernel", name, KERNELS)
        return cls(kernel, kernel.rows(projection))

    def queries(self, q: Tensor) -> Tensor:
        """The values only: a query's size cancels."""
        return self.kernel.features(q * q.shape[-1] ** -0.25, self.rows).values

    def keys(self, k: Tensor, padding: Tensor | None = None) -> Features:
        """The size of a padded key is minus infinity, whatever it holds."""
        k = k if padding is None else k.masked_fill(~padding[:, None, :, None], 0)
        keys = self.kernel.features(k * k.shape[-1] ** -0.25, self.rows)
        if padding is None:
            return keys
        return keys._replace(size=keys.size.masked_fill(~padding[:, None], -torch.inf))


@dataclass(frozen=True, kw_only=True)
class PerformerOptions(Options):
    """The features φ, and how they are drawn.

    ``features``    r per head; d log d, and at least 2 d, unless given.
    ``kernel``      "positive", "hyperbolic" or "relu".
    ``orthogonal``  rows orthogonal in blocks of d; else independent.
    ``norms``       of orthogonal rows: "chi" as long as Gaussian vectors, "fixed" √d.
    ``seed``        of the generator that draws them.
    ``chunk``       how many tokens the causal chunked form and ``step`` take at once.
    """

    features: Size | None = None
    kernel: Literal["positive", "hyperbolic", "relu"] = "positive"
    orthogonal: bool = True
    norms: Literal["chi", "fixed"] = "chi"
    seed: int = 0
    chunk: Size = 64

    def check(self) -> None:
        if self.norms != "chi" and not self.orthogonal:
            raise ValueError(
                f"norms={self.norms!r} is for orthogonal rows; independent Gaussian rows have "
                "their own length: leave norms out or set orthogonal=True"
            )

    def draw(self, d: int, generator: torch.Generator) -> Float[Tensor, "r d"]:
        """The rows of one head of width d."""
        r = default_features(d) if self.features is None else self.features
        if self.orthogonal:
            return orthogonal_rows(r, d, generator, norms=self.norms)
        return gaussian_rows(r, d, generator)

    def count(self, d: sympy.Expr) -> sympy.Expr:
        """How many features there are, up to rounding: two for each hyperbolic row."""
        rows = d * sympy.log(d) if self.features is None else sympy.Integer(self.features)
        return 2 * rows if self.kernel == "hyperbolic" else rows
