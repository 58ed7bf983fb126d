r"""Lightweight convolution: the same few weights at every position, shared by groups of channels.

A convolution gives every token the same k weights for its k nearest neighbours, whatever the tokens
are. A *depthwise* convolution has k weights for each channel. A lightweight one shares them among
the e channels of a head, and a softmax makes them a mean:

$$o_{i} = \sum_{j=1}^{k} \mathrm{softmax}(w)_j\; v_{i + j - \lceil (k + 1) / 2 \rceil}$$

with one vector $w$ of k numbers per head. A causal layer reads the token and the k − 1 before it.
A gated linear unit makes the values, $v = x W \odot \sigma(x W')$, and a linear map mixes the
channels of the output. Weights depend on the distance alone: the n × n map has the same numbers
along each diagonal. Full attention at dim = 1024 needs two matrices of $dim^2$ numbers to find its
weights; here they are h k numbers, 112 for 16 heads and k = 7.

With as many heads as channels and ``normalize=False`` this is the depthwise convolution.

Cost: $2\, n\, k\, dim$ FLOPs, k = ``kernel``.

``naive``     the n × n matrix of the weights, times the values.
``shifted``   for each of the k weights one product with the values, moved by one position.
``grouped``   PyTorch's convolution with one group per channel.

The paper's letters: $W$ is our w, $H$ our h, $d$ our dim; k is its k.

Common mistakes: PyTorch's ``conv1d`` does not turn the kernel around (it is a correlation, as
here); the channels of a head are consecutive, not every h-th; at both ends the weights that are
left do not sum to 1; a bias before the convolution makes padded tokens visible unless they are
zeroed after it.

Departures.
- no dropout of the weights
- a centred kernel may have even width. It reads one token more before than after.

Gives up. The weights are the same at every position: they do not depend on the tokens.

Wu, Fan, Baevski, Dauphin, Auli. Pay Less Attention with Lightweight and Dynamic Convolutions.
ICLR 2019, arXiv:1901.10430, section 3, equations 4 and 5.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import banded
from attnlab.core.banded import GatedConvolution
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.shapes import SelfValues, TokenPadding, Tokens, checked

Weights = Float[Tensor, "h k"]


@dataclass(frozen=True, kw_only=True)
class LightweightOptions(Options):
    """The weights of the convolution.

    ``kernel``     k, the neighbours that a token reads, itself among them.
    ``normalize``  whether a softmax is taken of the k weights.
    """

    kernel: Size = 7
    normalize: bool = True


# ---- naive


@form
def naive(
    weight: Weights, v: SelfValues, *, causal: bool = False, normalize: bool = True
) -> SelfValues:
    """The band as an n × n matrix, times the values (Wu et al., eq. 5)."""
    taps = _taps(weight, normalize).expand(len(v), -1, v.shape[2], -1)
    weights = note("weights", banded.dense(taps, banded.left_taps(taps.shape[-1], causal=causal)))
    return weights @ v


def _taps(weight: Weights, normalize: bool) -> Float[Tensor, "1 h 1 k"]:
    return (weight.softmax(dim=-1) if normalize else weight)[None, :, None]


# ---- shifted


@form(autocast=True)
def shifted(
    weight: Weights, v: SelfValues, *, causal: bool = False, normalize: bool = True
) -> SelfValues:
    """One product for each tap."""
    p = banded.left_taps(weight.shape[-1], causal=causal)
    taps = note("taps", _taps(weight, normalize))
    return banded.shifted(taps, v, p)


# ---- grouped


@form(autocast=True)
def grouped(
    weight: Weights, v: SelfValues, *, causal: bool = False, normalize: bool = True
) -> SelfValues:
    """PyTorch's convolution, every channel its own group."""
    k, (h, _, e) = weight.shape[-1], v.shape[1:]
    p = banded.left_taps(k, causal=causal)
    taps = note("taps", _taps(weight, normalize))[0, :, 0]
    channels = F.pad(v.mT.flatten(1, 2), (p, k - 1 - p))
    out = F.conv1d(channels, taps.repeat_interleave(e, dim=0)[:, None], groups=h * e)
    return out.unflatten(1, (h, e)).mT


FORMS = {"naive": naive, "shifted": shifted, "grouped": grouped}

# ---- module


class LightweightConvolution(GatedConvolution):
    """(b, n, dim) → (b, n, dim); zeros at padding. ``weight`` (heads, kernel) is learned.

    A causal layer decodes by ``step``, whose state is its last kernel − 1 gated inputs.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "shifted", "grouped"] = "grouped",
        options: LightweightOptions = LightweightOptions(), bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, options.kernel, causal=causal, bias=bias)
        self.form, self.options = form, options
        self.weight = nn.Parameter(torch.randn(heads, options.kernel) * options.kernel**-0.5)

    def convolve(self, u: Tokens, v: SelfValues, padding: TokenPadding) -> SelfValues:
        run, normalize = FORMS[self.form], self.options.normalize
        return run(self.weight, v, causal=self.causal, normalize=normalize)


# ---- card

h, n, e, k = letters("h n e k")

CARD = Card(
    __doc__,
    name="lightweight_convolution",
    family="convolution",
    role="mix",
    forms=FORMS,
    causal="optional",
    options=LightweightOptions,
    letters={"k": "kernel"},
    time={"naive": 2 * h * n**2 * e, "shifted": 2 * h * n * k * e, "grouped": 2 * h * n * k * e},
    memory={"naive": h * n**2, "shifted": h * (n + k) * e, "grouped": h * (n + k) * e},
    notes={"naive": ("weights",), "shifted": ("taps",), "grouped": ("taps",)},
    variants=({"kernel": 4}, {"kernel": 3, "normalize": False}),
    build=LightweightConvolution,
    aliases=("light_convolution", "lightconv"),
    small_options={"kernel": 5},
)
