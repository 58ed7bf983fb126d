r"""Unlimiformer: cross-attention to an input of any length, by search among the encoder's states.

The decoder of an encoder-decoder attends to the encoder's output, in every layer and head. The
encoder reads a window of L tokens; an input of any length can be read window by window, and the
result is m states, more than the decoder can attend to at once. In Unlimiformer each query attends
to the k states with the largest scores alone. Nothing is trained: a trained model can be given the
search.

Each head of each layer has keys of its own, so one would think that each needs an index of its
own. But the score of a query q (width d, as the head computes it) and a state $s_j$ is

$$q \cdot (W_k s_j + b_k) = (W_k^\top q) \cdot s_j + q \cdot b_k$$

and q · b_k is the same for all j: it changes neither the order nor the softmax. So one index of
the states serves all heads of all layers, each of which searches with its own $W_k^\top q$:

$$o_i = \sum_{j \in N_i} \mathrm{softmax}_{j \in N_i}\!\left(\frac{q_i \cdot W_k s_j}{\sqrt
d}\right) (W_v s_j + b_v), \qquad N_i = \operatorname*{top\text{-}k}_{j}\;(W_k^\top q_i) \cdot s_j$$

It holds m·dim numbers, where an index of keys for each head and layer would hold as many for each
layer, and twice as many with the values. With k ≥ m it is ordinary cross-attention.

Cost: an exact search compares vectors of width dim, not d: $2 h\,n\,(m + 2k)\,\mathrm{dim}$
FLOPs, and an approximate one fewer. What was fetched is summed before W_v is applied, so no values
are computed of states that nobody fetched.

``naive``      keys and values of all states, and the n × m weights, in which the k are marked.
``retrieved``  the search in the states, one for all heads; k states for each query.

``windows`` and ``encode`` (``chunks``) read a long input: overlapping windows, of each of which the
middle is kept. ``attnlab.models.unlimited.retrieving`` gives the search to a whole model.

The paper's letters: $h_e$ is our $s_j$, $h_d W_q$ is q.

The keys must not depend on positions: a rotation $R_j W_k s_j$ cannot be moved to the query.

Other implementations. In the authors' code the first token is generated without the search, and a
search that finds nothing fetches state 0. Its variant for LLaMA ignores half of each head and all
rotations in the search.

Departures.
- the search is exact unless an approximate index is given. Scores are those of the search itself,
  which are equal to the products with keys.
- fetched states are summed before their values are computed
- without a context the sequence searches itself

Gives up. Each query attends only to the k states of the input with the largest scores.

Bertsch, Alon, Neubig, Gormley. Unlimiformer: Long-Range Transformers with Unlimited Length Input.
NeurIPS 2023, arXiv:2305.01625, section 2.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.precision import no_autocast, upcast
from attnlab.core.probe import note
from attnlab.core.search import NOTHING, Search, nearest
from attnlab.core.shapes import Context, KeyPadding, Outputs, Queries, TokenPadding, Tokens, checked
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.learned.unlimiformer.chunks import Window, encode, windows

__all__ = [
    "CARD", "FORMS", "Projected", "Unlimiformer", "UnlimiformerOptions", "Window", "encode",
    "naive", "retrieved", "windows",
]  # fmt: skip

States = Float[Tensor, "b m dim"]
KeyMap = Float[Tensor, "h d dim"]
ValueMap = Float[Tensor, "h e dim"]
ValueBias = Float[Tensor, "h e"] | None


@dataclass(frozen=True, kw_only=True)
class UnlimiformerOptions(Options):
    """The search.

    ``neighbours``  how many states each query fetches; all, where there are fewer.
    ``search``      exact, or approximate, which needs faiss.
    """

    neighbours: Size = 64
    search: Search = "exact"


# ---- naive


@form
def naive(
    q: Queries, states: States, key_map: KeyMap, value_map: ValueMap, *,
    value_bias: ValueBias = None, padding: KeyPadding = None, scale: float | None = None,
    options: UnlimiformerOptions = UnlimiformerOptions(),
) -> Outputs:  # fmt: skip
    """The equation (Bertsch et al., section 2.3), dense; key_map and value_map are W_k and W_v of
    each head."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    keys = states[:, None] @ key_map.mT
    products = q @ keys.mT
    real = torch.ones_like(products, dtype=torch.bool)
    if padding is not None:
        real = real & padding[:, None, None]
    best = products.detach().masked_fill(~real, -torch.inf)
    found = best.topk(min(options.neighbours, best.shape[-1]), dim=-1).indices
    chosen = torch.zeros_like(real).scatter(-1, found, True) & real
    scores = note("scores", products * scale)
    weights = note("weights", masked_softmax(scores, chosen))
    note_fetched(found.where(chosen.gather(-1, found), NOTHING), weights.gather(-1, found))
    values = states[:, None] @ value_map.mT
    if value_bias is not None:
        values = values + value_bias[:, None]
    return weights @ values


def note_fetched(found: Tensor, weights: Tensor) -> None:
    """Note which states the queries have fetched, and with what weights."""
    note("neighbours", found)
    note("neighbour_weights", weights)


# ---- retrieved


@checked
def retrieved(
    q: Queries, states: States, key_map: KeyMap, value_map: ValueMap, *,
    value_bias: ValueBias = None, padding: KeyPadding = None, scale: float | None = None,
    options: UnlimiformerOptions = UnlimiformerOptions(),
) -> Outputs:  # fmt: skip
    """The queries of all heads, moved to the width of the states, search these."""
    moved = in_states(q, key_map)
    found = found_states(moved, states, padding, options)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out = weighed(moved, found, states, value_map, value_bias=value_bias, scale=scale)
    return out.to(q.dtype)


def in_states(q: Queries, key_map: KeyMap) -> Float[Tensor, "b h n dim"]:
    """W_kᵀ q: what a query searches the states with."""
    with no_autocast(q.device):
        return upcast(q) @ upcast(key_map)


def found_states(
    moved: Float[Tensor, "b h n dim"], states: States, padding: KeyPadding,
    options: UnlimiformerOptions,
) -> Int[Tensor, "b h n k"]:  # fmt: skip
    """The states with the largest scores, by one search for all heads."""
    queries = moved.flatten(1, 2)[:, None]
    keys, k = upcast(states)[:, None], options.neighbours
    found = nearest(queries, keys, k, seen=padding, search=options.search)
    return found[:, 0].unflatten(1, moved.shape[1:3])


def weighed(
    moved: Float[Tensor, "b h n dim"], found: Int[Tensor, "b h n k"], states: States,
    value_map: ValueMap, *, value_bias: ValueBias, scale: float,
) -> Outputs:  # fmt: skip
    """The values of the states that were ``found``, weighed."""
    there = found != NOTHING
    sequence = torch.arange(len(states), device=states.device)[:, None, None, None]
    fetched = upcast(states)[sequence, found.clamp(min=0)]  # (b, h, n, k, dim)
    scores = (fetched @ moved[..., None]).squeeze(-1) * scale
    weights = masked_softmax(scores, there)
    note_fetched(found, weights)
    out = (weights[..., None, :] @ fetched).squeeze(-2) @ upcast(value_map).mT
    if value_bias is not None:
        out = out + weights.sum(-1, keepdim=True) * upcast(value_bias)[:, None]
    return out


FORMS = {"naive": naive, "retrieved": retrieved}

# ---- module


class Projected(NamedTuple):
    """A layer's queries and maps, as the forms take them; the value bias is (h, e) or None."""

    q: Queries
    key_map: KeyMap
    value_map: ValueMap
    value_bias: Tensor | None

    @classmethod
    def of(
        cls, x: Tensor, query: nn.Linear, key: nn.Linear, value: nn.Linear, heads: int
    ) -> "Projected":
        """Projects x (b, n, dim) by the projections of all heads, which stand side by side."""
        q = query(x).unflatten(-1, (heads, -1)).transpose(1, 2)
        keys, values = (each.weight.unflatten(0, (heads, -1)) for each in (key, value))
        bias = None if value.bias is None else value.bias.unflatten(0, (heads, -1))
        return cls(q, keys, values, bias)


class Unlimiformer(Layer):
    """Cross-attention by search: (b, n, dim) and a context (b, m, dim) of any m → (b, n, dim).

    Without a context the sequence searches itself, past and future. ``projections`` are those of a
    layer of full attention; values are projected after they are summed.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "retrieved"] = "retrieved",
        options: UnlimiformerOptions = UnlimiformerOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.projections = Heads(dim, heads)
        self.form, self.options = form, options

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *,
        context: Context = None, context_padding: KeyPadding = None,
    ) -> Tokens:  # fmt: skip
        """``padding`` (b, n) is that of x itself, ``context_padding`` (b, m) that of a context."""
        self.projections.check_input(x, "x")
        states, real = (x, padding) if context is None else (context, context_padding)
        if context is None and context_padding is not None:
            raise ValueError("context_padding needs the context that it belongs to")
        self.projections.check_input(states, "context")
        states = zero_nonfinite_padding(states, real)
        own = self.projections
        x = zero_nonfinite_padding(x, padding)
        q, keys, values, bias = Projected.of(x, own.query, own.key, own.value, own.heads)
        attend = partial(FORMS[self.form], value_bias=bias, padding=real, options=self.options)
        return own.merge(attend(q, states, keys, values))


# ---- card

h, n, m, d, e, k, dim = letters("h n m d e k dim")

CARD = Card(
    __doc__,
    name="unlimiformer",
    family="learned",
    role="attend",
    forms=FORMS,
    causal="never",
    causal_reason="it is cross-attention: the input that it searches is read as a whole",
    options=UnlimiformerOptions,
    letters={"k": "neighbours"},
    positions_reason="it makes no keys: the query is multiplied with the map of the keys, so "
    "that one index serves all heads, and a rotation between the two would be "
    "another map for each position",
    time={
        "naive": 2 * h * (n * m + m * dim) * (d + e),
        "retrieved": 2 * h * n * dim * (m + 2 * k + d + e),
    },
    memory={"naive": h * m * (n + d + e), "retrieved": h * n * (m + k * dim)},
    notes={
        "naive": ("scores", "weights", "neighbours", "neighbour_weights"),
        "retrieved": ("neighbours", "neighbour_weights"),
    },
    variants=({"neighbours": 2},),
    build=Unlimiformer,
    small_options={"neighbours": 4},
)
