r"""Sink logits: a head may attend to nothing.

The weights of a softmax sum to one, so a head that finds nothing must still put its weight
somewhere. Trained models put it on the first token, the attention sink. A sink logit gives it
another place: beside the scores of each row stands one more number b, a logit without a key and
without a value, learned for each head.

$$w_{ij} = \frac{e^{s_{ij}}}{e^{b} + \sum_{j'} e^{s_{ij'}}},\qquad o_i = \sum_j w_{ij}\, v_j,\qquad
s_{ij} = \frac{q_i \cdot k_j}{\sqrt d}$$

b = 0 is "softmax off by one", $e^{s_j} / (1 + \sum e^s)$; b → −∞ is the ordinary softmax. With $L_i
= \log \sum_j e^{s_{ij}}$ the weights are

$$w_{ij} = \sigma(L_i - b)\; \mathrm{softmax}_j(s_{ij})$$

so a sink is a gate on the output of a head (``dense.gated_attention``) whose strength the scores
themselves decide, and a gate $\sigma(g_i)$ is a sink with the logit $L_i - g_i$. The gradient of b
is $\partial o_i / \partial b = -(1 - \sum_j w_{ij})\, o_i$.

Sigmoid attention (Ramapuram et al., ICLR 2025, arXiv:2409.04431) lets each key count by itself,
with the weight $\sigma(s_{ij} + b)$ and b = −log n for texts of n tokens: a sum of attentions to
one key each, all with the sink logit −b.

Cost: that of full attention, $2 h n m (d + e)$ FLOPs; one number for each head is learned.

``naive``  the equation: the sink is one more column of scores.
``fused``  PyTorch's ``scaled_dot_product_attention`` with one more key, whose product with each
           query is b, and whose value is 0.

Common mistakes: to add 1 to a sum from which the largest score was subtracted (it has to be
$e^{-\max}$); to leave b out of that maximum; to count b once for each block where blocks of keys
are merged. The weights now change if a number is added to all scores of a row, so a bias of the
keys, which a softmax ignores, matters. b is compared with scores that are scaled already.

Departures.
- a query without allowed keys gives zeros, as it would with −∞ as every score
- each query sees all keys. In gpt-oss every other layer sees the last 128 tokens alone.

Gives up. The weights of a row sum to less than one.

OpenAI. gpt-oss-120b & gpt-oss-20b Model Card. 2025, arXiv:2508.10925. Miller. Attention
Is Off By One. 2023, www.evanmiller.org/attention-is-off-by-one.html.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns, sdpa
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import queries_per_key_head
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Bias, Rotation
from attnlab.core.probe import note
from attnlab.core.shapes import GroupKeys, GroupValues, Keys, Outputs, Queries, checked
from attnlab.core.softmax import masked_softmax

Sinks = Float[Tensor, "h"]  # b of each head


@dataclass(frozen=True, kw_only=True)
class SinkOptions(Options):
    """Where the logit comes from: ``learned``, or ``zero``, the softmax off by one."""

    logit: Literal["learned", "zero"] = "learned"


# ---- naive


@form
def naive(
    q: Queries, k: GroupKeys, v: GroupValues, sink: Sinks, *,
    mask: Mask = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """The equation, dense. ``sink`` is b of each head; its share of each row is noted, too."""
    repeats = queries_per_key_head(q, k)
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = note("scores", q @ k.mT * scale)
    weights, beside = shares(scores, sink, patterns.dense_of(mask, q, k))
    note("sink", beside)
    return note("weights", weights) @ v


def shares(scores: Tensor, sink: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weights of the keys (b, h, n, m) and of the sink (b, h, n, 1); a row without keys has
    neither."""
    column = sink[:, None, None].expand(*scores.shape[:-1], 1)
    if allowed is not None:
        allowed = torch.cat((allowed, allowed.any(-1, keepdim=True)), dim=-1)
    both = masked_softmax(torch.cat((scores, column), dim=-1), allowed)
    return both[..., :-1], both[..., -1:]


# ---- fused


@checked
def fused(
    q: Queries, k: GroupKeys, v: GroupValues, sink: Sinks, *,
    mask: Mask = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """The sink as the first key: queries get one more coordinate, 1, and this key is b there and 0
    elsewhere. One more query stands before the others, so that a causal kernel stays one."""
    (b, h, n, d), e, m = q.shape, v.shape[-1], k.shape[2]
    repeats = queries_per_key_head(q, k)
    k, v = (x if repeats == 1 else x.repeat_interleave(repeats, dim=1) for x in (k, v))
    scale = d**-0.5 if scale is None else scale
    for name, at in (("weights", 0), ("sink", 1)):
        note(name, partial(seen, q, k, sink, mask, scale, at))
    width = max(d + 1, e)  # the kernel for CPUs wants one width
    q = torch.cat((q * scale, q.new_ones(b, h, n, 1), q.new_zeros(b, h, n, width - d - 1)), dim=-1)
    first = torch.cat((sink.new_zeros(h, d), sink[:, None]), dim=-1).to(k.dtype)
    first = F.pad(first, (0, width - d - 1))[:, None].expand(b, h, 1, width)
    k = torch.cat((first, F.pad(k, (0, width - d))), dim=2)
    v = F.pad(v, (0, width - e, 1, 0))
    if patterns.is_causal(mask) and n == m:
        q = F.pad(q, (0, 0, 1, 0))
        return sdpa.attend(q, k, v, mask=mask, bias=None, scale=1.0)[:, :, 1:, :e]
    allowed = patterns.dense_of(mask, q, k[:, :, 1:])
    allowed = None if allowed is None else F.pad(allowed, (1, 0), value=True)
    return sdpa.attend(q, k, v, mask=allowed, bias=None, scale=1.0)[..., :e]


@form
def seen(q: Queries, k: Keys, sink: Sinks, mask: Mask, scale: float, at: int) -> Tensor:
    """The weights of the keys (at = 0) or of the sink (at = 1), for whoever looks."""
    return shares(q @ k.mT * scale, sink, patterns.dense_of(mask, q, k))[at]


FORMS = {"naive": naive, "fused": fused}

# ---- module


class SinkAttention(DenseAttention):
    """Multi-head attention with a sink logit for each head: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        kv_heads: Size | None = None, causal: bool = False,
        form: Literal["naive", "fused"] = "fused", bias: bool = False,
        options: SinkOptions = SinkOptions(), positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, FORMS[form],
            kv_heads=kv_heads, causal=causal, bias=bias, positions=positions,
        )  # fmt: skip
        self.form, self.options = form, options
        if options.logit == "learned":
            self.sink = nn.Parameter(0.02 * torch.randn(heads))
        else:
            self.register_buffer("sink", torch.zeros(heads), persistent=False)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Bias) -> Tensor:
        return self.attend(q, k, v, self.sink, mask=mask)


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="sink",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=SinkOptions,
    time=2 * h * n * m * (d + e),
    memory={"naive": h * n * (m + 1), "fused": h * n * (d + e)},
    notes={"naive": ("scores", "weights", "sink"), "fused": ("weights", "sink")},
    variants=({"logit": "zero"}, {"kv_heads": 2}),
    build=SinkAttention,
    aliases=("sink_logit", "softmax_off_by_one"),
)
