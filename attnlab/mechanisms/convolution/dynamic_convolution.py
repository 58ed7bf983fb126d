r"""Dynamic convolution: every token chooses the weights of its neighbours, without reading them.

A lightweight convolution has the same k weights at every position. Here a linear map computes
them from the token itself, so that they differ from token to token:

$$o_i = \sum_{j=1}^{k} \mathrm{softmax}(W_Q\, u_i)_j\; v_{i + j - \lceil (k + 1) / 2 \rceil}$$

$u$ is the gated input, $u = x W \odot \sigma(x W')$, and the heads of $v$ are its parts: $W_Q$
makes k numbers for each head from all channels of $u_i$. Full attention compares the token with
each of its neighbours; here the token alone decides how much it takes from the one before it, the
one before that, and so on. It is a windowed dense Synthesizer whose weights are bound to the
distance. A causal layer reads the token and the k − 1 before it.

At both ends of a sequence some of the k weights meet nothing, and those left do not sum to 1. With
``renormalize=True`` the softmax is taken over real tokens only; then every row of the n × n map
sums to 1, as in local attention.

Cost: $2\, n\, k\, dim$ FLOPs for the sum; $W_Q$ is a linear map with $2\, n\, h\, k\, dim$ more.

``naive``     the n × n matrix of the weights, times the values.
``shifted``   for each of the k weights one product with the values, moved by one position.

The paper's letters: $f(X_i)$ is our softmax, $W^Q$ our $W_Q$, $H$ our h, $d$ our dim.

Common mistakes: the weights are computed from the gated input, not from the input of the layer;
where k is larger than the sequence, cutting the logits before the softmax is another function.

Departures.
- no dropout of the weights
- a centred kernel may have even width

Gives up. A token weighs distances, not the tokens that stand there.

Wu, Fan, Baevski, Dauphin, Auli. Pay Less Attention with Lightweight and Dynamic Convolutions.
ICLR 2019, arXiv:1901.10430, section 4, equation 6.
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core import banded
from attnlab.core.banded import GatedConvolution
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.shapes import SelfValues, TokenPadding, Tokens, checked
from attnlab.core.softmax import masked_softmax

Logits = Float[Tensor, "b h n k"]


@dataclass(frozen=True, kw_only=True)
class DynamicOptions(Options):
    """The weights of the convolution.

    ``kernel``       k, the neighbours that a token reads, itself among them.
    ``renormalize``  whether the softmax is taken over real tokens alone.
    """

    kernel: Size = 7
    renormalize: bool = False


# ---- naive


@form
def naive(
    logits: Logits, v: SelfValues, *,
    causal: bool = False, renormalize: bool = False, padding: TokenPadding = None,
) -> SelfValues:  # fmt: skip
    """The band as an n × n matrix, times the values (Wu et al., eq. 6)."""
    p = banded.left_taps(logits.shape[-1], causal=causal)
    weights = note("weights", banded.dense(_taps(logits, p, padding, renormalize), p))
    return weights @ _values(v, padding)


def _taps(logits: Logits, p: int, padding: TokenPadding, renormalize: bool) -> Logits:
    if not renormalize:
        return logits.softmax(dim=-1)
    n, k = logits.shape[-2:]
    return masked_softmax(logits, banded.valid_taps(n, k, p, padding, logits))


def _values(v: SelfValues, padding: TokenPadding) -> SelfValues:
    return v if padding is None else v * padding[:, None, :, None]


# ---- shifted


@form(autocast=True)
def shifted(
    logits: Logits, v: SelfValues, *,
    causal: bool = False, renormalize: bool = False, padding: TokenPadding = None,
) -> SelfValues:  # fmt: skip
    """One product for each tap."""
    p = banded.left_taps(logits.shape[-1], causal=causal)
    taps = note("taps", _taps(logits, p, padding, renormalize))
    return banded.shifted(taps, _values(v, padding), p)


FORMS = {"naive": naive, "shifted": shifted}

# ---- module


class DynamicConvolution(GatedConvolution):
    """(b, n, dim) → (b, n, dim); zeros at padding. ``taps`` makes heads · kernel logits per token.

    A causal layer decodes by ``step``, whose state is its last kernel − 1 gated inputs.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "shifted"] = "shifted",
        options: DynamicOptions = DynamicOptions(), bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, options.kernel, causal=causal, bias=bias)
        self.form, self.options = form, options
        self.taps = nn.Linear(dim, heads * options.kernel, bias=bias)

    def convolve(self, u: Tokens, v: SelfValues, padding: TokenPadding) -> SelfValues:
        logits = self.heads.split(self.taps(u), self.options.kernel)
        return FORMS[self.form](
            logits, v, causal=self.causal, renormalize=self.options.renormalize, padding=padding
        )


# ---- card

h, n, e, k = letters("h n e k")

CARD = Card(
    __doc__,
    name="dynamic_convolution",
    family="convolution",
    role="mix",
    forms=FORMS,
    causal="optional",
    options=DynamicOptions,
    letters={"k": "kernel"},
    time={"naive": 2 * h * n**2 * e, "shifted": 2 * h * n * k * e},
    memory={"naive": h * n**2, "shifted": h * (n + k) * (e + k)},
    notes={"naive": ("weights",), "shifted": ("taps",)},
    variants=({"kernel": 4, "renormalize": True}, {"kernel": 3}),
    build=DynamicConvolution,
    aliases=("dynamicconv",),
    small_options={"kernel": 5},
)
