"""Which coordinates of a head are turned together, how fast, and how many of them."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core.options import Options
from attnlab.core.precision import exact_dtype


@dataclass(frozen=True, kw_only=True)
class RoPEOptions(Options):
    """Which coordinates are turned together, and how fast.

    ``fraction``     the share of a head that is turned, and ``fraction_of`` what it is a share of:
                     "channels", the first of which are a RoPE of their own width, or "pairs" of the
                     whole head, the fastest of which turn.
    ``factors``      of scaling="long": by how much the angle of each pair is divided.
    ``original``     of scaling="long": L, the length of training.
    """

    layout: Literal["half", "interleaved"] = "half"
    base: float = 10000.0
    scaling: Literal["none", "interpolation", "ntk", "xpos", "long"] = "none"
    factor: float = 1.0
    fraction: float = 1.0
    fraction_of: Literal["channels", "pairs"] = "channels"
    factors: tuple[float, ...] | None = None
    original: int | None = None

    def check(self) -> None:
        if self.base <= 1:
            raise ValueError(f"base should be above 1, got {self.base}")
        if self.factor <= 0:
            raise ValueError(f"factor should be above 0, got {self.factor}")
        if self.scaling == "none" and self.factor != 1:
            raise ValueError(f"factor={self.factor} is for a scaling; choose one, such as 'ntk'")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction should be above 0 and at most 1, got {self.fraction}")
        if self.fraction < 1 and self.scaling == "xpos":
            raise ValueError("xPos scales every pair of a head; leave fraction out")
        self._check_long()

    def _check_long(self) -> None:
        for name in ("factors", "original"):
            if (getattr(self, name) is not None) != (self.scaling == "long"):
                raise ValueError(f"scaling='long' takes {name}, and no other scaling does")
        if self.factors is not None and min(self.factors, default=0) <= 0:
            raise ValueError(f"factors should be above 0, got {self.factors}")
        if self.original is not None and (self.original < 2 or self.factor < 1):
            raise ValueError(
                "scaling='long' needs a length of training of at least 2 and a factor of at least "
                f"1, got original={self.original} and factor={self.factor}"
            )

    @property
    def magnitude(self) -> float:
        """By what cosines and sines are multiplied: 1 but for LongRoPE."""
        if self.original is None:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original))

    def width(self, d: int) -> int:
        """How many of the d channels of a head belong to pairs: an even number, at
        least two."""
        refuse_odd(d)
        if self.fraction == 1 or self.fraction_of == "pairs":
            return d
        return max(2, int(self.fraction * d) // 2 * 2)

    def frequencies(self, d: int, device: torch.device) -> Float[Tensor, "t"]:
        """θ of each pair, in radians per position, of heads of width d."""
        d = self.width(d)
        t = torch.arange(d // 2, device=device, dtype=exact_dtype(device))
        base = self.base
        if self.scaling == "ntk" and d > 2:
            base *= self.factor ** (d / (d - 2))
        slower = self.factor if self.scaling == "interpolation" else 1.0
        theta = base ** (-2 * t / d) / slower
        if self.factors is not None:
            if len(self.factors) != d // 2:
                raise ValueError(
                    f"factors has {len(self.factors)} numbers, but {d // 2} pairs are turned"
                )
            theta = theta / torch.tensor(self.factors, dtype=theta.dtype, device=device)
        if self.fraction_of == "channels":
            return theta
        return theta * (t < max(1, int(self.fraction * (d // 2))))

    def growth(self, d: int, device: torch.device) -> Float[Tensor, "t"]:
        """log ζ of each pair: by how much queries grow per position, and keys shrink."""
        t = torch.arange(d // 2, device=device, dtype=exact_dtype(device))
        if self.scaling != "xpos":
            return torch.zeros_like(t)
        return ((2 * t / d + 0.4) / 1.4).log() / self.factor

    def paired(self, x: Float[Tensor, "... d"]) -> tuple[Tensor, Tensor]:
        """The first and the second coordinate of each pair."""
        if self.layout == "half":
            first, second = x.chunk(2, dim=-1)
            return first, second
        return x[..., 0::2], x[..., 1::2]

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        """Pairs as one vector, ``paired`` undone."""
        if self.layout == "half":
            return torch.cat((first, second), dim=-1)
        return torch.stack((first, second), dim=-1).flatten(-2)

    def partners(self, x: Tensor) -> Tensor:
        """For each coordinate the other of its pair."""
        if self.layout == "half":
            return x.roll(x.shape[-1] // 2, -1)
        return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


def refuse_odd(d: int) -> None:
    """A ValueError for heads whose coordinates are no pairs."""
    if d % 2:
        raise ValueError(
            f"a rotation turns pairs of coordinates, but heads have width {d}: odd; "
            "choose dim and heads so that dim / heads is even"
        )
