r"""FNet: Fourier mixing. A Fourier transform stands in the place of attention, nothing is learned.

Attention computes from the tokens themselves how much each takes from each other one. FNet mixes
them by a fixed matrix, the discrete Fourier transform, first along the width of each token, then
along the sequence, and keeps the real part:

$$y = \mathrm{Re}\big(F_n\, x\, F_{dim}\big) = C_n\, x\, C_{dim} - S_n\, x\, S_{dim},\qquad
(F_N)_{jk} = e^{-2 \pi i j k / N} = (C_N)_{jk} - i\, (S_N)_{jk}$$

with the cosines $C_{jk} = \cos(2 \pi j k / N)$ and the sines $S_{jk} = \sin(2 \pi j k / N)$. Every
output depends on every input, so the layer cannot be causal. What is learned of a sequence is
learned by the feed-forward layers in between. The paper's *hybrid* keeps attention in the last two
layers: ``TinyTransformer(attention=["fnet", …, "full", "full"])``.

Without padding the transform is linear and fixed, so that the position enters by the phase alone.
Nothing is normalised: the output has about √(n · dim) times the size of the input, and a layer
normalisation follows it in the model.

Cost: $2.5\, n\, dim\, \log_2 (n\, dim)$ FLOPs, 2.5 N log₂ N for a real transform of N points; no
n × n tensor, no parameters.

``naive``  the cosines and sines as matrices: $4 n\, dim\, (n + dim)$ FLOPs.
``fft``    the fast Fourier transform of real numbers: half of its columns is computed, and the
           other half follows from $Y_{j, -k} = \overline{Y_{-j, k}}$ (indices modulo n and dim).

The paper's letters: $n$ is our n, $d_h$ is dim.

Common mistakes: taking the real part after each of the two transforms; a transform over the batch;
transforming the padding with the tokens.

Departures.
- padding is left out of the transform; the released code transforms it, too. The real tokens of a
  sequence are transformed as if they stood alone, one after the other, and padded positions get
  zeros. In the released code the result depends on how long the batch is.

Gives up. The mixing is fixed: its weights do not depend on the tokens.

Lee-Thorp, Ainslie, Eckstein, Ontanon. FNet: Mixing Tokens with Fourier Transforms. NAACL 2022,
arXiv:2105.03824, section 3.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import sympy
import torch
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.precision import exact_dtype
from attnlab.core.probe import note
from attnlab.core.shapes import TokenPadding, Tokens, checked

# ---- naive


@form
def naive(x: Tokens, *, padding: TokenPadding = None) -> Tokens:
    """The cosines and sines of both axes as matrices (Lee-Thorp et al., section 3.2)."""
    b, n, dim = x.shape
    real = x.new_ones(b, n, dtype=torch.bool) if padding is None else padding
    place = real.cumsum(dim=1) - 1  # among the real tokens
    C_n, S_n = _waves(place[:, :, None] * place[:, None], real.sum(dim=1)[:, None, None], x)
    both = real[:, :, None] & real[:, None]
    C_n, S_n = (note(name, w * both) for name, w in (("cosines", C_n), ("sines", S_n)))
    k = torch.arange(dim, device=x.device)
    C_d, S_d = _waves(k[:, None] * k, torch.tensor(dim, device=x.device), x)
    return C_n @ x @ C_d - S_n @ x @ S_d


def _waves(steps: Tensor, N: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of 2π · steps / N; steps modulo N first, for a large angle loses its digits."""
    N = N.clamp(min=1)
    angle = (steps % N).to(exact_dtype(like.device)) * (2 * math.pi) / N
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


# ---- fft


@form
def fft(x: Tokens, *, padding: TokenPadding = None) -> Tokens:
    """``naive`` by the fast Fourier transform; sequences with padding one after the other."""
    if padding is None:
        return _Transform.apply(x)
    out = torch.zeros_like(x)
    for row, real in enumerate(padding):
        if real.any():
            out[row, real] = _Transform.apply(x[row : row + 1, real])[0]
    return out


class _Transform(torch.autograd.Function):
    """Cosines and sines are symmetric matrices, so the gradient goes through the same transform."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return _transformed(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Nothing is kept for the backward pass."""

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Tensor:
        grad: Tensor = _Transform.apply(d_out)
        return grad


def _transformed(x: Tensor) -> Tensor:
    """Re of the transform over (n, dim), from its first dim // 2 + 1 columns."""
    dim = x.shape[-1]
    if not x.numel():
        return x
    half = torch.fft.rfft2(x).real
    mirrored = half[..., 1 : dim - half.shape[-1] + 1].flip(1, 2).roll(1, dims=1)  # row −j modulo n
    return torch.cat((half, mirrored), dim=-1)


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "fft": fft}

# ---- module


class FNet(Layer):
    """Fourier mixing, without parameters: (b, n, dim) → (b, n, dim); zeros at padding."""

    @checked
    def __init__(self, dim: Size, *, form: Literal["naive", "fft"] = "fft") -> None:
        super().__init__()
        self.dim, self.form = dim, form

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        if x.shape[-1] != self.dim:
            raise ValueError(
                f"`x` has width {x.shape[-1]}, but this layer was built with dim={self.dim}"
            )
        return note("mixed", FORMS[self.form](zero_nonfinite_padding(x, padding), padding=padding))


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="fnet",
    family="convolution",
    role="mix",
    forms=FORMS,
    causal="never",
    causal_reason="every output of a Fourier transform depends on every input",
    time={
        "naive": 4 * n * dim * (n + dim),
        "fft": sympy.Rational(5, 2) * n * dim * sympy.log(n * dim, 2),
    },
    memory={"naive": n**2 + dim**2, "fft": n * dim},
    notes={"naive": ("cosines", "sines")},
    build=FNet,
    aliases=("fourier",),
)
