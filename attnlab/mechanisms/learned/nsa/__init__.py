r"""NSA: native sparse attention. Compressed tokens say which blocks are worth reading.

Each query reads the past in three ways, and a gate of its token weighs what each gives:

$$o_i = \sum_{c \in \{\mathrm{cmp}, \mathrm{slc}, \mathrm{win}\}} \sigma(g^c_i)\,
\mathrm{Attention}(q_i, K^c_i, V^c_i)$$

- compressed: every s tokens begin a stretch of l tokens, whose mean key and mean value stand for it
  as soon as the stretch is complete;
- selected: the tokens of some blocks of l' tokens. A block is worth the weights that the compressed
  stretches got, as far as they overlap it, added over the heads that share keys:

$$p^{\mathrm{slc}}_j = \frac{1}{s} \sum_i p^{\mathrm{cmp}}_i\,
|\text{stretch } i \cap \text{block } j|$$

  The first block, the query's own and the one before are always read, and the most valuable others
  up to c in all. All heads of a group choose the same blocks, so their keys are read once;
- a window of the last w tokens.

The choice has no gradient. The compressed branch learns by what it gives itself.

Cost: $2 h n (n / s)(d + e)$ FLOPs for the compressed branch, still quadratic; $2 h n c l' (d + e)$
for the selected blocks and $4 h n w (d + e)$ for the window, two blocks of w for each query.

``naive``    the equation, dense: a mask for each branch.
``blocked``  selected blocks and the window by tiles of queries that read the same block.

The paper's letters: l, l' and w as here, d is our s, n is our c.

Common mistakes: the paper's equation for $p^{\mathrm{slc}}$ gives the overlap only if stretches and
blocks are both counted from 1, where its other equations count from 0. Taken from 0 it gives a
block the worth of the one before.

Departures.
- a stretch is compressed by its mean; the paper learns a small network, with positions in a stretch
- one set of keys and values for all branches, where the paper has one for each
- blocks and stretches count real tokens, so padding does not move them

Gives up. A query sees most of the past as means.

Yuan, Gao, Dai, Luo, Zhao, Zhang, Xie, Wei, Wang, Xiao, Wang, Ruan, Zhang, Liang, Zeng. Native
Sparse Attention: Hardware-Aligned and Natively Trainable Sparse Attention. ACL 2025,
arXiv:2502.11089, section 3.
"""

from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card, letters
from attnlab.core.chosen_blocks import NOTHING, by_tiles, numbers, packed, seen
from attnlab.core.chunks import cut
from attnlab.core.forms import form
from attnlab.core.heads import Heads, queries_per_key_head, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.positions import Rotation
from attnlab.core.probe import listening, note, unheard
from attnlab.core.selection import Selection, of_blocks
from attnlab.core.shapes import (
    GroupKeys,
    GroupValues,
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
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse import blocked as engine
from attnlab.mechanisms.learned.nsa import in_pieces
from attnlab.mechanisms.learned.nsa.stretches import (
    Chosen,
    NSAOptions,
    choose,
    compressed,
    ranking,
)

BRANCHES = ("compressed", "selected", "window")
Gates = Float[Tensor, "b h n 3"]  # of each branch


# ---- naive


@form
def naive(
    q: Queries, k: GroupKeys, v: GroupValues, gate: Gates, *,
    padding: KeyPadding = None, options: NSAOptions = NSAOptions(),
) -> Outputs:  # fmt: skip
    """The equation, dense. ``gate`` is before σ; the queries are the last n of m positions."""
    gates = note("gates", gate.sigmoid())
    chosen, weights = branches(q, k, gates, padding, options)
    note("blocks", chosen)
    return note("weights", weights) @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)


def branches(
    q: Tensor, k: Tensor, gates: Tensor, padding: Tensor | None, options: NSAOptions
) -> tuple[Chosen, Float[Tensor, "b h n m"]]:
    """The blocks of each query, and what each key weighs in all three branches together."""
    repeats, n, m = queries_per_key_head(q, k), q.shape[2], k.shape[2]
    at = numbers(k, padding)
    asking, keys = at[:, None, m - n :, None], at[:, None, None]
    real = torch.ones_like(keys, dtype=torch.bool) if padding is None else padding[:, None, None]
    begins = options.begins(m, q.device)
    within = (keys >= begins[:, None]) & (keys < begins[:, None] + options.stretch) & real
    means = within.to(k.dtype) / options.stretch  # of the tokens of each stretch
    shares = compressed(q, means @ k, asking, begins, padding, options)
    chosen = choose(shares, asking, repeats, m, options, padding)

    def selection() -> Selection:
        value, always = ranking(shares, asking, repeats, m, options)
        return of_blocks(value, chosen, always, at // options.fitted(m), padding)

    note("selection", selection)
    scores = q @ k.repeat_interleave(repeats, dim=1).mT * q.shape[-1] ** -0.5
    selected = seen(chosen, at, padding, options.fitted(m)).repeat_interleave(repeats, dim=1)
    near = (keys <= asking) & (keys > asking - options.window) & real
    if padding is not None:
        near = near & padding[:, None, m - n :, None]
    parts = shares @ means, masked_softmax(scores, selected), masked_softmax(scores, near)
    note("branches", lambda: dict(zip(BRANCHES, parts, strict=True)))
    return chosen, sum(gates[..., c : c + 1] * part for c, part in enumerate(parts))  # type: ignore[return-value]


# ---- blocked


@form
def blocked(
    q: Queries, k: GroupKeys, v: GroupValues, gate: Gates, *,
    padding: KeyPadding = None, options: NSAOptions = NSAOptions(),
) -> Outputs:  # fmt: skip
    """Selected blocks and the window in tiles of queries that read the same block."""
    repeats, n, m = queries_per_key_head(q, k), q.shape[2], k.shape[2]
    gates = note("gates", gate.sigmoid())
    note("weights", partial(_weights, q, k, gates, padding, options))
    at, k, v = numbers(k, padding), packed(k, padding), packed(v, padding)
    asking, begins = at[:, None, m - n :], options.begins(m, q.device)
    means_k, means_v = (options.means(x) for x in (k, v))
    if in_pieces.takes(q, len(begins), m, padding):
        out, chosen = in_pieces.compress_and_choose(q, means_k, means_v, options)
    else:
        shares = compressed(q, means_k, asking[..., None], begins, padding, options)
        chosen = choose(shares, asking[..., None], repeats, m, options, padding)
        out = shares @ means_v.repeat_interleave(repeats, dim=1)
    note("blocks", chosen)
    size = options.fitted(m)
    selected = by_tiles(q, cut(k, size), cut(v, size), asking, chosen)
    k, v = (x.repeat_interleave(repeats, dim=1) for x in (k, v))
    out = torch.addcmul(gates[..., :1] * out, gates[..., 1:2], selected)
    return torch.addcmul(out, gates[..., 2:], window(q, k, v, asking, padding, options))


def window(
    q: Queries, k: Keys, v: Values, asking: Tensor, padding: Tensor | None, options: NSAOptions
) -> Outputs:
    """Attention to the last w real tokens; of queries at padding, to none."""
    if padding is None:
        with unheard() if listening() else nullcontext():  # its log-sum-exp is not of all branches
            return engine.blocked(q, k, v, patterns.local(options.window - 1).causal())
    n, m = q.shape[2], k.shape[2]
    reach = min(options.window, m)
    own = asking[..., None] // reach
    near = torch.cat((own, (own - 1).clamp(min=NOTHING)), dim=-1).expand(*q.shape[:3], 2)
    near = near.masked_fill(~padding[:, None, m - n :, None], NOTHING)
    return by_tiles(q, cut(k, reach), cut(v, reach), asking, near, reach=reach)


def _weights(*given: Any) -> Tensor:
    return branches(*given)[1]


FORMS = {"naive": naive, "blocked": blocked}

# ---- module


class NSAttention(Layer):
    """Multi-head attention to means, chosen blocks and a window, causal: (b, n, dim) → (b, n, dim).

    ``step`` decodes; its state is all keys and values so far.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        kv_heads: Size | None = None, form: Literal["naive", "blocked"] = "blocked",
        bias: bool = False, options: NSAOptions = NSAOptions(), positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, kv_heads=kv_heads, bias=bias, positions=positions)
        self.heads.check_positions(causal=True)
        self.gate = nn.Linear(dim, 3 * heads)
        self.causal, self.form, self.options = True, form, options

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        """What each token takes from the others: (b, n, dim) → (b, n, dim).

        ``padding`` (b, n) is True at real tokens.
        """
        q, k, v = self.heads.project(x, padding=padding)
        gate = self._gates(zero_nonfinite_padding(x, padding))
        out = FORMS[self.form](q, k, v, gate, padding=padding, options=self.options)
        return self.heads.merge(out)

    def _gates(self, x: Tensor) -> Gates:
        return self.gate(x).unflatten(-1, (-1, 3)).transpose(1, 2)

    @checked
    def step(
        self, x: NewTokens, state: KeyValueCache | None = None
    ) -> tuple[NewTokens, KeyValueCache]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        q, k, v = self.heads.project(x, start=0 if state is None else state.length)
        state = KeyValueCache.extended(state, k, v)
        keys, values = note("keys", state.keys), note("values", state.values)
        out = FORMS[self.form](q, keys, values, self._gates(x), options=self.options)
        return self.heads.merge(out), state


# ---- card

h, n, d, e, l, s, B, c, w = letters("h n d e l s B c w")  # noqa: E741
valued = (2 * (d + e) + 2 * (B + l) / B) / s  # for each pair of a query and a token

CARD = Card(
    __doc__,
    name="nsa",
    family="learned",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="stretches and blocks are those of the past",
    options=NSAOptions,
    letters={"l": "stretch", "s": "stride", "B": "block", "c": "chosen", "w": "window"},
    time={
        "naive": h * n**2 * (2 * (d + e) + (4 * n + 2 * d) / s + valued),
        "blocked": h * n * (n * valued + 2 * (d + e) * ((c + 1) * B + 3 * w)),
    },
    memory={
        "naive": h * n**2,
        "blocked": h * n * ((c + 1) * (B + d + e) + 3 * (w + d + e) + n / s),
    },
    notes=dict.fromkeys(FORMS, ("gates", "selection", "branches", "blocks", "weights")),
    variants=(
        {"stretch": 4, "stride": 2, "block": 4, "chosen": 4, "window": 5},
        {"stretch": 2, "stride": 2, "block": 6, "chosen": 3, "window": 1, "kv_heads": 2},
    ),
    build=NSAttention,
    aliases=("native_sparse_attention",),
    small_options={"stretch": 4, "stride": 2, "block": 4, "chosen": 3, "window": 4},
)
