r"""ETC: a long input with local attention, and a few global tokens that attend to everything.

The first t positions of the sequence are global tokens (one for each sentence, say, put before the
text); the others are the long input. Attention has four pieces: global to global (g2g) and global
to long (g2l) are full; long to global (l2g) is full, or each token attends only to the global token
that it is part of; long to long (l2l) is limited to a radius r. Information from a long token
reaches the global tokens in one layer, and all other tokens in two.

The structure of the input enters by labels of pairs instead of position embeddings: $\ell_{ij}$ is
the label of the pair, and $a_\ell$ a learned vector for each label,

$$s_{ij} = \frac{q_i \cdot (k_j + a_{\ell_{ij}})}{\sqrt d},\qquad
o_i = \sum_j \mathrm{softmax}_{j \in S_i}(s_{ij})\, v_j$$

One softmax runs over l2g and l2l together for a long query, over g2g and g2l for a global one. With
a clip k there are 2k + 5 labels:

0 … 2k          in g2g and l2l, the distance j − i, clipped to −k … k
2k + 1, 2k + 2  in l2g, the global token that i is part of, and any other one
2k + 3, 2k + 4  in g2l, a long token that is part of i, and any other one

With zero label vectors it is BigBird's ETC with blocks of one position. With no global tokens and a
radius of n it is full attention.

Cost: $2h\,(d + e)$ FLOPs a pair; $t\,n + (n - t)(t + 2r + 1)$ pairs at most, linear in n.

``naive``    dense: the equation, with labels looked up pair by pair.
``blocked``  long queries in blocks, each with the keys within its radius and the global ones;
             $q_i \cdot a_\ell$ is computed once for each label, then added to the pairs with it.
             No n × n tensor, forward or backward.

The paper's letters: $n_g$, $n_l$ are our t and n − t; $r$ and $k$ are ``radius`` and ``clip``;
$x^g$, $x^l$ are here one sequence, the global tokens first. Its base model has r = 84, k = 12.

Readings. Each head has its own label vectors. Not causal: global tokens attend to all.

Departures.
- global and long input are one sequence, the global tokens first
- four labels beside the clipped distances say whether a long token is part of a global token; which
  is part of which can be given. The paper leaves labels other than distances to the task: these
  four are ours, as are the defaults of ``global_tokens`` and ``segment``. Without ``part_of`` each
  global token gets ``segment`` consecutive long tokens, and the last one all that remain.
- the output projection is shared by global and long tokens. Projections are shared by the pieces,
  or (``separate=True``) each piece has its own keys and values, and long and global tokens have
  their own queries.
- a query without allowed keys gives zeros

Gives up. Far tokens exchange information only through a few global tokens.

Ainslie, Ontanon, Alberti, Cvicek, Fisher, Pham, Ravula, Sanghai, Wang, Yang. ETC: Encoding Long and
Structured Inputs in Transformers. EMNLP 2020, arXiv:2004.08483, section 3; relative labels: Shaw,
Uszkoreit, Vaswani. Self-Attention with Relative Position Representations. NAACL 2018,
arXiv:1803.02155.
"""

from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Count, Size
from attnlab.core.patterns import Pattern
from attnlab.core.probe import note
from attnlab.core.shapes import (
    Outputs,
    Queries,
    SelfKeys,
    SelfValues,
    TokenPadding,
    Tokens,
    checked,
)
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.fixed.etc.blocks import BLOCK, blocked
from attnlab.mechanisms.fixed.etc.labels import CROSS, Labels, label_of_pairs, validate_labels
from attnlab.mechanisms.fixed.etc.structure import DEFAULT, ETCOptions, PartOf, members

# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, *,
    labels: Labels = None, padding: TokenPadding = None, part_of: PartOf = None,
    global_keys: SelfKeys | None = None, global_values: SelfValues | None = None,
    options: ETCOptions = DEFAULT,
) -> Outputs:  # fmt: skip
    """The equation under a dense mask. ``labels`` are the vectors a (None: all zero).

    ``global_keys`` and ``global_values`` are used by global queries in place of k and v.
    """
    validate_labels(labels, part_of, options)
    n = q.shape[-2]
    t = min(options.global_tokens, n)
    global_keys = k if global_keys is None else global_keys
    global_values = v if global_values is None else global_values
    owners = members(n, options, part_of, q.device)
    scores = torch.cat([q[:, :, :t] @ global_keys.mT, q[:, :, t:] @ k.mT], dim=-2)
    if labels is not None:
        ids = label_of_pairs(n, t, (labels.shape[-2] - CROSS) // 2, owners)
        scores = scores + (q @ labels.mT).gather(-1, ids[:, None].expand(scores.shape))
    scores = note("scores", scores * q.shape[-1] ** -0.5)
    allowed = _allowed(n, t, options, owners)[:, None]
    if padding is not None:
        allowed = allowed & padding[:, None, None]
    weights = note("weights", masked_softmax(scores, allowed))
    out = torch.cat([weights[:, :, :t] @ global_values, weights[:, :, t:] @ v], dim=-2)
    return out


def _allowed(n: int, t: int, options: ETCOptions, owners: Tensor) -> Bool[Tensor, "#b n n"]:
    """The allowed pairs of the four pieces."""
    i = torch.arange(n, device=owners.device)
    row, column = i[:, None], i[None, :]
    near = (row >= t) & (column >= t) & ((row - column).abs() <= options.radius)
    is_part = owners[:, :, None] == column
    l2g = is_part if options.own_only else torch.ones_like(is_part)
    return (row < t) | near | ((column < t) & l2g)


FORMS = {"naive": naive, "blocked": blocked}
PIECES = ("g2g", "g2l", "l2g")  # beside l2l

# ---- module


class ETCAttention(Layer):
    """Multi-head ETC attention: (b, n, dim) → (b, n, dim), the global tokens first in x.

    ``clip`` is the paper's k. ``separate`` gives each piece projections of its own. ``part_of`` (b,
    n) gives for each long token the position of the global token that it is part of, −1 for none.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, options: ETCOptions = DEFAULT, *,
        clip: Count = 12, separate: bool = False, form: Literal["naive", "blocked"] = "blocked",
        bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias)
        self.labels = nn.Parameter(torch.randn(heads, 2 * clip + 1 + CROSS, dim // heads) * 0.02)
        self.options, self.form = options, form
        names = ("global_query", *(f"{p}_{x}" for p in PIECES for x in ("key", "value")))
        self.pieces = nn.ModuleDict(
            {name: nn.Linear(dim, dim, bias=bias) for name in names} if separate else {}
        )

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None, *, part_of: PartOf = None) -> Tokens:
        q, k, v = self.heads.project(x, padding=padding)
        seen_by_global: dict[str, Tensor] = {}
        if self.pieces:
            q, k, v, seen_by_global = self._separate(zero_nonfinite_padding(x, padding), q, k, v)
        # Not while compiling: a pattern that holds a tensor cannot be built then.
        note("mask", lambda: self._mask(padding, part_of))
        given: dict[str, Any] = {"labels": self.labels, "padding": padding, "part_of": part_of}
        out = FORMS[self.form](q, k, v, **given, **seen_by_global, options=self.options)
        return self.heads.merge(out)

    def _separate(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """``heads`` projects for l2l; the other pieces have projections of their own."""
        t = min(self.options.global_tokens, x.shape[1])
        first, rest = x[:, :t], x[:, t:]

        def split(name: str, part: Tensor) -> Tensor:
            return self.pieces[name](part).unflatten(-1, (self.heads.heads, -1)).transpose(1, 2)

        q = torch.cat([split("global_query", first), q[:, :, t:]], dim=2)
        k = torch.cat([split("l2g_key", first), k[:, :, t:]], dim=2)
        v = torch.cat([split("l2g_value", first), v[:, :, t:]], dim=2)
        keys = torch.cat([split("g2g_key", first), split("g2l_key", rest)], dim=2)
        values = torch.cat([split("g2g_value", first), split("g2l_value", rest)], dim=2)
        return q, k, v, {"global_keys": keys, "global_values": values}

    def _mask(self, padding: Tensor | None, part_of: Tensor | None) -> Pattern:
        return patterns.both(self.options.structure(part_of), patterns.padding(padding))


# ---- card

n, h, d, e, t, r = letters("n h d e t r")

CARD = Card(
    __doc__,
    name="etc",
    family="fixed",
    role="attend",
    forms=FORMS,
    causal=ETCOptions.CAUSAL,
    causal_reason=ETCOptions.CAUSAL_REASON,
    options=ETCOptions,
    letters={"t": "global_tokens", "r": "radius"},
    positions_reason="its labels of pairs tell the distances, and its global tokens stand at "
    "no position of the text",
    time={
        "naive": 2 * h * n**2 * (d + e),
        "blocked": 2 * h * n * (2 * t + 2 * r + 1) * (d + e),
    },
    memory={"naive": h * n**2, "blocked": h * n * (t + 3 * r + BLOCK)},
    notes={"naive": ("scores", "weights")},
    variants=(
        {"global_tokens": 3, "radius": 4, "clip": 2, "segment": 2, "block": 8},
        {"global_tokens": 2, "radius": 2, "clip": 3, "segment": 3, "own_only": True, "block": 3},
        {"global_tokens": 0, "radius": 1, "clip": 0, "block": 2},
        {"global_tokens": 3, "radius": 0, "clip": 1, "separate": True},
        {"global_tokens": 1, "radius": 200},
    ),
    build=ETCAttention,
    small_options={"global_tokens": 2, "radius": 3, "segment": 4},
)
