r"""LongT5: transient global attention. A window, and a summary of every block of the sequence.

A window of radius r is cheap, but has no distant keys. ETC (Ainslie et al. 2020) adds global tokens
with inputs of their own; LongT5 computes global tokens from the sequence in every layer and does
not pass them on ("transient"). The sequence is cut into G blocks of c tokens, and the global token
of block g is

$$x_g = \mathrm{RMSNorm}\Bigl(\sum_{j \in \text{block } g} x_j\Bigr)$$

with a learned gain. Keys and values of tokens and global tokens come from the same projections. A
query has one softmax over the tokens within r of it *and* all G global tokens:

$$s_{ij} = q_i \cdot k_j + \beta_{j - i}\quad(|i - j| \le r),\qquad
s_{ig} = q_i \cdot k_g + \gamma_{g - \text{block}(i)}$$

β and γ are T5's relative biases, a number per head and bucket of distances (in tokens, in blocks).
As in T5 the scores are not divided by $\sqrt d$.

The global tokens are keys and values only; they have no queries. Compared with a local layer, this
layer has one more table of biases, and the gain.

Time: $2 h n (2r + 1 + n/c)(d + e)$. The window is linear in n, but there are n/c global tokens, so
the order is n²/c, that of full attention divided by the size of a block.

``naive``    the equations, dense: n × (n + G) scores.
``blocked``  the sequence in pieces of r + 1 queries: each is compared with its own piece, the one
             before and the one after, and with the globals. No n × n tensor.

The paper's letters: its $k$ (block size, 16) is c, ``block``; $r$ (127) is ``radius``.

Tokens after the last full block join that block: they are summed into its global token, and their
block distance counts from it. A sequence shorter than a block has no global token. Both use
the length of the sequence up to its last valid token, so padding does not change the output; padded
tokens are not summed.

Never causal: the sum of a block holds tokens that come after some of its queries.

Without a mask, the first and the last piece of Hugging Face's layer attend to zeros beyond the
ends; with a mask of ones it equals this one.

Departures.
- blocks and global tokens use a sequence's length without its padding
- each layer has its own two tables of biases. T5 shares those of the first layer with all others;
  tie them for that.
- no dropout on the weights

Gives up. A query attends to far tokens only as sums of whole blocks.

Guo, Ainslie, Uthus, Ontañón, Ni, Sung, Yang. LongT5: Efficient Text-To-Text Transformer for Long
Sequences. Findings of NAACL 2022, arXiv:2112.07916, section 3.1. Buckets: Raffel et al. Exploring
the Limits of Transfer Learning with a Unified Text-to-Text Transformer. JMLR 2020,
arXiv:1910.10683, section 2.1.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Count, Options, Size
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
from attnlab.mechanisms.fixed.long_t5.blocks import (
    Biases,
    GlobalKeys,
    GlobalValues,
    blocks_of,
    buckets_of,
    check_buckets,
    lengths,
    sums,
)


@dataclass(frozen=True, kw_only=True)
class LongT5Options(Options):
    """The window and the blocks.

    ``radius``    how many tokens to either side a query attends to.
    ``block``     the paper's k: how many tokens a global token sums.
    ``farthest``  the distance from which on all share one bucket of biases.
    """

    radius: Count = 127
    block: Size = 16
    farthest: Size = 128


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, global_k: GlobalKeys, global_v: GlobalValues,
    local_table: Biases, global_table: Biases, *,
    padding: TokenPadding = None, options: LongT5Options = LongT5Options(),
) -> Outputs:  # fmt: skip
    """The equations (Guo et al., section 3.1), one row of n + G scores per query.

    Of the global keys and values the first ⌊length / block⌋ of each sequence are used.
    """
    b, _, n, _ = q.shape
    i = torch.arange(n, device=q.device)
    distance = i - i[:, None]
    near = q @ k.mT + _bias(local_table, distance, options.farthest)
    is_near = (distance.abs() <= options.radius).expand(b, 1, n, n)
    if padding is not None:
        is_near = is_near & padding[:, None, None, :]
    far, exists = _global_scores(q, global_k, global_table, padding, options)
    allowed = torch.cat([is_near, exists.expand(b, 1, n, -1)], dim=-1)
    scores = note("scores", torch.cat([near, far], dim=-1))
    weights = note("weights", masked_softmax(scores, allowed))
    return weights @ torch.cat([v, global_v], dim=2)


def _bias(table: Tensor, distance: Tensor, farthest: int) -> Tensor:
    """The bias of each head for each of the distances: (h, …)."""
    return table[:, buckets_of(distance, table.shape[1], farthest)]


def _global_scores(
    q: Tensor, global_k: Tensor, table: Tensor, padding: Tensor | None, options: LongT5Options
) -> tuple[Tensor, Tensor]:
    """Scores (b, h, n, globals) of the global tokens, and which of them exist
    (b or 1, 1, 1, globals)."""
    n, count = q.shape[2], global_k.shape[2]
    block_of, exists = blocks_of(n, options.block, count, lengths(padding, n, q.device))
    distance = torch.arange(count, device=q.device) - block_of[..., None]
    bias = _bias(table, distance, options.farthest)  # (h, b or 1, n, globals)
    return q @ global_k.mT + bias.transpose(0, 1), exists[:, None, None]


# ---- blocked


@form(autocast=True)
def blocked(
    q: Queries, k: SelfKeys, v: SelfValues, global_k: GlobalKeys, global_v: GlobalValues,
    local_table: Biases, global_table: Biases, *,
    padding: TokenPadding = None, options: LongT5Options = LongT5Options(),
) -> Outputs:  # fmt: skip
    """Pieces of radius + 1 queries against three pieces of keys, and against the globals.

    One softmax over both; half precisions are summed in float32.
    """
    b, _, n, _ = q.shape
    piece = min(options.radius + 1, n)
    places = torch.arange(3 * piece, device=q.device)
    distance = places - places[piece : 2 * piece, None]
    near = _pieces(q, piece) @ _around(k, piece)
    near = near + _bias(local_table, distance, options.farthest)[:, None]
    valid = torch.ones(1, n, dtype=torch.bool, device=q.device) if padding is None else padding
    valid = _around(valid[:, None, :, None], piece)  # nothing is valid beyond the ends
    is_near = (distance.abs() <= options.radius) & valid
    far, exists = _global_scores(q, global_k, global_table, padding, options)
    far = _pieces(far, piece)
    shape = (b, 1, *near.shape[2:4], -1)
    allowed = torch.cat([is_near.expand(shape), exists[..., None, :].expand(shape)], dim=-1)
    weights = masked_softmax(torch.cat([near, far], dim=-1), allowed)
    of_near, of_far = weights.split([3 * piece, global_k.shape[2]], dim=-1)
    out = (of_near @ _around(v, piece).mT).flatten(2, 3)
    out = out + of_far.flatten(2, 3) @ global_v  # all pieces at once: no copy for each
    return out[:, :, :n]


def _pieces(x: Tensor, piece: int) -> Tensor:
    """(b, h, n, d) → (b, h, pieces, piece, d), zeros at the end."""
    return F.pad(x, (0, 0, 0, -x.shape[2] % piece)).unflatten(2, (-1, piece))


def _around(x: Tensor, piece: int) -> Tensor:
    """(b, h, n, d) → (b, h, pieces, d, 3 · piece): each piece, the one before, the one after."""
    return F.pad(x, (0, 0, piece, piece + -x.shape[2] % piece)).unfold(2, 3 * piece, piece)


FORMS = {"naive": naive, "blocked": blocked}

# ---- module


class LongT5Attention(Layer):
    """Multi-head transient global attention: (b, n, dim) → (b, n, dim). Never causal."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, options: LongT5Options = LongT5Options(), *,
        buckets: Size = 32, form: Literal["naive", "blocked"] = "blocked",
    ) -> None:  # fmt: skip
        super().__init__()
        check_buckets(buckets, options.farthest)
        self.heads = Heads(dim, heads)
        self.options, self.form = options, form
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.local_table = nn.Parameter(torch.zeros(heads, buckets))
        self.global_table = nn.Parameter(torch.zeros(heads, buckets))

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        n, x = x.shape[1], zero_nonfinite_padding(x, padding)
        self.heads.check_input(x, "x")
        summaries = self.norm(sums(x, self.options.block, padding))
        q, k, v = self.heads.project(x, torch.cat([x, summaries.to(x.dtype)], dim=1))
        tensors = (q, k[:, :, :n], v[:, :, :n], k[:, :, n:], v[:, :, n:])
        tables = (self.local_table, self.global_table)
        out = FORMS[self.form](*tensors, *tables, padding=padding, options=self.options)
        return self.heads.merge(out)


# ---- card

h, n, d, e, c, r = letters("h n d e c r")

CARD = Card(
    __doc__,
    name="long_t5",
    family="fixed",
    role="attend",
    forms=FORMS,
    causal="never",
    causal_reason="a global token is the sum of a whole block, and holds tokens that come after "
    "some of the queries that attend to it (LongT5 decodes with full attention)",
    options=LongT5Options,
    letters={"c": "block", "r": "radius"},
    positions_reason="its two tables of biases tell the distances, and its global tokens are "
    "sums of blocks, which stand at no one position",
    time={
        "naive": 2 * h * n * (n + n / c) * (d + e),
        "blocked": 2 * h * n * (3 * (r + 1) + n / c) * (d + e),
    },
    memory={"naive": h * n * (n + n / c), "blocked": h * n * (3 * (r + 1) + n / c)},
    notes={"naive": ("scores", "weights")},
    variants=(
        {"radius": 5, "block": 3},
        {"radius": 2, "block": 7},
        {"radius": 1, "block": 1},
        {"radius": 0, "block": 5, "buckets": 8, "farthest": 11},
    ),
    build=LongT5Attention,
    small_options={"radius": 3, "block": 6},
)
