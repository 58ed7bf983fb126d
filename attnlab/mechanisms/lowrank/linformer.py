r"""Linformer: every position asks, but only k summaries of the sequence answer.

In full attention (see ``dense.full``) n queries meet n keys. Linformer first sums the keys, and the
values, over the *length*: k places take the place of m positions, each a learned mixture of all of
them. The softmax runs over the k places:

$$O = \mathrm{softmax}\!\left(\frac{Q\,(E K)^\top}{\sqrt d}\right) F V,
\qquad E, F \in \mathbb{R}^{k \times m}$$

The argument of the paper: trained n × n maps have few large singular values (Figure 1), and a
random projection to k dimensions keeps the products that matter (Theorems 1 and 2). The map that
the mechanism amounts to, $\mathrm{softmax}(Q (E K)^\top / \sqrt d)\,F$, has n × m entries and rank
at most k. Its rows need not sum to one, and entries may be negative.

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

``early=True`` uses that E acts on the length and W on the width: E (x W) = (E x) W. The sequence is
projected once, before keys and values are made of it, and the two largest products of the layer
become k rows high. The result is the same up to rounding; E must be shared by the heads.

The paper's letters: $E_i, F_i$ (printed as n × k, used as k × n) are e and f, $d_k$ is d, $\bar P$
is ``weights``.

Never causal: each place is a sum over all positions, those of the future included; no mask on the
n × k weights can take them out again.

Readings, where the paper is silent. Padded keys and values are zero *before* the projection. A
place that only padding reaches is not looked at; so a padded sequence gives what it gives alone,
E = F = identity is full attention under padding too, and a sequence of padding alone gives zeros.
(Without padding a row of E that is zero keeps its score of 0, as the equation has it.)

A shorter sequence takes the first columns of E; a longer one than ``max_len`` is refused. Windows
go on as long as the sequence does, past ``max_len`` too (with more places than k); the last one is
filled up with zeros. The convolution has one kernel of s weights for all channels, so that it, too,
is a matrix on the length. E starts normal with variance 1 / max_len (convolution: 1 / s), so that a
full-length sum of unit keys has unit variance; the theorems' 1 / k would start with scores √(n/k)
times as large. k is per layer, not per head; max-pooling (no matrix) is left out.

Known elsewhere. The package linformer shares E and F headwise and takes no padding; Long Range
Arena's version shares one kernel for keys and values and ignores all masks.

Wang, Li, Khabsa, Fang, Ma. Linformer: Self-Attention with Linear Complexity. 2020,
arXiv:2006.04768, eq. 7 and section 4.
"""

import math
from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads, finite, zero_padded
from attnlab.core.options import Options, Size
from attnlab.core.precision import wide
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax

# ---- helpers


def real_places(e: Tensor, f: Tensor, padding: Tensor | None) -> Tensor | None:
    """(b, h or 1, 1, k): the places that a real position reaches, through E or through F.

    A place whose rows of E and F are zero is kept: it has a score of 0 in the equation too.
    """
    if padding is None:
        return None
    reach = (e != 0) | (f != 0)
    real = (reach.float() @ padding.float().mT > 0) | ~reach.any(dim=-1, keepdim=True)
    by_sequence = real.movedim(-1, 0)
    return by_sequence.unsqueeze(-2) if e.dim() == 3 else by_sequence[:, None, None]


def _masked(x: Tensor, padding: Tensor | None) -> Tensor:
    """Keys or values (b, h, m, d) with zeros for padded tokens."""
    return x if padding is None else x.masked_fill(~padding[:, None, :, None], 0)


class Projection(nn.Module):
    """A matrix on the length: n positions → k places, one for all heads or one per head.

    Called with (b, n, dim) it gives (k, n), or (heads, k, n). ``kind`` is "linear", "mean-pool" or
    "convolution". Parameters: k·max_len, none, or s = ⌈max_len / k⌉; times ``heads`` where given.
    """

    @checked
    def __init__(
        self,
        k: Size,
        max_len: Size,
        *,
        kind: Literal["linear", "mean-pool", "convolution"] = "linear",
        heads: Size | None = None,
    ) -> None:
        super().__init__()
        if k > max_len:
            raise ValueError(f"k must lie between 1 and max_len={max_len}, got {k}")
        self.k, self.max_len, self.kind, self.heads = k, max_len, kind, heads
        self.window = -(-max_len // k)
        shape = {"linear": (k, max_len), "mean-pool": None, "convolution": (self.window,)}[kind]
        self.weight = None
        if shape is not None:
            shape = shape if heads is None else (heads, *shape)
            self.weight = nn.Parameter(torch.randn(shape) / math.sqrt(shape[-1]))

    def forward(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "*h k n"]:
        return KINDS[self.kind](self, x)

    def extra_repr(self) -> str:
        per_head = "" if self.heads is None else f", heads={self.heads}"
        return f"k={self.k}, max_len={self.max_len}, kind={self.kind!r}{per_head}"


def _first_columns(projection: Projection, x: Tensor) -> Tensor:
    assert projection.weight is not None
    n = x.shape[1]
    if n > projection.max_len:
        raise ValueError(
            f"the sequence has {n} positions, but this projection was made for "
            f"max_len={projection.max_len}: E has a column per position and none beyond. Shorten "
            "the sequence, build with a larger max_len, or project by mean-pool or convolution"
        )
    return projection.weight[..., :n]


def _mean_windows(projection: Projection, x: Tensor) -> Tensor:
    return _windows(x.new_full((projection.window,), 1 / projection.window), x)


def _weighted_windows(projection: Projection, x: Tensor) -> Tensor:
    assert projection.weight is not None
    return _windows(projection.weight, x)


def _windows(kernel: Tensor, x: Tensor) -> Tensor:
    """(…, ⌈n/s⌉, n): the kernel (…, s) laid side by side along the sequence."""
    n, places = x.shape[1], -(-x.shape[1] // kernel.shape[-1])
    steps = torch.eye(places, dtype=kernel.dtype, device=x.device)
    return (steps[..., None] * kernel[..., None, None, :]).flatten(-2)[..., :n]


KINDS = {"linear": _first_columns, "mean-pool": _mean_windows, "convolution": _weighted_windows}

# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    e: Float[Tensor, "h k m"] | Float[Tensor, "k m"],
    f: Float[Tensor, "h k m"] | Float[Tensor, "k m"],
    *,
    padding: Bool[Tensor, "b m"] | None = None,
) -> Float[Tensor, "b h n e"]:
    """The equation (Wang et al., eq. 7), dense; E and F per head, or one for all heads."""
    keys, values = wide(e) @ wide(_masked(k, padding)), wide(f) @ wide(_masked(v, padding))
    return _weighted(q, keys, values, real_places(e, f, padding))


def _weighted(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """softmax over the k places."""
    scores = note("scores", wide(q) @ wide(keys).mT * q.shape[-1] ** -0.5)
    weights = note("weights", masked_softmax(scores, seen))
    return (weights @ wide(values)).to(q.dtype)


# ---- fused


@checked
def fused(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    e: Float[Tensor, "h k m"] | Float[Tensor, "k m"],
    f: Float[Tensor, "h k m"] | Float[Tensor, "k m"],
    *,
    padding: Bool[Tensor, "b m"] | None = None,
) -> Float[Tensor, "b h n e"]:
    """One product over the length for all heads; PyTorch's SDPA over the k places.

    Half precisions are summed in float32: a sum over the whole length, rounded before the softmax,
    would be rounded twice.
    """
    wide_q, k, v, e, f = (wide(x) for x in (q, k, v, e, f))
    keys, values = _project(e, _masked(k, padding)), _project(f, _masked(v, padding))
    return _sdpa(wide_q, keys, values, real_places(e, f, padding)).to(q.dtype)


def _project(e: Tensor, x: Tensor) -> Tensor:
    """e @ x. Where heads share E, their widths stand side by side (as the layer has made them)."""
    if e.dim() == 3:
        return torch.einsum("hkm,bhmd->bhkd", e, x)
    heads = x.shape[1]
    return (e @ x.transpose(1, 2).flatten(2)).unflatten(-1, (heads, -1)).transpose(1, 2)


def _sdpa(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)


FORMS = {"naive": naive, "fused": fused}
OVER_PLACES = {"naive": _weighted, "fused": _sdpa}

# ---- module

SHARING = {"none": (True, 2), "headwise": (False, 2), "key-value": (False, 1)}
"""Per level: is there a matrix per head, and how many kinds (E and F, or one) in a layer."""


@dataclass(frozen=True, kw_only=True)
class Places(Options):
    """The k places, and who makes them.

    ``k``           their number.
    ``max_len``     the longest sequence.
    ``sharing``     "none", "headwise", "key-value" or "layerwise".
    ``projection``  a kind, "linear", "mean-pool" or "convolution"; or, with "layerwise", the one
                    ``Projection`` that all layers are given, whose k and max_len then count.
    ``early``       the sequence is projected before keys and values are made of it.
    """

    k: Size = 128
    max_len: Size = 512
    sharing: Literal["none", "headwise", "key-value", "layerwise"] = "headwise"
    projection: Literal["linear", "mean-pool", "convolution"] | Projection = "linear"
    early: bool = False

    def check(self) -> None:
        given = isinstance(self.projection, Projection)
        if given != (self.sharing == "layerwise"):
            raise ValueError(
                "layerwise sharing is one matrix for all layers: make it once, "
                "projection=Projection(k, max_len), and give it to every layer with "
                f"sharing='layerwise'; got sharing={self.sharing!r} and "
                f"projection={self.projection!r}"
            )
        if given and (self.k, self.max_len) != (128, 512):
            raise ValueError("k and max_len are those of the given projection; leave them out here")
        if isinstance(self.projection, Projection) and self.projection.heads is not None:
            raise ValueError(
                "a layerwise projection is one for all heads; "
                f"this one was made with heads={self.projection.heads}"
            )
        if self.sharing == "none" and self.projection == "mean-pool":
            raise ValueError(
                "mean-pool has no weights, so there is nothing that heads could not share"
            )
        if self.sharing == "none" and self.early:
            raise ValueError(
                "early=True projects the sequence once for all heads, so E must be shared by "
                "them: use sharing='headwise', 'key-value' or 'layerwise'"
            )

    def projections(self, heads: int) -> tuple[Projection, Projection]:
        """E and F of one layer."""
        if isinstance(self.projection, Projection):
            return self.projection, self.projection
        per_head, kinds = SHARING[self.sharing]
        made = [
            Projection(
                self.k,
                self.max_len,
                kind=self.projection,
                heads=heads if per_head else None,
            )
            for _ in range(kinds)
        ]
        return made[0], made[-1]

    def places(self, n: sympy.Expr) -> sympy.Expr:
        """How many places n positions have: k, or one for each window of ⌈max_len / k⌉."""
        k, max_len = letters("k max_len")
        if self.projection in ("mean-pool", "convolution"):
            return n * k / max_len
        return k


class Linformer(nn.Module):
    """Multi-head attention over k places: (b, n, dim) → (b, n, dim), n up to ``max_len``."""

    @checked
    def __init__(
        self,
        dim: Size,
        heads: Size,
        *,
        form: Literal["naive", "fused"] = "fused",
        options: Places = Places(),
    ) -> None:
        super().__init__()
        self.heads = Heads(dim, heads)
        self.options, self.form, self.early = options, form, options.early
        self.e, self.f = options.projections(heads)

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        self.heads.fits(x, "x")
        x = finite(x, padding)
        if self.early:
            return self._early(x, padding)
        q, k, v = self.heads.project(x)
        return self.heads.merge(FORMS[self.form](q, k, v, *self._matrices(x), padding=padding))

    def _matrices(self, x: Tensor) -> tuple[Tensor, Tensor]:
        e = self.e(x)
        return e, e if self.f is self.e else self.f(x)

    def _early(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """Keys are made of the k places of E x, values of those of F x."""
        e, f = self._matrices(x)
        seen = real_places(e, f, padding)
        real = zero_padded(x, padding)
        both = (e if f is e else torch.cat([e, f])).to(x.dtype)  # the heads refuse a foreign dtype
        q, k, v = self.heads.project(x, both @ real)
        out = OVER_PLACES[self.form](q, k[:, :, : len(e)], v[:, :, -len(f) :], seen)
        return self.heads.merge(out)

    def extra_repr(self) -> str:
        return f"sharing={self.options.sharing!r}, early={self.early}, form={self.form!r}"


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    name="linformer",
    title="Linformer",
    family="lowrank",
    role="attend",
    paper=Paper(
        "Wang, Li, Khabsa, Fang, Ma",
        "Linformer: Self-Attention with Linear Complexity",
        "arXiv",
        2020,
        "2006.04768",
    ),
    forms=FORMS,
    causal="never",
    because="each of its k keys and values is a sum over all positions, later ones included",
    options=Places,
    letters={"k": "k", "max_len": "max_len"},
    time=lambda chosen: 2 * h * chosen.places(n) * (n + m) * (d + e),
    memory={
        "naive": lambda chosen: h * n * (chosen.places(n) + d + e),
        "fused": lambda chosen: h * n * (chosen.places(n) + d + e),
    },
    notes={"naive": ("scores", "weights")},
    departures=(
        "padded keys and values are zero before the projection, and a place that only padding "
        "reaches is not looked at",
        "windows of mean-pool and convolution are of ⌈max_len / k⌉ positions at any length",
        "a convolution has one kernel for all channels",
        "E starts with variance 1 / max_len, not 1 / k",
        "k is per layer, not per head; no max-pooling",
    ),
    variants=(
        {},
        {"sharing": "none"},
        {"sharing": "key-value", "early": True},
        {"sharing": "headwise", "early": True},
        {"projection": "mean-pool", "max_len": 383},
        {"projection": "convolution", "sharing": "none", "max_len": 257},
    ),
    build=Linformer,
)
