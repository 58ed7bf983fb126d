r"""Linformer: n queries attend to k projections of the keys and values.

In full attention (see ``dense.full``) n queries are compared with n keys. Linformer first projects
keys and values over the *length*: k places replace the m positions, each a learned mixture of all
of them. The softmax runs over the k places:

$$O = \mathrm{softmax}\!\left(\frac{Q\,(E K)^\top}{\sqrt d}\right) F V,
\qquad E, F \in \mathbb{R}^{k \times m}$$

The argument of the paper: trained n × n maps have few large singular values (Figure 1), and a
random projection to k dimensions keeps the products that matter (Theorems 1 and 2). The resulting n
× m map, $\mathrm{softmax}(Q (E K)^\top / \sqrt d)\,F$, has rank at most k. Its rows need not sum to
one, and entries may be negative.

Cost: $2 h k (n + m)(d + e)$ FLOPs, linear in n; the weights are n × k.

``naive``  the equation.
``fused``  one matrix product over the length for all heads that share E; then PyTorch's
           ``scaled_dot_product_attention`` over the k places: no n × k tensor where e = d.

Sharing (section 4), counted in k × n matrices for 12 layers of 12 heads: ``none``, an E and an F
per head (288); ``headwise``, an E and an F per layer (24); ``key-value``, E = F per layer (12);
``layerwise``, one for everything (1): make one ``Projection`` and give it to every layer. k may
differ from layer to layer.

``Projection`` is linear, mean-pool (no parameters) or convolution. The last two cut the sequence
into windows of s = ⌈max_len / k⌉ positions and make one place of each.

With ``early=True`` the sequence is projected once, before keys and values are computed, since E
acts on the length and W on the width: E (x W) = (E x) W. The key and value projections then have k
rows. The result is the same up to rounding; E must be shared by the heads.

The paper's letters: $E_i, F_i$ (printed as n × k, used as k × n) are e and f, $d_k$ is d, $\bar P$
is ``weights``.

Never causal: each place is a sum over all positions, including future ones, which no mask on the
n × k weights can remove.

Readings, where the paper is silent. Padded keys and values are zero *before* the projection. A
place whose positions are all padding is masked. So padding does not change the output,
E = F = identity is full attention under padding too, and a sequence of padding alone gives zeros.
(Without padding a row of E that is zero keeps its score of 0, as the equation has it.)

A shorter sequence takes the first columns of E; a longer one than ``max_len`` is refused. Windows
cover the whole sequence, also beyond ``max_len`` (with more places than k); the last one is padded
with zeros. The convolution has one kernel of s weights for all channels, so that it, too,
is a matrix on the length. E starts normal with variance 1 / max_len (convolution: 1 / s), so that a
full-length sum of unit keys has unit variance; the theorems' 1 / k would start with scores √(n/k)
times as large. k is per layer, not per head; max-pooling (no matrix) is left out.

Other implementations. The package linformer shares E and F headwise and takes no padding; Long
Range Arena's version shares one kernel for keys and values and ignores all masks.

Departures.
- padded keys and values are zero before the projection, and a place whose positions are all padding
  is masked
- windows of mean-pool and convolution are of ⌈max_len / k⌉ positions at any length
- a convolution has one kernel for all channels
- E starts with variance 1 / max_len, not 1 / k
- k is per layer, not per head; no max-pooling

Gives up. Keys and values are k sums over all tokens: never causal, and of limited length.

Wang, Li, Khabsa, Fang, Ma. Linformer: Self-Attention with Linear Complexity. 2020,
arXiv:2006.04768, eq. 7 and section 4.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.shapes import (
    KeyPadding,
    Keys,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    Values,
    checked,
)
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.lowrank.linformer.places import LinformerOptions, OverLength, Projection

__all__ = [
    "CARD", "FORMS", "Linformer", "LinformerOptions", "Projection", "fused", "naive",
    "valid_places",
]  # fmt: skip

# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, e: OverLength, f: OverLength, *, padding: KeyPadding = None
) -> Outputs:
    """The equation (Wang et al., eq. 7), dense; E and F per head, or one for all heads."""
    keys, values = e @ _masked(k, padding), f @ _masked(v, padding)
    return _weighted(q, keys, values, valid_places(e, f, padding))


def valid_places(e: Tensor, f: Tensor, padding: Tensor | None) -> Tensor | None:
    """(b, h or 1, 1, k): the places with a valid position whose entry of E or F is not zero.

    A place whose rows of E and F are zero is kept: it has a score of 0 in the equation too.
    """
    if padding is None:
        return None
    reach = (e != 0) | (f != 0)
    valid = (reach.float() @ padding.float().mT > 0) | ~reach.any(dim=-1, keepdim=True)
    by_sequence = valid.movedim(-1, 0)
    return by_sequence.unsqueeze(-2) if e.dim() == 3 else by_sequence[:, None, None]


def _masked(x: Tensor, padding: Tensor | None) -> Tensor:
    """Keys or values (b, h, m, d) with zeros for padded tokens."""
    return x if padding is None else x.masked_fill(~padding[:, None, :, None], 0)


@form
def _weighted(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """softmax over the k places."""
    scores = note("scores", q @ keys.mT * q.shape[-1] ** -0.5)
    weights = note("weights", masked_softmax(scores, seen))
    return weights @ values


# ---- fused


@form(autocast=True)
def fused(
    q: Queries, k: Keys, v: Values, e: OverLength, f: OverLength, *, padding: KeyPadding = None
) -> Outputs:
    """One product over the length for all heads; PyTorch's SDPA over the k places.

    Half precisions are summed in float32: a sum over the whole length, rounded before the softmax,
    would be rounded twice.
    """
    keys, values = _project(e, _masked(k, padding)), _project(f, _masked(v, padding))
    return _sdpa(q, keys, values, valid_places(e, f, padding))


def _project(e: Tensor, x: Tensor) -> Tensor:
    """e @ x. Where heads share E, it is one product with all heads side by side."""
    if e.dim() == 3:
        return torch.einsum("hkm,bhmd->bhkd", e, x)
    heads = x.shape[1]
    return (e @ x.transpose(1, 2).flatten(2)).unflatten(-1, (heads, -1)).transpose(1, 2)


def _sdpa(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)


FORMS = {"naive": naive, "fused": fused}
OVER_PLACES = {"naive": _weighted, "fused": _sdpa}

# ---- module


class Linformer(Layer):
    """Multi-head attention over k places: (b, n, dim) → (b, n, dim), n up to ``max_len``."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "fused"] = "fused", options: LinformerOptions = LinformerOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads)
        self.options, self.form, self.early = options, form, options.early
        self.e, self.f = options.projections(heads)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        self.heads.check_input(x, "x")
        x = zero_nonfinite_padding(x, padding)
        if self.early:
            return self._early(x, padding)
        q, k, v = self.heads.project(x)
        return self.heads.merge(FORMS[self.form](q, k, v, *self._matrices(x), padding=padding))

    def _matrices(self, x: Tensor) -> tuple[Tensor, Tensor]:
        e = self.e(x)
        return e, e if self.f is self.e else self.f(x)

    def _early(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """Keys are computed from E x, values from F x."""
        e, f = self._matrices(x)
        seen = valid_places(e, f, padding)
        zeroed = zero_nonfinite_padding(x, padding)
        both = (e if f is e else torch.cat([e, f])).to(x.dtype)  # the heads refuse another dtype
        q, k, v = self.heads.project(x, both @ zeroed)
        out = OVER_PLACES[self.form](q, k[:, :, : len(e)], v[:, :, -len(f) :], seen)
        return self.heads.merge(out)


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="linformer",
    family="lowrank",
    role="attend",
    forms=FORMS,
    causal="never",
    causal_reason="each of its k keys and values is a sum over all positions, later ones included",
    options=LinformerOptions,
    letters={"k": "k", "max_len": "max_len"},
    positions_reason="a projected key is made of all tokens and stands at no one position",
    time=lambda chosen: 2 * h * chosen.places(n) * (n + m) * (d + e),
    memory={
        "naive": lambda chosen: h * n * (chosen.places(n) + d + e),
        "fused": lambda chosen: h * n * (chosen.places(n) + d + e),
    },
    notes={"naive": ("scores", "weights")},
    variants=(
        {},
        {"sharing": "none"},
        {"sharing": "key-value", "early": True},
        {"sharing": "headwise", "early": True},
        {"projection": "mean-pool", "max_len": 383},
        {"projection": "convolution", "sharing": "none", "max_len": 257},
    ),
    build=Linformer,
    small_options={"k": 8, "max_len": 64},
)
