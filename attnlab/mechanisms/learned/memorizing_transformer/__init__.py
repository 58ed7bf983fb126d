r"""Memorizing Transformer: attention to a few keys, found by search in a large memory.

Full attention compares a query with all keys of the past, which limits how much of a book a model
can read. Here a query attends to the tokens near it, and looks up the rest: one layer keeps the
past keys and values of its document, and each query fetches the k whose keys have the largest dot
product with it. Nothing is learned through the memory, so it may be as large as it can be searched.

A document is read in segments of c tokens. While segment s is read, a query i of it attends to the
cache of the w tokens before the segment and to its own segment up to itself, and separately to the
k nearest $N_i$ of the memory, the M positions that were stored before the segment:

$$o_i = (1 - g)\,\mathrm{softmax}_{j \in \text{local}}(\tau\, \hat q_i \cdot \hat k_j + b_{i-j})\,V
+ g\,\mathrm{softmax}_{j \in N_i}(\tau\, \hat q_i \cdot \hat k_j)\,V,
\qquad N_i = \operatorname*{top\text{-}k}_{j \in \text{memory}} \hat q_i \cdot \hat k_j$$

$\hat q, \hat k$ are of unit length, so that old and new keys, which the changing parameters of
training made, differ in direction only; the scale τ is learned for each head. The gate $g =
\sigma(b_g)$ is one number for each head. After the segment its keys and values enter the memory,
and the oldest leave. Biases by distance, if there are any, are for local keys only.

Cost: $2h\,n\,((c + w + k)(d + e) + M d)$ FLOPs, the search of M keys included; the memory of one
step does not depend on n.

``naive``    n × n weights, in which the fetched keys are marked.
``chunked``  one segment after the other: search, fetch, two small softmaxes.

``MemorizingAttention.step`` takes any number of next tokens and the state of all before them.
Segments are counted from the first token, so any division of a text into calls gives the same
result. ``state.cleared(ended)`` begins new documents. With ``memory=0`` the layer has its segment
and its cache alone, as the other layers of the model have.

The paper's letters: M and k are ours; $b_g$ is ``gate``, $V_c$, $V_m$ are the two softmaxes'
outputs. The layer with a memory stands near the top of the model (9th of 12).
Gradients end at the beginning of the segment: neither memory nor cache has any. They do flow into
queries and through the softmax over what was fetched.

Readings. While the memory is empty its output is zero, so the result is 1 − g times the local one,
as in the authors' code; g = 0 there would be another reading. ``stored="segment"`` stores a
segment as soon as it was read, as their code does, so the newest keys are in the cache and in the
memory; ``stored="leaving"`` stores what leaves the cache. At τ = √d random vectors have scores of
variance one.

Other implementations. In the authors' code (meliad) the approximate search takes the best key of
each residue class of positions modulo k. The package memorizing-transformers-pytorch has one
softmax over fetched and local keys (``gated=False`` here), one key/value head, and τ = 20.

Common mistakes: storing a segment before its queries have searched, which shows them the future;
storing keys that are not normalised; one memory for several documents of a batch.

Departures.
- while the memory is empty its output is zero, and the gate is not changed
- the scale starts at √d, not at 1, and a query attends to itself, unlike in the authors' code
- slots of the memory that are not filled yet are not attended to; there they are zero keys

Gives up. In the far past, each query attends only to the few keys with the largest scores.

Wu, Rabe, Hutchins, Szegedy. Memorizing Transformers. ICLR 2022, arXiv:2203.08913, sections 3 and 4.
"""

from typing import Literal

import torch
from torch import nn

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.positions import DistanceBias, Rotation, positions_of
from attnlab.core.probe import note
from attnlab.core.search import NOTHING
from attnlab.core.shapes import (
    NewTokens,
    Outputs,
    Queries,
    SelfKeys,
    SelfValues,
    TokenPadding,
    Tokens,
    checked,
)
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.learned.memorizing_transformer.costs import found, launches
from attnlab.mechanisms.learned.memorizing_transformer.segments import (
    LocalBias,
    MemorizingOptions,
    PerHead,
    Piece,
    bias_by_distance,
    combined,
    first_scale,
    joined,
    largest,
    local_biases,
    note_fetched,
    piece,
    refuse_twice,
    unit,
)
from attnlab.mechanisms.learned.memorizing_transformer.state import MemoryState
from attnlab.mechanisms.learned.memorizing_transformer.texts import attend

__all__ = [
    "CARD", "FORMS", "MemorizingAttention", "MemorizingOptions", "MemoryState", "chunked", "naive",
    "unit",
]  # fmt: skip

# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, gate: PerHead | None, scale: PerHead, *,
    local_bias: LocalBias = None, padding: TokenPadding = None,
    options: MemorizingOptions = MemorizingOptions(),
) -> Outputs:  # fmt: skip
    """The equation (Wu et al., section 3.2), dense; without a gate one softmax over both.

    ``local_bias`` (h, r) has a number for a key 0, 1, … r − 1 positions back.
    """
    refuse_twice(gate, options)
    n, q, k = q.shape[2], unit(q, options), unit(k, options)
    i = torch.arange(n, device=q.device)
    start = (i - i % options.segment)[:, None]
    own = i >= start  # keys of the query's own segment, which have a gradient
    near = (i <= i[:, None]) & (i >= start - options.cache)
    stored = (i < start - options.delay) & (i >= start - options.delay - options.memory)
    if padding is not None:
        near, stored = (x & padding[:, None, None] for x in (near, stored))
    products = torch.where(own, q @ k.mT, q @ k.detach().mT)
    found = largest(products, stored, options.neighbours)
    fetched = torch.zeros_like(products, dtype=torch.bool).scatter(-1, found, True) & stored
    scores = note("scores", scale[:, None, None] * products)
    at = positions_of(n, q.device, padding=padding).expand(len(q), n)
    local = scores + local_biases(local_bias, at, at)
    if gate is None:
        weights = masked_softmax(torch.where(fetched, scores, local), near | fetched)
        far = weights.masked_fill(~fetched, 0)
    else:
        far = masked_softmax(scores, fetched)
        weights = combined(masked_softmax(local, near), far, gate)
    there = fetched.gather(-1, found)
    note_fetched([found.where(there, NOTHING)], [far.gather(-1, found)], gate, options)
    note("weights", weights)
    return (weights * own) @ v + (weights * ~own) @ v.detach()


# ---- chunked


@checked
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, gate: PerHead | None, scale: PerHead, *,
    local_bias: LocalBias = None, padding: TokenPadding = None,
    options: MemorizingOptions = MemorizingOptions(),
) -> Outputs:  # fmt: skip
    """``naive``, one segment after the other; of the memory only what was fetched is weighed."""
    at = positions_of(q.shape[2], q.device, padding=padding).expand(len(q), q.shape[2])
    return attend(
        unit(q, options), unit(k, options), v, gate, scale,
        at=at, seen=padding, local_bias=local_bias, options=options,
    )  # fmt: skip


FORMS = {"naive": naive, "chunked": chunked}

# ---- module


class MemorizingAttention(Layer):
    """Multi-head attention with a searched memory, causal: (b, n, dim) → (b, n, dim).

    ``forward`` reads documents from their beginning; ``step`` reads on, with the state of all
    before. ``gate`` and ``scale`` (h,) are learned: b_g, from 0, and τ, from ``scale`` or √d.
    Without ``memory``, or with ``gated=False``, there is no gate. ``positions`` are biases by
    distance, for local keys, or a rotation of all queries and keys; the memory holds turned keys.
    """

    gate: nn.Parameter | None

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "chunked"] = "chunked", gated: bool = True,
        scale: float | None = None, options: MemorizingOptions = MemorizingOptions(),
        positions: Rotation | DistanceBias | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if options.normalise and isinstance(positions, Rotation) and not positions.keeps_lengths:
            raise ValueError(
                "queries and keys are made unit vectors, but this rotation changes their lengths; "
                "choose one that does not, or normalise=False"
            )
        self.heads = Heads(dim, heads, positions=positions)
        self.heads.check_positions(causal=True)
        self.form, self.options = form, options
        start = first_scale(self.heads.head_dim, options) if scale is None else scale
        self.scale = nn.Parameter(torch.full((heads,), start))
        with_gate = gated and options.memory > 0
        self.register_parameter("gate", nn.Parameter(torch.zeros(heads)) if with_gate else None)
        refuse_twice(self.gate, options)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self.heads.project(x, padding=padding)
        out = FORMS[self.form](
            q, k, v, self.gate, self.scale,
            local_bias=self._local_bias(), padding=padding, options=self.options,
        )  # fmt: skip
        return self.heads.merge(out)

    def _local_bias(self) -> LocalBias:
        return bias_by_distance(self.heads.positions, self.options, self.scale.device)

    @checked
    def step(self, x: NewTokens, state: MemoryState | None = None) -> tuple[NewTokens, MemoryState]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        q, k, v = self.heads.project(x, start=0 if state is None else state.length)
        q, k = unit(q, self.options), unit(k, self.options)
        if state is None:
            state = MemoryState.of(k[:, :, :0], v[:, :, :0], self.options)
        pieces: list[Piece] = []
        while q.shape[2]:
            t = self.options.segment - state.own.length  # to the end of the segment
            state = state.extended(k[:, :, :t], v[:, :, :t], self.options)
            at = positions_of(state.length - state.first, x.device, start=state.first)
            pieces.append(
                piece(
                    q[:, :, :t], *state.own, past=state.past, gate=self.gate, scale=self.scale,
                    at=at.expand(len(x), -1), first=state.first, seen=state.seen,
                    local_bias=self._local_bias(), options=self.options,
                )
            )  # fmt: skip
            q, k, v = (y[:, :, t:] for y in (q, k, v))
            state = state.stored(self.options)
        return self.heads.merge(joined(pieces, self.gate, self.options)), state


# ---- card

h, n, m, d, e, c, w, k, M = letters("h n m d e c w k M")

CARD = Card(
    __doc__,
    name="memorizing_transformer",
    family="learned",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="its memory holds what was read before",
    options=MemorizingOptions,
    letters={"c": "segment", "w": "cache", "M": "memory", "k": "neighbours"},
    time={
        "naive": 4 * h * n * m * (d + e),
        "chunked": lambda chosen: 2 * h * n * ((c + w + found(chosen)) * (d + e) + M * d),
    },
    launches={"chunked": launches},
    memory={"naive": h * n * m, "chunked": h * (n * (d + e) + c * (c + w + M + k * (d + e)))},
    notes={
        "naive": ("scores", "weights", "neighbours", "neighbour_weights", "gate"),
        "chunked": ("neighbours", "neighbour_weights", "gate"),
    },
    variants=(
        {"segment": 3, "cache": 2, "memory": 4, "neighbours": 2},
        {
            "segment": 4,
            "cache": 5,
            "memory": 7,
            "neighbours": 3,
            "stored": "leaving",
            "gated": False,
            "normalise": False,
        },
        {"segment": 5, "cache": 3, "memory": 0, "neighbours": 1},
    ),
    build=MemorizingAttention,
    aliases=("memorizing", "knn_memory"),
    small_options={"segment": 6, "cache": 3, "memory": 16, "neighbours": 3},
)
