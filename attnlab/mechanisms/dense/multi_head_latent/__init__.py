r"""Multi-head latent attention (MLA): keys and values of all heads are made of one small vector.

While a model decodes, it reads the keys and values of all tokens before. Multi-query attention
(``dense.multi_query``) keeps few of them by giving the heads the same ones. Multi-head latent
attention keeps one vector for each token, the latent $c_t$, of which every head makes keys and
values of its own:

$$c_j = \mathrm{norm}(x_j W_c),\qquad k_{j,a} = c_j W^k_a,\qquad v_{j,a} = c_j W^v_a$$

Rotary positions (``positions.rope``) cannot turn these keys, or they would have to be made again
for every query (below). So the scores have a second part, the rotated one, with r numbers: queries
$q^R$ of each head and one key $k^R$ that all heads share, both turned by their positions.

$$o_{i,a} = \sum_j \mathrm{softmax}_j\!\left(\frac{q_{i,a} \cdot k_{j,a} + q^R_{i,a} \cdot
k^R_j}{\sqrt{d + r}}\right) v_{j,a}$$

The matrices can be moved to the queries and to the output, which is called absorbing them:

$$q_{i,a} \cdot (c_j W^k_a) = (q_{i,a} W_a^{k\top}) \cdot c_j,\qquad \sum_j w_{ij}\, (c_j W^v_a) =
\Big(\sum_j w_{ij}\, c_j\Big) W^v_a$$

Then no key and no value is made at all: it is multi-query attention with one key $[c_j, k^R_j]$,
whose first k numbers are the value as well. With a rotation between the two matrices the middle
would be $W^q_a R_{i-j} W_a^{k\top}$, another matrix for each distance, and nothing could be
absorbed.

Cost: n queries and m keys need $2 h n m (d + r + e) + 2 m k h (d + e)$ FLOPs if keys and values are
made, and $2 h n m (2k + r) + 2 n k h (d + e)$ if they are absorbed. So absorbing pays while
$n m (2k - d - e) < (m - n)\, k (d + e)$, which is decoding: DeepSeek-V3 (h = 128, d = e = 128, r =
64, k = 512) absorbs up to 170 new tokens after a long text. It keeps k + r = 576 numbers for each
token and layer, where multi-head attention with as many heads would keep 32,768, and grouped-query
attention as few with 2.25 groups.

``naive``     makes keys and values, dense.
``fused``     makes keys and values; PyTorch's ``scaled_dot_product_attention``.
``absorbed``  multi-query attention over the latents.

``MultiHeadLatentAttention.step`` decodes from the latents, by the form that needs fewer FLOPs.

The rotated part is turned by ``positions``; without, it is a second, shared part of the content, as
in Kimi Linear. Models that were stretched to s times their length by YaRN multiply the scale by
$(0.1\, m \ln s + 1)^2$ (``stretch`` is s, ``mscale`` is m), and leave cosines and sines alone.

The paper's letters: $c^{KV}$ is our c, $d_c$ our k, $d_h^R$ our r; $W^{DKV}$ is $W_c$, $W^{UK}$ and
$W^{UV}$ are $W^k$ and $W^v$. In DeepSeek-V2 (60 layers, dim 5120) and V3 (61 layers, dim 7168) k is
512, r is 64 and ``query_latent_dim`` 1536.

Common mistakes: the scale is 1/√(d + r) in each form, though the absorbed one multiplies vectors of
k + r numbers; the latent is normalised before it is kept, $k^R$ is not; released weights rotate
neighbouring coordinates (``layout="interleaved"``).

Departures.
- the rotated part is as wide as a head by default, so that a scheme that is built for the layer
  fits. DeepSeek's is half as wide.
- queries are made of the tokens unless ``query_latent_dim`` is given, as in V2-Lite.
- both latents are normalised. The equations have no norm; the text says that it is done in
  practice, and all code does it.

Gives up. The keys of all heads together have rank k at most.

DeepSeek-AI. DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model.
2024, arXiv:2405.04434, section 2.1. DeepSeek-AI. DeepSeek-V3 Technical Report. 2024,
arXiv:2412.19437. Peng, Quesnelle, Fan, Shippole. YaRN: Efficient Context Window
Extension of Large Language Models. 2023, arXiv:2309.00071.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import patterns, sdpa
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.options import Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Bias, Rotation
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, Queries, checked
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.dense.multi_head_latent.costs import (
    absorbed_time,
    fewer_absorbed,
    made_time,
    rows,
)
from attnlab.mechanisms.dense.multi_head_latent.heads import LatentHeads, MultiHeadLatentOptions

TurnedQueries = Float[Tensor, "b h n r"]  # the rotated part of the queries
TurnedKeys = Float[Tensor, "b m r"]  # and of the keys, one for all heads
Latents = Float[Tensor, "b m k"]  # what keys and values are made of
ToKeys = Float[Tensor, "h d k"]  # Wᵏ of each head
ToValues = Float[Tensor, "h e k"]  # Wᵛ of each head

# ---- naive


@form
def naive(
    q: Queries, q_turned: TurnedQueries, latent: Latents, k_turned: TurnedKeys,
    w_k: ToKeys, w_v: ToValues, *, mask: Mask = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """The equation, with keys and values of each head (DeepSeek-V2, section 2.1)."""
    scale = usual_scale(q, q_turned) if scale is None else scale
    q, k = torch.cat((q, q_turned), dim=-1), keys(latent[:, None], w_k, k_turned[:, None])
    scores = note("scores", q @ k.mT * scale)
    weights = note("weights", masked_softmax(scores, patterns.dense_of(mask, q, k)))
    return weights @ (latent[:, None] @ w_v.mT)


def keys(latent: Tensor, w_k: Tensor, turned: Tensor) -> Tensor:
    """[c Wᵏ, kᴿ] of each head, (b, h, m, d + r), of latents and rotated keys of one head."""
    return torch.cat((latent @ w_k.mT, turned.expand(-1, len(w_k), -1, -1)), dim=-1)


def usual_scale(q: Tensor, q_turned: Tensor) -> float:
    """1/√(d + r)."""
    return float((q.shape[-1] + q_turned.shape[-1]) ** -0.5)


# ---- fused


@form(autocast=True)
def fused(
    q: Queries, q_turned: TurnedQueries, latent: Latents, k_turned: TurnedKeys,
    w_k: ToKeys, w_v: ToValues, *, mask: Mask = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """With zeros behind the values or the keys: PyTorch's kernel for CPUs wants one width."""
    scale, e = usual_scale(q, q_turned) if scale is None else scale, w_v.shape[1]
    q, k = torch.cat((q, q_turned), dim=-1), keys(latent[:, None], w_k, k_turned[:, None])
    v, width = latent[:, None] @ w_v.mT, max(k.shape[-1], e)
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    return sdpa.attend(q, k, v, mask=mask, bias=None, scale=scale)[..., :e]


# ---- absorbed


@form
def absorbed(
    q: Queries, q_turned: TurnedQueries, latent: Latents, k_turned: TurnedKeys,
    w_k: ToKeys, w_v: ToValues, *, mask: Mask = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """Multi-query attention over the latents: the queries of all heads are the rows of one matrix
    product with them."""
    scale, h = usual_scale(q, q_turned) if scale is None else scale, q.shape[1]
    allowed = patterns.dense_of(mask, q, latent[:, None])
    scores = (q @ w_k).flatten(1, 2) @ latent.mT + q_turned.flatten(1, 2) @ k_turned.mT
    scores = note("scores", scores.unflatten(1, (h, -1)) * scale)
    weights = note("weights", masked_softmax(scores, allowed))
    return (weights.flatten(1, 2) @ latent).unflatten(1, (h, -1)) @ w_v.mT


FORMS = {"naive": naive, "fused": fused, "absorbed": absorbed}

# ---- module


class MultiHeadLatentAttention(DenseAttention):
    """Attention with keys and values made of latents: (b, n, dim) → (b, n, dim).

    ``step`` decodes with a cache of t·(k + r) numbers per sequence.
    """

    one_softmax = False

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "fused", "absorbed"] = "fused",
        options: MultiHeadLatentOptions = MultiHeadLatentOptions(),
        positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        def projections(dim: int, heads: int, **_: Any) -> Heads:
            return LatentHeads(dim, heads, options, positions)

        super().__init__(dim, heads, FORMS[form], causal=causal, projections=projections)
        self.options, self.form = options, form

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Bias) -> Tensor:
        heads: LatentHeads = self.heads  # type: ignore[assignment]
        d, r, _, _ = heads.widths
        w_k, w_v = (w.weight.unflatten(0, (heads.heads, -1)) for w in (heads.key, heads.value))
        turned, latent = k[:, 0], v[:, 0]
        note("queries", q)
        note("keys", lambda: keys(v, w_k, k))
        note("values", lambda: v @ w_v.mT)
        note("mask", mask)
        content, q_turned = q.split((d, r), dim=-1)
        attend = absorbed if fewer_absorbed(q.shape[2], k.shape[2], heads.widths) else self.attend
        given = (content, q_turned, latent, turned, w_k, w_v)
        return attend(*given, mask=mask, scale=self.options.scale(heads.widths))


# ---- card

h, n, m = letters("h n m")

CARD = Card(
    __doc__,
    name="multi_head_latent",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=MultiHeadLatentOptions,
    time={"naive": made_time, "fused": made_time, "absorbed": absorbed_time},
    memory={
        "naive": lambda options: h * n * m + rows(options),
        "fused": rows,
        "absorbed": lambda options: h * n * m + rows(options),
    },
    notes={"naive": ("scores", "weights"), "absorbed": ("scores", "weights")},
    variants=(
        {"query_latent_dim": 7, "latent_dim": 5},
        {"content_dim": 3, "latent_dim": 10, "value_dim": 7},
        {"stretch": 40.0, "mscale": 0.707},
    ),
    build=MultiHeadLatentAttention,
    aliases=("mla", "latent_attention"),
)
