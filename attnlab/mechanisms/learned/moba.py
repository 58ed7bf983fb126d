r"""MoBA: mixture of block attention. A router without parameters chooses blocks of keys.

The keys are cut into blocks of B tokens. A query is compared with the mean of each block, and
attends to the keys of the k blocks that it is most like, as a token of a mixture of experts is sent
to the experts of the largest score. One of the k is always its own block, in which it sees the keys
up to itself; the others lie before it, so they are complete. With β(i) the block of token i,

$$s_{ib} = q_i \cdot \frac{1}{B} \sum_{j \in b} k_j,\qquad \mathcal{B}_i = \{\beta(i)\} \cup
\mathrm{top}_{k-1} \{s_{ib} : b < \beta(i)\}$$
$$o_i = \sum_{j \in S_i} \mathrm{softmax}_{j \in S_i}\!\left(\frac{q_i \cdot k_j}{\sqrt d}\right)
v_j,\qquad S_i = \{j \le i : \beta(j) \in \mathcal{B}_i\}$$

Each head chooses for itself. The choice has no gradient; it improves because the keys whose mean is
compared are the keys that are attended to. With k = 1 it is attention inside blocks. Where the
text has at most k blocks it is full causal attention, so a model can be trained with the one and
go on with the other: both have the same parameters.

Cost: $2 h n (n / B) d$ FLOPs to compare with the means, still quadratic, and $2 h n k B (d + e)$
for the pairs. Largest of all are the scores of the chosen blocks, h n k B.

``naive``    the equation, dense; what was chosen is the mask.
``blocked``  the queries that chose a block stand together, in tiles, and each tile is compared
             with the keys of its block. The k parts of a query, each a softmax of its own, are
             weighed by the sums of their exponentials, which gives one softmax over all their keys.
             On a CPU PyTorch's kernel computes blocks of 64 or more, first derivatives only.

The paper's letters: B, k, $g_i$ is whether block i is chosen.

Common mistakes: to choose k blocks beside the own one; to compare with the mean of the own block,
which holds keys of the future. The scores s are not divided by √d, which changes no choice.

Departures.
- causal alone, as in the paper; of two blocks with the same score the earlier is chosen
- blocks count real tokens, so padding does not move them
- decoding chooses blocks as training does, where the released code decodes with full attention

Gives up. A query sees nothing of the blocks that it did not choose.

Lu, Jiang, Liu, Du, Jiang, Hong, Liu, He, Yuan, Wang, Huang, Yuan, Xu, Xu, Lai, Chen, Zheng, Yan,
Su, Wu, Zhang, Yang, Zhou, Zhang, Qiu. MoBA: Mixture of Block Attention for Long-Context LLMs. 2025,
arXiv:2502.13189, section 2.2 and algorithm 1.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card, letters
from attnlab.core.chosen_blocks import NOTHING, by_tiles, largest, numbers, packed, seen
from attnlab.core.chunks import cut
from attnlab.core.forms import form
from attnlab.core.heads import Heads, queries_per_key_head
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.positions import Rotation
from attnlab.core.probe import note
from attnlab.core.selection import of_blocks
from attnlab.core.shapes import (
    GroupKeys,
    GroupValues,
    KeyPadding,
    NewTokens,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    checked,
)
from attnlab.core.softmax import masked_softmax

Chosen = Int[Tensor, "b h n k"]
"""The blocks of each query, its own first; −1 where there are fewer than k."""


@dataclass(frozen=True, kw_only=True)
class MoBAOptions(Options):
    """``block``   B, how many tokens a block has.
    ``chosen``  k, how many blocks a query attends to, its own included.
    """

    block: Size = 512
    chosen: Size = 3

    def fitted(self, m: int) -> int:
        """B, or m where the whole text is shorter."""
        return min(self.block, m)


# ---- naive


@form
def naive(
    q: Queries, k: GroupKeys, v: GroupValues, *,
    padding: KeyPadding = None, options: MoBAOptions = MoBAOptions(),
) -> Outputs:  # fmt: skip
    """The equation, dense. The queries are the last n of m positions; what is padding gets zeros
    and is in no block."""
    repeats = queries_per_key_head(q, k)
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    at = numbers(k, padding)
    chosen = note("blocks", choose(q, packed(k, padding), at, padding, options))
    allowed = note("mask", seen(chosen, at, padding, options.fitted(k.shape[2])))
    scores = note("scores", q @ k.mT * q.shape[-1] ** -0.5)
    return note("weights", masked_softmax(scores, allowed)) @ v


def choose(
    q: Tensor, k: Tensor, at: Tensor, padding: Tensor | None, options: MoBAOptions
) -> Chosen:
    """The own block, and the earlier ones of the largest scores. ``k`` is packed."""
    n, m = q.shape[2], k.shape[2]
    block = options.fitted(m)
    means = cut(k, block).mean(dim=-2)
    own = at[:, None, m - n :, None] // block
    number = torch.arange(means.shape[2], device=q.device)
    scores = (q.detach() @ means.detach().mT).masked_fill(number >= own, -torch.inf)
    others = largest(scores, min(options.chosen, means.shape[2]) - 1)
    chosen = torch.cat((own.expand(*q.shape[:3], 1), others), dim=-1)
    if padding is not None:
        chosen = chosen.masked_fill(~padding[:, None, m - n :, None], NOTHING)
    note("selection", lambda: of_blocks(scores, chosen, number == own, at // block, padding))
    return chosen


# ---- blocked


@form
def blocked(
    q: Queries, k: GroupKeys, v: GroupValues, *,
    padding: KeyPadding = None, options: MoBAOptions = MoBAOptions(),
) -> Outputs:  # fmt: skip
    """The chosen pairs alone, in tiles of queries that chose the same block."""
    repeats = queries_per_key_head(q, k)
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    at, keys, k, v = numbers(k, padding), k, packed(k, padding), packed(v, padding)
    chosen = note("blocks", choose(q, k, at, padding, options))
    block = options.fitted(k.shape[2])
    mask = partial(seen, chosen, at, padding, block)
    note("mask", mask)
    note("weights", lambda: masked_softmax(q @ keys.mT * q.shape[-1] ** -0.5, mask()))
    k, v = cut(k, block), cut(v, block)
    return by_tiles(q, k, v, at[:, None, at.shape[1] - q.shape[2] :], chosen)


FORMS = {"naive": naive, "blocked": blocked}

# ---- module


class MoBAttention(Layer):
    """Multi-head attention to chosen blocks, causal: (b, n, dim) → (b, n, dim).

    ``positions`` turns keys before their means are taken. ``step`` decodes; its state is all keys
    and values so far.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        kv_heads: Size | None = None, form: Literal["naive", "blocked"] = "blocked",
        bias: bool = False, options: MoBAOptions = MoBAOptions(),
        positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, kv_heads=kv_heads, bias=bias, positions=positions)
        self.heads.check_positions(causal=True)
        self.causal, self.form, self.options = True, form, options

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        """What each token takes from the others: (b, n, dim) → (b, n, dim).

        ``padding`` (b, n) is True at real tokens.
        """
        q, k, v = self.heads.project(x, padding=padding)
        return self.heads.merge(FORMS[self.form](q, k, v, padding=padding, options=self.options))

    @checked
    def step(
        self, x: NewTokens, state: KeyValueCache | None = None
    ) -> tuple[NewTokens, KeyValueCache]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        q, k, v = self.heads.project(x, start=0 if state is None else state.length)
        state = KeyValueCache.extended(state, k, v)
        keys, values = note("keys", state.keys), note("values", state.values)
        return self.heads.merge(FORMS[self.form](q, keys, values, options=self.options)), state


# ---- card

h, n, d, e, B, k = letters("h n d e B k")
comparing = 2 * h * n * (n / B) * d  # with the means

CARD = Card(
    __doc__,
    name="moba",
    family="learned",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="a query chooses among the blocks before its own",
    options=MoBAOptions,
    letters={"B": "block", "k": "chosen"},
    time={
        "naive": 2 * h * n**2 * (d + e) + comparing,
        "blocked": 2 * h * n * (k + 1) * B * (d + e) + comparing,
    },
    memory={
        "naive": h * n**2,
        "blocked": h * n * ((k + 1) * (B + d + e) + n / B),
    },
    notes={
        "naive": ("selection", "blocks", "mask", "scores", "weights"),
        "blocked": ("selection", "blocks", "mask", "weights"),
    },
    variants=(
        {"block": 4, "chosen": 3},
        {"block": 3, "chosen": 1, "kv_heads": 2},
        {"block": 2, "chosen": 64},
    ),
    build=MoBAttention,
    aliases=("mixture_of_block_attention", "block_attention"),
    small_options={"block": 4},
)
