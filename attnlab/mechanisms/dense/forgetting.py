r"""Forgetting attention (FoX): each token says how much of what came before it is still to count.

Recurrent layers have a forget gate: a number $f_t$ between 0 and 1 by which all that was read
before token t is multiplied. The forgetting transformer gives it to softmax attention. Each head
computes a gate for each token, and a key that is followed by gates counts as much as their product:

$$o_i = \frac{\sum_{j \le i} F_{ij}\, e^{q_i \cdot k_j / \sqrt d}\, v_j}{\sum_{j \le i} F_{ij}\,
e^{q_i \cdot k_j / \sqrt d}},\qquad F_{ij} = \prod_{j < s \le i} f_s,\qquad f_t = \sigma(x_t w_f +
b_f)$$

In logarithms it is added to the scores, which is all that a layer of attention has to do:

$$o_i = \sum_j \mathrm{softmax}_j\!\left(\frac{q_i \cdot k_j}{\sqrt d} + D_{ij}\right) v_j,\qquad
D_{ij} = \sum_{j < s \le i} \log f_s = c_i - c_j,\qquad c_t = \sum_{s \le t} \log f_s$$

With f = 1 it is causal attention; with one f for all tokens it is ALiBi (``positions.alibi``) with
the slope −log f; where $f_t = 0$ nothing before token t is seen any more. The gate of the first
token has no effect. The gates tell the order of the tokens, so the layer needs no positions; it can
take a rotation.

Selective attention (Leviathan, Kalman, Matias, ICLR 2025, arXiv:2410.02703) lets each token choose
which keys are to be forgotten. What is added to the score of key j is $-\sum_{s < i} S_{sj}$, with
the positive scores S of one head, without those of a token for itself and for the first token. If
$S_{sj}$ were one number for all keys up to s, token s itself among them, it would be the gate
$f_{s+1} = e^{-S_s}$ here.

Cost: $2 h n m (d + e)$ FLOPs, as full attention, and h numbers a token for the gates. A token is
kept with one number more than its key and value.

``naive``  the equation in logarithms.
``fused``  PyTorch's ``scaled_dot_product_attention``: $c_i - c_j$ is the product of two more
           coordinates, (c_i, 1) of the query and (1, −c_j) of the key.

The paper's letters: $f_t$ and $D_{ij}$ are as here.

Common mistakes: D is added to the scaled scores, so it is not divided by √d; the sum has the gate
of the query and not that of the key; in half precision c loses its digits after a few hundred
tokens (here it is added up in float32).

Departures.
- a query without allowed keys gives zeros
- padding has the gate 1, so it forgets nothing
- the plain layer, without what the paper's "Pro" block adds: norms of queries, keys and outputs, an
  output gate, and keys and values mixed with those of the token before

Gives up. A token that was forgotten stays so, and the layer is causal.

Lin, Nikishin, He, Courville. Forgetting Transformer: Softmax Attention with a Forget Gate. ICLR
2025, arXiv:2503.02130.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns, sdpa
from attnlab.core.attention import SelfAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.options import Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Rotation
from attnlab.core.probe import note
from attnlab.core.shapes import (
    Context,
    KeyPadding,
    Keys,
    Outputs,
    Queries,
    Tokens,
    Values,
    checked,
)
from attnlab.core.softmax import masked_softmax

Gates = Float[Tensor, "b h m"]  # of each position, before σ

# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, gate: Gates, *, mask: Mask = None, scale: float | None = None
) -> Outputs:
    """The equation in logarithms, dense. ``gate`` is x w + b, before σ; what
    comes after a query is always masked."""
    scale, n = q.shape[-1] ** -0.5 if scale is None else scale, q.shape[2]
    c = log_sums(gate)
    decay = c[..., -n:, None] - c[..., None, :]
    scores = note("scores", q @ k.mT * scale + decay)
    weights = note("weights", masked_softmax(scores, past(mask, q, k)))
    return weights @ v


def log_sums(gate: Tensor) -> Tensor:
    """c: the logarithms of the gates, added up from the first token on."""
    note("gates", lambda: torch.sigmoid(gate))
    return F.logsigmoid(gate).cumsum(-1)


def past(mask: Mask, q: Tensor, k: Tensor) -> Tensor | None:
    """The mask, and what comes after a query masked as well."""
    own, allowed = (patterns.dense_of(each, q, k) for each in (patterns.causal(), mask))
    return own if allowed is None or own is None else own & allowed


# ---- fused


@form
def fused(
    q: Queries, k: Keys, v: Values, gate: Gates, *, mask: Mask = None, scale: float | None = None
) -> Outputs:
    """PyTorch's ``scaled_dot_product_attention``, with D as two more coordinates. In float32, as
    c would lose its digits in half precision."""
    (n, d), (m, e), c = q.shape[2:], v.shape[2:], log_sums(gate)[..., None]
    scale = d**-0.5 if scale is None else scale
    one, width = torch.ones_like(c), max(d + 2, e)
    q = torch.cat((q * scale, c[:, :, m - n :], one[:, :, m - n :]), dim=-1)
    k = torch.cat((k, one, -c), dim=-1)
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    whole = mask is None or patterns.is_causal(mask)
    seen = patterns.causal() if whole else past(mask, q, k)
    return sdpa.attend(q, k, v, mask=seen, bias=None, scale=1.0)[..., :e]


FORMS = {"naive": naive, "fused": fused}

# ---- module


class ForgettingHeads(Heads):
    """Projections with one more, to the gates of each head."""

    def __init__(
        self, dim: int, heads: int, *, bias: bool, positions: Rotation | None = None
    ) -> None:
        super().__init__(dim, heads, bias=bias, positions=positions)
        self.gate = nn.Linear(dim, heads)

    @checked
    def project(
        self, x: Tokens, context: Context = None, *, padding: KeyPadding = None, start: int = 0,
        at: Int[Tensor, "b n"] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Queries; keys with their gates behind them, (b, h, n, d + 1); values."""
        q, k, v = super().project(x, context, padding=padding, start=start, at=at)
        gate = self.gate(zero_nonfinite_padding(x, padding))
        if padding is not None:
            gate = gate.masked_fill(~padding[..., None], OPEN)
        return q, torch.cat((k, gate.mT[..., None]), dim=-1), v


OPEN = 1e4
"""A gate of 1, before σ, in any precision."""


class ForgettingAttention(SelfAttention):
    """Multi-head attention with forget gates, causal: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "fused"] = "fused", bias: bool = False,
        positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, causal=True, bias=bias, positions=positions, projections=ForgettingHeads
        )
        self.form = form

    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
        """By the form that was chosen; the keys have their gates behind them."""
        k, gate = note("keys", k[..., :-1]), k[..., -1]
        return FORMS[self.form](q, k, v, gate, mask=patterns.visible(True, padding))


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="forgetting",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="a gate forgets what came before its token",
    time=2 * h * n * m * (d + e),
    memory={"naive": h * n * m, "fused": h * n * (d + e + 2)},
    notes={"naive": ("gates", "scores", "weights"), "fused": ("gates",)},
    build=ForgettingAttention,
    aliases=("fox", "forgetting_attention"),
)
