r"""Sparse Sinkhorn attention: sort the blocks of keys, then attend block by block.

Attention inside of blocks of B tokens is cheap and sees nothing beyond the block. Here a small
network first decides which block of keys and values is brought to which block of queries. A choice
of one block for each, no block twice, is a permutation matrix; it has no gradient, so the network
gives a relaxed one, a matrix S of non-negative numbers whose rows and columns sum to one:

$$X'_i = \sum_{t \in \text{block } i} x_t,\qquad R = W_2 \max(W_1 X', 0),\qquad
S = \mathrm{Sinkhorn}\left(\frac{R + \varepsilon}{\tau}\right)$$

Sinkhorn's normalisation divides rows and columns of the exponential by their sums, in turn. With
noise ε from a Gumbel distribution (in training) and a low temperature τ, S comes near a
permutation. The sorted keys are mixtures of blocks, $\psi(K)_i = \sum_j S_{ij} K_j$, token by
token, and so are the values; a query attends to the sorted block at its own place,

$$o_i = \mathrm{softmax}\!\left(\frac{q_i\, \psi(K)_i^\top}{\sqrt d}\right) \psi(V)_i.$$

How its own block joins is ``join``. Three readings exist: "sorted" (the equation as printed: it
does not, unless S brings it there), "concat" (one softmax over both blocks, as in the package
sinkhorn-transformer) and "sum" (of a softmax over each, as in Long Range Arena).

**SortCut** (``budget``): all queries attend to the first ``budget`` sorted blocks, instead of each
to its own; the network learns to bring what matters to the front.

**Causal.** The network is told the sum of all tokens up to the first of the block, and S may bring
earlier blocks only, j < i. Sinkhorn's division of *columns* runs over later rows, which depend on
later tokens: the future leaks into the weights of the past. So a causal layer normalises rows only,
and S is a softmax of each row. ``sinkhorn`` with ``columns=True`` shows the leak. SortCut cannot be
causal, and is refused.

Cost: $2 h (d + e)\, n\, (n / B + 2 B)$ FLOPs. The first term sorts: it is quadratic, with one
number of S for each pair of blocks, and larger than attention itself from n = 2 B² on. Memory is
$O(n B)$ where weights are kept or, in a causal layer, masked, and $(n / B)^2$ for S.

``naive``    the equation: $T = S \otimes I_B$ sorts keys and values, one dense softmax.
``blocked``  blocks as an axis; PyTorch's ``scaled_dot_product_attention`` in each.

The paper's letters: $\psi_S$ sorts, $\psi_P$ sums blocks, $P$ is the network, $N_B$ our N, $b$ or
$\ell$ our B.

Readings. Blocks of padding alone are not sorted. The noise is drawn on the processor, from
PyTorch's generator.

Other implementations. The package takes its choice of a block from a softmax unless told otherwise,
and has in its non-causal layer the sorted *keys* as sorted values. Long Range Arena's code cuts
strided blocks in place of contiguous ones.

Departures.
- a causal layer normalises rows only: columns of Sinkhorn's normalisation leak the future
- the hidden layer of the sort network is shared by the heads
- any length: the last block is filled up with zeros, which a mixture of blocks holds too. A sorted
  key is masked where no block has a token at its place.
- SortCut may keep the own block beside the first sorted ones

Gives up. A query does not attend to most blocks, or only to mixtures of them.

Tay, Bahri, Yang, Metzler, Juan. Sparse Sinkhorn Attention. ICML 2020, arXiv:2002.11296, section 3.
"""

from typing import Literal

import torch
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.positions import Rotation
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
from attnlab.mechanisms.learned.sinkhorn.blocks import (
    ITERATIONS,
    Permutation,
    SinkhornOptions,
    beside,
    cut_up,
    own_seen,
    prepared,
    sdpa_in_blocks,
    seen_by_all,
    sorted_blocks,
    sorted_seen,
)
from attnlab.mechanisms.learned.sinkhorn.costs import keys_sorted, own_keys, sorting_pairs
from attnlab.mechanisms.learned.sinkhorn.sorting import (
    SortNetwork,
    gumbel,
    in_blocks,
    pooled,
    sinkhorn,
)

__all__ = [
    "CARD", "FORMS", "SinkhornAttention", "SinkhornOptions", "SortNetwork", "blocked", "gumbel",
    "naive", "pooled", "sinkhorn",
]  # fmt: skip

# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, permutation: Permutation, *,
    causal: bool = False, padding: TokenPadding = None,
    options: SinkhornOptions = SinkhornOptions(),
) -> Outputs:  # fmt: skip
    """The equation, dense. ``permutation`` is S for at least as many blocks as there are: row i
    says what is brought to the queries of block i. Causal: what is not before them is left out."""
    real, sort = prepared(permutation, q.shape[2], causal, padding, options)
    note("permutation", sort)
    block, n = real.shape[2], q.shape[2]
    q, k, v = (cut_up(x, block, padding).flatten(2, 3) for x in (q, k, v))
    into_place = torch.kron(sort.contiguous(), torch.eye(block, device=q.device, dtype=sort.dtype))
    at = torch.arange(q.shape[2], device=q.device)
    same = at[:, None] // block == at // block
    theirs = same if options.budget is None else at < options.budget * block
    brought = sorted_seen(real, causal, options).flatten(1)[:, None, None]
    own = (same & (at[:, None] >= at) if causal else same) & real.flatten(1)[:, None, None]
    scores = [_scores(q, into_place @ k), _scores(q, k)]
    pairs = [(theirs & brought).expand_as(scores[0]), own.expand_as(scores[1])]
    if options.join == "concat":
        both = masked_softmax(torch.cat(scores, dim=-1), torch.cat(pairs, dim=-1))
        of_sorted, of_own = both.chunk(2, dim=-1)
    else:
        of_sorted, of_own = map(masked_softmax, scores, pairs)
        of_own = of_own * (options.join == "sum")
    note("weights", lambda: (of_sorted @ into_place + of_own)[..., :n, :n])
    return (of_sorted @ (into_place @ v) + of_own @ v)[:, :, :n]


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT * q.shape[-1] ** -0.5


# ---- blocked


@form(autocast=True)
def blocked(
    q: Queries, k: SelfKeys, v: SelfValues, permutation: Permutation, *,
    causal: bool = False, padding: TokenPadding = None,
    options: SinkhornOptions = SinkhornOptions(),
) -> Outputs:  # fmt: skip
    """Block by block: sorted blocks are one product with S, and only pairs in them are compared."""
    n = q.shape[2]
    real, sort = prepared(permutation, n, causal, padding, options)
    note("permutation", sort)
    whole = padding is None and not causal and n % real.shape[2] == 0
    q, k, v = (cut_up(x, options.block, padding) for x in (q, k, v))
    brought = None if whole else sorted_seen(real, causal, options)[:, None, :, None]
    own = None if whole else own_seen(real, causal)[:, None]
    keys, values = sorted_blocks(sort, k, options), sorted_blocks(sort, v, options)
    theirs = seen_by_all(brought, q, options)
    if options.join == "concat":
        keys, values = torch.cat((keys, k), dim=3), torch.cat((values, v), dim=3)
        seen = None if theirs is None or own is None else beside(theirs, own)
        out = sdpa_in_blocks(q, keys, values, seen)
    else:
        out = sdpa_in_blocks(q, keys, values, theirs)
        out = out + sdpa_in_blocks(q, k, v, own) if options.join == "sum" else out
    out = out.flatten(2, 3)
    return out if out.shape[2] == n else out[:, :, :n]


FORMS = {"naive": naive, "blocked": blocked}

# ---- module


class SinkhornAttention(Layer):
    """Multi-head attention to a sorted block and to the own: (b, n, dim) → (b, n, dim).

    The sort network has dim·(dim + 1) + (dim + 1)·h·⌈max_len / block⌉ parameters. In training mode
    noise makes two calls differ.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, causal: bool = False,
        form: Literal["naive", "blocked"] = "blocked", options: SinkhornOptions = SinkhornOptions(),
        positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options.refuse_future(causal)
        if causal and options.iterations is not None:
            raise ValueError(
                "a causal layer normalises each row once and no columns, so "
                f"iterations={options.iterations} would change nothing; leave iterations out"
            )
        self.heads = Heads(dim, heads, positions=positions)
        self.heads.check_positions(causal=causal)
        self.network = SortNetwork(dim, heads, -(-options.max_len // options.block))
        self.causal, self.form, self.options = causal, form, options

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self.heads.project(x, padding=padding)
        out = FORMS[self.form](
            *(q, k, v, self.permutation(x, padding)),
            causal=self.causal, padding=padding, options=self.options,
        )  # fmt: skip
        return self.heads.merge(out)

    def permutation(self, x: Tokens, padding: TokenPadding = None) -> Permutation:
        """The matrix S of a sequence, for each head."""
        block = self.options.block
        scores = self.network(pooled(x, block, causal=self.causal, padding=padding))
        if self.options.noise and self.training:
            scores = scores + gumbel(tuple(scores.shape)).to(scores)
        allowed = None
        if self.causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).tril(-1)
        if padding is not None:
            real = in_blocks(padding, block).any(dim=-1)[:, None]
            pairs = real[..., None] & real[..., None, :]
            allowed = pairs if allowed is None else pairs & allowed
        return sinkhorn(
            scores / self.options.temperature, self.options.iterations or ITERATIONS,
            allowed=allowed, columns=not self.causal,
        )  # fmt: skip


# ---- card

h, n, d, e, B, c = letters("h n d e B c")


CARD = Card(
    __doc__,
    name="sinkhorn",
    family="learned",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=SinkhornOptions,
    letters={"B": "block", "c": "budget"},
    time={
        "naive": 6 * h * n**2 * (d + e),
        "blocked": lambda chosen: (
            2 * h * (d + e) * n * (sorting_pairs(chosen) + keys_sorted(chosen) + own_keys(chosen))
        ),
    },
    memory={
        "naive": 2 * h * n**2,
        "blocked": lambda chosen, causal=False: (
            h * (n / B) ** 2
            + h * n * ((d + e) / B + int(causal)) * (keys_sorted(chosen) + own_keys(chosen))
        ),
    },
    notes={"naive": ("permutation", "weights"), "blocked": ("permutation",)},
    variants=(
        {"block": 4, "max_len": 400},
        {"block": 4, "max_len": 400, "join": "sorted", "temperature": 0.3},
        {"block": 2, "max_len": 200, "join": "sum", "temperature": 0.5},
    ),
    build=SinkhornAttention,
    aliases=("sparse_sinkhorn",),
    small_options={"block": 4},
)
