r"""Adaptive attention span: each head learns how far back it attends, and pays for it.

Some heads use the last few tokens only, others need hundreds, and one span for all pays for the
longest. Here head h has a span z of its own, and the weight of a key at distance x fades to zero
between z and z + R:

$$m_z(x) = \min\!\Big(\max\!\Big(\frac{R + z - x}{R},\, 0\Big),\, 1\Big),\qquad
a_{ij} = \frac{m_z(i - j)\, e^{s_{ij}}}{\sum_{j' = i - S}^{i - 1} m_z(i - j')\, e^{s_{ij'}}},
\qquad o_i = \sum_j a_{ij} v_j$$

The ramp of width R lets a gradient reach z. A penalty $\frac{\lambda}{h} \sum z$ is added to the
loss, so that a span grows only where it lowers the loss (``penalty``). A *dynamic* span is computed
for each token: $z_i = S\, \sigma(u \cdot x_i + b)$.

Attention is to the strict past: a token does not attend to itself, and the first token of a
sequence has no key and gives zeros. With ``include_self`` it attends to itself too, at distance 0.

Cost: at most S keys for each query, and no more than the longest span reaches (z + R), which is
what the ``banded`` form computes: $2 h n S (d + e)$ FLOPs and h n S elements at most.

``naive``   the equation, with all n × m weights.
``banded``  blocks of queries, each with the keys that the longest span of all heads can reach.

The paper's letters: $S$ (longest span, ``max_span``), $R$ (``ramp``), $z$, $M$ heads (our h), $t$
and $r$ (query and key; our i and j), $v$ of the dynamic span (our u).

Departures.
- distances are counted as the paper writes; the released code counts from 0. That is the distance
  of the nearest key.
- spans are clamped inside the layer; the released code clamps them after each update. The clamp to
  [0, S] lets a gradient pass unless it points further out.
- no embeddings of distances; a rotation can be given. The paper adds learned embeddings of
  distances to the keys.
- a query without keys, such as the first, gives zeros
- no dropout on the weights

Gives up. A head does not attend to tokens further back than its learned span.

Sukhbaatar, Grave, Bojanowski, Joulin. Adaptive Attention Span in Transformers. ACL 2019,
arXiv:1905.07799.
"""

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attnlab.core import patterns
from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card, letters
from attnlab.core.derivatives import within
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.options import Size
from attnlab.core.positions import Rotation
from attnlab.core.probe import note
from attnlab.core.shapes import (
    KeyPadding,
    Keys,
    NewTokens,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    Values,
    checked,
)
from attnlab.mechanisms.learned.adaptive_span.blocks import powers, some_blocks
from attnlab.mechanisms.learned.adaptive_span.spans import AdaptiveSpanOptions, noted, penalty

__all__ = [
    "AT_ONCE", "BLOCK", "CARD", "FORMS", "AdaptiveSpanAttention", "AdaptiveSpanOptions", "banded",
    "naive", "penalty",
]  # fmt: skip

Spans = Float[Tensor, "h"] | Float[Tensor, "b h n"]
"""The span z of each head, or of each query in each head, in tokens."""

BLOCK = (32, 128)
"""The fewest and the most queries in a block."""
AT_ONCE = 1 << 22
"""From twice as many scores on, blocks are computed in parts."""

# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, span: Spans, *,
    padding: KeyPadding = None, options: AdaptiveSpanOptions = AdaptiveSpanOptions(),
) -> Outputs:  # fmt: skip
    """The equation, dense. The queries are the last n of m positions."""
    n, m = q.shape[-2], k.shape[-2]
    at = torch.arange(m, device=q.device)
    mask = options.mask(at[m - n :, None] - at, _of_queries(noted(span, n, padding)))
    if padding is not None:
        mask = mask * padding[:, None, None]
    scores = note("scores", q @ k.mT * q.shape[-1] ** -0.5)
    return note("weights", _weights(scores, mask)) @ v


def _weights(scores: Tensor, mask: Tensor) -> Tensor:
    """m e^s over its sum; zeros where all m are 0."""
    faded = mask * powers(scores.masked_fill(mask <= 0, -torch.inf))
    total = faded.sum(-1, keepdim=True)
    return faded / (total + (total == 0))


def _of_queries(span: Tensor) -> Tensor:
    """(h, 1, 1) or (b, h, n, 1)."""
    return span[:, None, None] if span.ndim == 1 else span[..., None]


# ---- banded


@form(autocast=True)
def banded(
    q: Queries, k: Keys, v: Values, span: Spans, *,
    padding: KeyPadding = None, options: AdaptiveSpanOptions = AdaptiveSpanOptions(),
) -> Outputs:  # fmt: skip
    """``naive`` in blocks of queries, each with the keys within the longest span.

    A block of c queries has the c + reach keys that end with its own. Of a long sequence the
    blocks are computed in several parts, and again in the backward pass, so that the weights of
    one part alone are held at once.
    """
    n, m = q.shape[-2], k.shape[-2]
    reach = options.reach(noted(span, n, padding), m)
    c = min(n, max(BLOCK[0], min(BLOCK[1], reach // 2)))
    parts = max(1, q[..., 0].numel() * (c + reach) // AT_ONCE)
    rows = -(-n // (parts * c)) * c
    parts = -(-n // rows)
    before, after = reach + n - m, parts * rows - n  # fewer than no keys before: some are cut off

    def of_keys(x: Tensor) -> tuple[Tensor, ...]:
        """(…, m, d) → for each part the keys within its reach, (…, rows + reach, d)."""
        return F.pad(x, (0, 0, before, after)).unfold(-2, rows + reach, rows).mT.unbind(-3)

    def of_queries(x: Tensor) -> tuple[Tensor, ...]:
        return F.pad(x, (0, 0, 0, after)).unflatten(-2, (parts, rows)).unbind(-3)

    real = q.new_ones(1, m, dtype=torch.bool) if padding is None else padding
    z = _of_queries(span)
    spans = [z] * parts if span.ndim == 1 else of_queries(z)
    given = (
        of_queries(q * q.shape[-1] ** -0.5), of_keys(k),
        of_keys(F.pad(v, (0, 1), value=1)), spans, of_keys(real[:, None, :, None]),
    )  # fmt: skip
    part = partial(some_blocks, c=c, options=options)
    if parts > 1:
        part = partial(checkpoint, part, use_reentrant=False, preserve_rng_state=False)
    out = torch.cat([part(*each) for each in zip(*given, strict=True)], dim=-2)
    return out[:, :, :n]


FORMS = {"naive": naive, "banded": banded}

# ---- module


class AdaptiveSpanAttention(nn.Module):
    """Causal multi-head attention with learned spans: (b, n, dim) → (b, n, dim).

    A head's span starts at ``start`` tokens; with ``dynamic`` it is computed for each token, and
    starts at half of ``max_span``.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, options: AdaptiveSpanOptions = AdaptiveSpanOptions(), *,
        start: float = 0.0, dynamic: bool = False, form: Literal["naive", "banded"] = "banded",
        bias: bool = False, positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 <= start <= options.max_span:
            raise ValueError(
                f"start is a span between 0 and max_span={options.max_span} tokens, got {start}"
            )
        if dynamic and start:
            raise ValueError(
                f"start={start} is for spans of heads; dynamic ones start at half of max_span"
            )
        self.heads = Heads(dim, heads, bias=bias, positions=positions)
        self.heads.check_positions(causal=True)
        self.options, self.form, self.causal = options, form, True
        if dynamic:
            self.to_span: nn.Linear | None = nn.Linear(dim, heads)
            nn.init.zeros_(self.to_span.bias)
        else:
            self.to_span = None
            self.share = nn.Parameter(torch.full((heads,), start / options.max_span))

    def span(self, x: Tensor) -> Tensor:
        """The spans in tokens: (h,), or dynamic ones of the tokens x (b, n, dim) as (b, h, n)."""
        if self.to_span is None:
            share = within(self.share, 0, 1)
        else:
            share = torch.sigmoid(self.to_span(x)).mT
        return share * self.options.max_span

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        """What each token takes from those before it: (b, n, dim) → (b, n, dim).

        ``padding`` (b, n) is True at real tokens.
        """
        q, k, v = self.heads.project(x, padding=padding)
        note("mask", patterns.visible(True, padding))
        span = self.span(zero_nonfinite_padding(x, padding))
        out = FORMS[self.form](q, k, v, span, padding=padding, options=self.options)
        return self.heads.merge(out)

    @checked
    def step(
        self, x: NewTokens, state: KeyValueCache | None = None
    ) -> tuple[NewTokens, KeyValueCache]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        q, k, v = self.heads.project(x, start=0 if state is None else state.length)
        state = KeyValueCache.extended(state, k, v)
        keys, values = note("keys", state.keys), note("values", state.values)
        note("mask", patterns.causal())
        out = FORMS[self.form](q, keys, values, self.span(x), options=self.options)
        return self.heads.merge(out), state

    def extra_repr(self) -> str:
        kind = "dynamic spans" if self.to_span is not None else "a span for each head"
        return f"{kind}, {self.options}, form={self.form!r}".replace(", ,", ",")


# ---- card

h, n, m, d, e, s = letters("h n m d e s")

CARD = Card(
    __doc__,
    name="adaptive_span",
    family="learned",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="a span is a distance back into the past",
    options=AdaptiveSpanOptions,
    letters={"s": "max_span"},
    time={"naive": 2 * h * n * m * (d + e), "banded": h * n * (3 * s + 64) * (d + e + 1)},
    memory={"naive": h * n * m, "banded": h * n * (3 * s / 2 + 32)},
    notes={"naive": ("span", "real", "scores", "weights"), "banded": ("span", "real")},
    variants=(
        {"max_span": 5, "ramp": 2, "start": 3.0},
        {"max_span": 40, "ramp": 3, "dynamic": True, "include_self": True},
    ),
    build=AdaptiveSpanAttention,
    aliases=("adaptive_attention_span",),
    small_options={"max_span": 12, "ramp": 6, "start": 4.0},
)
