r"""DeepSeek sparse attention: a small indexer reads all tokens, attention reads those it chose.

Full attention compares a query with every key in every head. Here a cheaper comparison comes first:
an indexer with a few narrow heads gives each earlier token one number, and all heads of attention
read the k tokens with the largest numbers, the same for each of them:

$$I_{ij} = \sum_a w_{ia}\, \mathrm{relu}(\tilde q_{ia} \cdot \tilde k_j),\qquad S_i =
\mathrm{top}_k \{I_{ij} : j \le i\},\qquad
o_i = \sum_{j \in S_i} \mathrm{softmax}_{j \in S_i}\!\left(\frac{q_i \cdot k_j}{\sqrt d}\right)
v_j$$

$\tilde q_{ia}$ are queries of the indexer's heads, $\tilde k_j$ is one key for all of them (a
linear map of the token and a LayerNorm), and $w_{ia}$ are weights of the token that asks, of either
sign. With k ≥ n it is full causal attention.

A choice has no gradient, so the indexer learns from a loss of its own: its numbers, as a softmax,
are to be the weights of attention, summed over the heads and divided by their sum:

$$p_{ij} = \frac{1}{h} \sum_{\text{heads}} \mathrm{softmax}_j\!\left(\frac{q_i \cdot
k_j}{\sqrt d}\right),\qquad L = \frac1n \sum_i \mathrm{KL}\big(p_i \,\|\, \mathrm{softmax}_j
(I_{ij})\big)$$

over all tokens while the indexer warms up (``aligned="all"``), afterwards over those in $S_i$. What
the indexer reads is detached, and so is p: the loss of the model does not reach the indexer, and L
reaches nothing else. Here the gradient of L is added in the layer's backward pass. With k = 1 the
loss over $S_i$ is 0.

Cost: $2 h n k (d + e)$ FLOPs for the chosen pairs, and $2 n^2 H c$ for the indexer, which compares
all pairs in H heads of width c. So the whole is still quadratic, with a smaller factor: in
DeepSeek-V3.2 (H = 64, c = 128) a pair costs the indexer 16,384 FLOPs, and its latent attention
278,528. Decoding keeps c more numbers a token.

``naive``     the equation, dense; what was chosen is the mask.
``gathered``  each query fetches its k keys and values.

DeepSeek-V4 (2026, arXiv:2606.19348) chooses 512 compressed entries, beside the last 128 tokens.
Each mixes the rows of 8 tokens, by a softmax for each channel, and is both key and value.

The paper's letters: $q^I$, $k^I$ and $w^I$ are $\tilde q$, $\tilde k$ and w; H is its $H^I$.

Common mistakes: choosing before the causal mask; a mask after the softmax; a rotation of the
indexer in another layout than its weights were trained with. In DeepSeek's release the indexer
turns halves and the attention neighbouring coordinates: with one layout for both, nothing is wrong
up to k tokens, and beyond them the wrong tokens are read.

Departures.
- keys and values are of each head or group; DeepSeek's are of multi-head latent attention
- of two tokens with the same number the earlier is chosen; numbers are divided by $\sqrt{H c}$, as
  in the released code, which changes no choice

Gives up. A query sees nothing of the tokens that the indexer did not choose.

DeepSeek-AI. DeepSeek-V3.2: Pushing the Frontier of Open Large Language Models. 2025,
arXiv:2512.02556.
"""

from typing import Any, Literal, NamedTuple

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card, letters
from attnlab.core.carried import check_carried
from attnlab.core.forms import form
from attnlab.core.heads import Heads, queries_per_key_head, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.positions import Rotation, Turn
from attnlab.core.precision import no_autocast, upcast_together
from attnlab.core.probe import note
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
from attnlab.mechanisms.learned.deepseek_sparse.indexer import (
    NOTHING,
    Beside,
    DeepSeekSparseOptions,
    IndexKeys,
    IndexQueries,
    IndexScores,
    IndexWeights,
    choose,
    in_pieces,
    index_loss,
    listed,
    past,
    products,
    spread,
    taken,
)

# ---- naive


@form
def naive(
    q: Queries, k: GroupKeys, v: GroupValues, index: IndexScores, *,
    padding: KeyPadding = None, options: DeepSeekSparseOptions = DeepSeekSparseOptions(),
) -> Outputs:  # fmt: skip
    """The equation, dense. ``index`` is I of each pair (``index_scores``); the queries are the
    last n of m positions."""
    repeats = queries_per_key_head(q, k)
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    mask = choose(index, past(index, padding), options)
    note("chosen", lambda: listed(mask, options))
    mask = note("mask", mask[:, None])
    scores = note("scores", q @ k.mT * q.shape[-1] ** -0.5)
    return note("weights", masked_softmax(scores, mask)) @ v


def index_scores(q: IndexQueries, k: IndexKeys, w: IndexWeights) -> IndexScores:
    """I of each pair, in float32 at least, as it chooses."""
    with no_autocast(q.device):
        q, k, w = upcast_together(q, k, w)
        scores = (torch.relu(q @ k[:, None].mT) * w.mT[..., None]).sum(1)
        return note("index_scores", scores * (q.shape[1] * q.shape[-1]) ** -0.5)


# ---- gathered


@form
def gathered(
    q: Queries, k: GroupKeys, v: GroupValues, index: IndexScores, *,
    padding: KeyPadding = None, options: DeepSeekSparseOptions = DeepSeekSparseOptions(),
) -> Outputs:  # fmt: skip
    """The chosen keys and values of each query, side by side."""
    if pieces := in_pieces(q, k, v, index, padding):
        return torch.cat(
            [gathered(*some, padding=real, options=options) for *some, real in pieces], 2
        )
    mask = choose(index, past(index, padding), options)
    note("mask", lambda: mask[:, None])
    chosen = note("chosen", listed(mask, options))
    weights = masked_softmax(products(q, k, chosen), (chosen != NOTHING)[:, None])
    note("weights", lambda: spread(weights, chosen, k.shape[2]))
    grouped = weights.unflatten(1, (v.shape[1], -1))
    return torch.einsum("bgrnk,bnkge->bgrne", grouped, taken(v, chosen)).flatten(1, 2)


FORMS = {"naive": naive, "gathered": gathered}

# ---- module


class State(NamedTuple):
    """Keys and values so far, and the indexer's keys."""

    keys: Float[Tensor, "b g t d"]
    values: Float[Tensor, "b g t e"]
    index_keys: Float[Tensor, "b t c"]


class DeepSeekSparseAttention(Layer):
    """Multi-head attention to the tokens that an indexer chose, causal: (b, n, dim) → (b, n, dim).

    In training mode a backward pass through its output is one of ``index_loss`` as well, with the
    factor 1, whatever the loss of the model is multiplied by. ``positions`` turns queries and keys,
    those of the indexer too.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        kv_heads: Size | None = None, form: Literal["naive", "gathered"] = "gathered",
        bias: bool = False, options: DeepSeekSparseOptions = DeepSeekSparseOptions(),
        positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, kv_heads=kv_heads, bias=bias, positions=positions)
        self.heads.check_positions(causal=True)
        self.causal, self.form, self.options = True, form, options
        width = self.heads.head_dim if options.index_dim is None else options.index_dim
        self.index_positions = None if positions is None else positions.of_width(width)
        self.index_query = nn.Linear(dim, options.index_heads * width, bias=False)
        self.index_key = nn.Linear(dim, width, bias=False)
        self.index_norm = nn.LayerNorm(width)
        self.index_weight = nn.Linear(dim, options.index_heads, bias=False)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        """What each token takes from the others: (b, n, dim) → (b, n, dim)."""
        q, k, v = self.heads.project(x, padding=padding)
        index = index_scores(*self.indexed(zero_nonfinite_padding(x, padding), padding))
        given: dict[str, Any] = {"padding": padding, "options": self.options}
        out = FORMS[self.form](q, k, v, index, **given)
        if torch.is_grad_enabled():
            out = Beside.apply(out, index_loss(q, k, index, **given))
        return self.heads.merge(out)

    def indexed(
        self, x: Tensor, padding: Tensor | None = None, start: int = 0
    ) -> tuple[IndexQueries, IndexKeys, IndexWeights]:
        """The indexer's queries, keys and weights, of tokens that are detached."""
        x = x.detach()
        width = self.index_key.out_features
        q = self.heads.split(self.index_query(x), width)
        k = self.index_norm(self.index_key(x))[:, None]
        if turn := Turn.of(self.index_positions, x, padding, start=start):
            q, k = turn.queries(q), turn.keys(k)
        return q, k[:, 0], self.index_weight(x)

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        past = None if state is None else KeyValueCache(state.keys, state.values)
        start = 0 if past is None else past.length
        q, k, v = self.heads.project(x, start=start)
        index_q, index_k, index_w = self.indexed(x, start=start)
        if state is not None:
            shape = (state.keys.shape[2], index_k.shape[-1])
            check_carried({"index_keys": (state.index_keys, shape)}, len(x), index_k)
            index_k = torch.cat((state.index_keys, index_k), dim=1)
        past = KeyValueCache.extended(past, k, v)
        keys, values = note("keys", past.keys), note("values", past.values)
        index = index_scores(index_q, index_k, index_w)
        out = FORMS[self.form](q, keys, values, index, options=self.options)
        return self.heads.merge(out), note("state", State(keys, values, index_k))


# ---- card

h, n, d, e, k, H, c = letters("h n d e k H c")


def indexing(chosen: DeepSeekSparseOptions) -> sympy.Expr:
    """FLOPs of the indexer's products: all pairs, in its narrow heads."""
    return 2 * H * n**2 * (d if chosen.index_dim is None else c)


def learning(chosen: DeepSeekSparseOptions) -> sympy.Expr:
    """FLOPs of the products that the indexer learns from."""
    return 2 * h * n * (n if chosen.aligned == "all" else k) * d


def largest(chosen: DeepSeekSparseOptions) -> sympy.Expr:
    """The indexer's products, what was fetched, and all weights where it learns them."""
    return (H + h if chosen.aligned == "all" else H) * n**2 + h * n * k * d


CARD = Card(
    __doc__,
    name="deepseek_sparse",
    family="learned",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="the indexer chooses among the tokens before",
    options=DeepSeekSparseOptions,
    letters={"k": "chosen", "H": "index_heads", "c": "index_dim"},
    time={
        "naive": lambda chosen: 2 * h * n**2 * (d + e) + indexing(chosen) + learning(chosen),
        "gathered": lambda chosen: 2 * h * n * k * (d + e) + indexing(chosen) + learning(chosen),
    },
    memory={"naive": (h + H) * n**2, "gathered": largest},
    notes={
        "naive": ("selection", "chosen", "mask", "scores", "weights"),
        "gathered": ("selection", "chosen", "mask", "weights"),
    },
    variants=(
        {"chosen": 3, "index_heads": 4, "index_dim": 6},
        {"chosen": 4, "kv_heads": 2, "index_heads": 3},
        {"chosen": 5, "aligned": "all"},
    ),
    build=DeepSeekSparseAttention,
    aliases=("dsa", "lightning_indexer"),
    small_options={"chosen": 8},
)
