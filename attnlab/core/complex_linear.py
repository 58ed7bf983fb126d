r"""Linear maps of complex vectors, on real tensors.

A complex vector $x + iy$ of width w is held as the 2w real numbers [x, y]: real parts first. A
complex matrix $A + iB$ then acts as a real one whose blocks repeat,

$$\begin{bmatrix} x & y \end{bmatrix} \begin{bmatrix} A & B \\ -B & A \end{bmatrix}
= \begin{bmatrix} xA - yB & xB + yA \end{bmatrix},$$

so it costs four real products, and holds half the numbers of a free real matrix of that width.
"""

from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.options import Size
from attnlab.core.precision import upcast
from attnlab.core.shapes import checked

Weights = Literal["free", "equal", "real"]
"""How the two real matrices of $A + iB$ are bound: not at all, A = B, or B = 0."""


@checked
def as_complex(pairs: Float[Tensor, "... two_w"]) -> Complex[Tensor, "... w"]:
    """[x, y] → x + iy. Half precisions, of which PyTorch has no complex numbers, become float32."""
    refuse_odd("the last axis", pairs.shape[-1])
    real, imaginary = upcast(pairs).chunk(2, dim=-1)
    return torch.complex(real, imaginary)


@checked
def as_pairs(x: Complex[Tensor, "... w"]) -> Float[Tensor, "... two_w"]:
    """x + iy → [x, y]."""
    return torch.cat((x.real, x.imag), dim=-1)


def refuse_odd(name: str, width: int) -> None:
    """A ValueError for a width that does not split into real and imaginary parts."""
    if width % 2:
        raise ValueError(
            f"{name} should be even, got {width}: its first half holds the real parts, its second "
            "half the imaginary parts"
        )


class ComplexLinear(nn.Module):
    """z = (A + iB)(x + iy) + c + id on real tensors: (…, dim) → (…, out), both [real, imaginary].

    ``dim`` and ``out`` count real numbers, so they are even. ``weights="free"`` has dim·out/2
    parameters; ``"equal"`` (A = B, and c = d: Wang et al., appendix B) and ``"real"`` (B = 0) have
    half as many and need two real products instead of four. ``karatsuba`` computes free
    weights by three products: $xA$, $yB$ and $(x + y)(A + B)$, whose difference from the first two
    is the imaginary part. As ``nn.Linear``, it starts uniform within ±1/√dim.
    """

    @checked
    def __init__(
        self,
        dim: Size,
        out: Size,
        *,
        bias: bool = False,
        weights: Weights = "free",
        karatsuba: bool = False,
    ) -> None:
        super().__init__()
        refuse_odd("dim", dim)
        refuse_odd("out", out)
        if karatsuba and weights != "free":
            raise ValueError(
                f"karatsuba saves one of four products of free weights; weights={weights!r} needs "
                "two: leave karatsuba out"
            )
        self.weights, self.karatsuba = weights, karatsuba
        parts = 2 if weights == "free" else 1
        self.weight = nn.Parameter(torch.empty(parts, out // 2, dim // 2))
        nn.init.uniform_(self.weight, -(dim**-0.5), dim**-0.5)
        self.bias = None
        if bias:
            self.bias = nn.Parameter(torch.empty(1 if weights == "equal" else 2, out // 2))
            nn.init.uniform_(self.bias, -(dim**-0.5), dim**-0.5)

    @checked
    def forward(self, x: Float[Tensor, "... dim"]) -> Float[Tensor, "... out"]:
        real, imaginary = x.chunk(2, dim=-1)
        if self.weights == "equal":
            out = self._two(real - imaginary, real + imaginary)
        elif self.weights == "real":
            out = self._two(real, imaginary)
        else:
            out = self._three(real, imaginary) if self.karatsuba else F.linear(x, self.block())
        if self.bias is None:
            return out
        return out + self.bias.expand(2, -1).flatten()

    def block(self) -> Float[Tensor, "out dim"]:
        """The real matrix [[A, -B], [B, A]] of free weights, which acts on columns [x, y]."""
        a, b = self.weight.unbind()
        return torch.cat((torch.cat((a, -b), dim=1), torch.cat((b, a), dim=1)))

    def _two(self, real: Tensor, imaginary: Tensor) -> Tensor:
        return torch.cat(
            (F.linear(real, self.weight[0]), F.linear(imaginary, self.weight[0])), dim=-1
        )

    def _three(self, real: Tensor, imaginary: Tensor) -> Tensor:
        a, b = self.weight.unbind()
        first, second = F.linear(real, a), F.linear(imaginary, b)
        both = F.linear(real + imaginary, a + b)
        return torch.cat((first - second, both - first - second), dim=-1)

    def extra_repr(self) -> str:
        _, out, dim = self.weight.shape
        return f"{2 * dim}, {2 * out}, weights={self.weights!r}, karatsuba={self.karatsuba}"
