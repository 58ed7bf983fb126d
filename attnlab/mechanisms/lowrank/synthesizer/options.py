"""The variants: which functions compute the logits, and their sizes."""

import math
from dataclasses import dataclass

import sympy
from torch import nn

from attnlab.core.options import Options, Size
from attnlab.core.suggest import choose
from attnlab.mechanisms.lowrank.synthesizer.logits import (
    Dense,
    FactorizedDense,
    FactorizedRandom,
    Random,
)

VARIANTS = {
    "dense": ("dense",),
    "random": ("random",),
    "fixed_random": ("fixed_random",),
    "factorized_dense": ("factorized_dense",),
    "factorized_random": ("factorized_random",),
    "random_dense": ("random", "dense"),
    "dense_vanilla": ("dense", "vanilla"),
    "random_vanilla": ("random", "vanilla"),
}


@dataclass(frozen=True, kw_only=True)
class SynthesizerOptions(Options):
    """Which functions compute the logits.

    ``variant``  one of ``VARIANTS``; a mixture has one weight per component, in its name's order.
    ``max_len``  the longest sequence.
    ``rank``     of factorized_random (8 unless given).
    ``factors``  of factorized_dense, (a, b) with a · b = max_len; those nearest to each other
                 unless given.
    """

    variant: str = "dense"
    max_len: Size = 256
    rank: Size | None = None
    factors: tuple[Size, Size] | None = None

    def check(self) -> None:
        choose("variant of the Synthesizer", self.variant, VARIANTS)
        for name, owner in (("rank", "factorized_random"), ("factors", "factorized_dense")):
            if getattr(self, name) is not None and self.variant != owner:
                raise ValueError(f"{name} belongs to variant={owner!r}; {self.variant!r} has none")
        if self.factors is not None and math.prod(self.factors) != self.max_len:
            raise ValueError(
                f"factors=(a, b) should multiply to max_len={self.max_len}, got {self.factors}: a "
                "row of logits is made of a · b products"
            )

    @property
    def components(self) -> tuple[str, ...]:
        return VARIANTS[self.variant]

    def functions(self, dim: int, heads: int) -> list[nn.Module]:
        """The synthesizing functions; the layer computes vanilla logits itself."""
        build = {
            "dense": lambda: Dense(dim, heads, self.max_len),
            "random": lambda: Random(heads, self.max_len),
            "fixed_random": lambda: Random(heads, self.max_len, fixed=True),
            "factorized_dense": lambda: FactorizedDense(dim, heads, self._factors()),
            "factorized_random": lambda: FactorizedRandom(
                heads, self.max_len, 8 if self.rank is None else self.rank
            ),
        }
        return [build[name]() for name in self.components if name in build]

    def _factors(self) -> tuple[int, int]:
        if self.factors is not None:
            return self.factors
        a = next(a for a in range(math.isqrt(self.max_len), 0, -1) if self.max_len % a == 0)
        return a, self.max_len // a

    def width(self, d: sympy.Expr) -> sympy.Expr:
        """How wide the factors of the logits are: a column of zeros where there are none."""
        widths = {"dense": d + 1, "vanilla": d, "factorized_random": self.rank or 8}
        return sum((widths.get(name, 0) for name in self.components), sympy.Integer(0)) or 1

    def factor_entries(self, n: sympy.Expr) -> sympy.Expr:
        """How many numbers a token computes whose products are its n logits."""
        if self.variant != "factorized_dense":
            return sympy.Integer(0)
        a, _ = self._factors()
        return a + n / a
