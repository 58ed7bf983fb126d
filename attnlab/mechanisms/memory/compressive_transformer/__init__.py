r"""Compressive Transformer: what leaves the memory is compressed, and attended to a while longer.

Transformer-XL forgets the oldest inputs of its memory. The Compressive Transformer makes fewer
vectors of them, s inputs into one, and keeps k of those in a second memory. A segment of c tokens
attends to three stretches, read as one sequence: compressed memory C, memory m, and the segment h
itself,

$$\tilde h = [\mathrm{SG}(C); \mathrm{SG}(m); h],\qquad k = \tilde h W_K,\qquad v = \tilde h W_V$$

with the scores of Transformer-XL (page ``attnlab.mechanisms.positions.relative``), in which the
distance of two columns counts the columns between them: a compressed vector takes one place. After
the segment its inputs enter the memory of M, the oldest c of it leave, and

$$C \leftarrow \text{the last } k \text{ of } [C; f_s(m_{\text{old}})],\qquad f_s :
\mathbb{R}^{c \times dim} \to \mathbb{R}^{\lfloor c / s \rfloor \times dim}$$

Five functions $f_s$: the mean or the maximum of s inputs in a row; a convolution with s taps and
stride s; the same with its taps two positions apart; and the ⌊c/s⌋ inputs that were attended to
most while they were in the memory. A layer reaches M + s k positions back with k + M columns.

A convolution could be trained by the task only through many segments. It is trained by what
attention loses, instead: with the segment h that was just read, and attention by contents alone,

$$\mathcal{L} = \lVert \mathrm{attn}(h, m_{\text{old}}) - \mathrm{attn}(h, f_s(m_{\text{old}}))
\rVert_2$$

``CompressiveTransformer.reconstruction_loss`` gives it. Its gradient reaches the convolution and
nothing else: h, the memory and the projections are constants in it. In turn the task's gradient
does not reach the convolution, unless ``task_gradient`` is set (the paper compares both).

Cost: $2h\,n\,(c + M + k)(2d + e)$ FLOPs.

``naive``    n positions, and n places where a compressed vector may stand, under a mask.
``chunked``  each segment with its columns. Only those that keep the most used wait: n / c steps.

``CompressiveTransformer.step`` takes any number of next tokens, and the state of all before them;
``state.cleared(ended)`` begins new documents.

The paper's letters: $n_s$, $n_m$, $n_{cm}$ are our c, M and k, its rate c is our s.

Readings. A most used input is chosen by the sum of the weights that all heads and queries of later
segments gave it, until it left. The norm is that of one segment, over heads and positions; the loss
is its mean over sequences and segments. The dilation is 2, with zeros beyond the ends of a segment.

Common mistakes: compressing the newest inputs of the memory; counting the distance to a compressed
vector in tokens; adding both losses with all gradients, which makes the inputs easy to compress.

Departures.
- memories are empty at the beginning, not zeros
- the memories hold inputs of the attention layer, which in a pre-norm model are normalised
- the memory is a multiple of the segment
- u, t and W_R belong to each layer, and u and t start at zero
- a convolution learns from the task where task_gradient says so, else from its own loss
- no dropout on the weights

Gives up. Of what left the memory each query sees an average, or a part.

Rae, Potapenko, Jayakumar, Hillier, Lillicrap. Compressive Transformers for Long-Range Sequence
Modelling. ICLR 2020, arXiv:1911.05507, section 3.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.carried import step_in_segments
from attnlab.core.options import Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.relative import (
    DistanceWeight,
    HeadVector,
    ScoredByDistance,
    content_scores,
    distance_keys,
    past_keys,
)
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
from attnlab.mechanisms.memory.compressive_transformer.by_segments import chunked
from attnlab.mechanisms.memory.compressive_transformer.compression import (
    CompressiveOptions,
    convolution,
    most_used,
    reconstruction_loss,
)
from attnlab.mechanisms.memory.compressive_transformer.places import (
    columns,
    launches,
    regular_places,
    seen_after,
)
from attnlab.mechanisms.memory.compressive_transformer.reading import lost, prepared
from attnlab.mechanisms.memory.compressive_transformer.state import (
    CompressiveState,
    attended,
    checked_state,
    used,
)

__all__ = [
    "CARD", "FORMS", "CompressiveOptions", "CompressiveState", "CompressiveTransformer", "chunked",
    "naive", "reconstruction_loss",
]  # fmt: skip

# ---- naive


@checked
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, memory_k: SelfKeys, memory_v: SelfValues,
    short_k: SelfKeys, short_v: SelfValues, u: HeadVector, t: HeadVector, weight: DistanceWeight, *,
    padding: TokenPadding = None, options: CompressiveOptions = CompressiveOptions(),
) -> Outputs:  # fmt: skip
    """The equation (Rae et al., algorithm 1), dense.

    ``memory_k`` and ``memory_v`` are keys and values made of inputs without gradient; ``short_k``
    and ``short_v``, at the first position of each window, those of its compressed vector. So do the
    noted weights, (b, h, n, n): that of a compressed vector stands at the first of its window.
    """
    (b, _, n, d), c = q.shape, options.segment
    i = torch.arange(n, device=q.device)
    kept = torch.zeros(b, n, dtype=torch.bool, device=q.device)
    if options.compression != "most_used":
        kept[:, regular_places(n, options, q.device)] = True
    there = kept.new_ones(b, n) if padding is None else padding
    r = distance_keys(upcast(weight), torch.arange(min(2 * n, options.columns), device=q.device))
    usage, out, maps = upcast(q).new_zeros(b, n), [], []
    chooses = options.compression == "most_used"  # by what earlier segments have attended to
    for first in range(0, n, c if chooses else n):
        rows = i[first : first + c] if chooses else i
        own, past, window, distance = columns(rows, i, kept, options)
        query = q[:, :, rows]
        content = torch.cat(
            (
                content_scores(query, short_k, u),
                torch.where(own, content_scores(query, k, u), content_scores(query, memory_k, u)),
            ),
            dim=3,
        )
        position = content_scores(query, r[None], t).gather(
            -1, distance[:, None].expand_as(content)
        )
        seen = torch.cat((seen_after(there, options), there), dim=1)
        weights = masked_softmax((content + position) * d**-0.5, (window & seen[:, None])[:, None])
        far, near = weights.split(n, dim=3)
        mixed = far @ upcast(short_v) + (near * own) @ upcast(v) + (near * past) @ upcast(memory_v)
        out.append(mixed.to(v.dtype))
        maps.append(far + near)
        if chooses:
            usage = usage + (near.detach() * past * there[:, None, rows, None]).sum(dim=(1, 2))
            low = first - options.memory
            if low >= 0 and len(rows) == c:
                chosen = most_used(usage[:, low : low + c], options)
                kept[:, low : low + c] = kept.new_zeros(b, c).scatter(1, chosen, True)
    note("weights", lambda: torch.cat(maps, dim=2))
    note("kept", kept)
    return torch.cat(out, dim=2)


FORMS = {"naive": naive, "chunked": chunked}

# ---- module


class CompressiveTransformer(ScoredByDistance):
    """Multi-head attention to a segment and two memories, causal: (b, n, dim) → (b, n, dim).

    ``forward`` reads documents from their beginning, ``step`` reads on. Beside the projections
    dim² + 2 dim parameters, W_R, u and t, and a convolution of s dim² + dim where there is one.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "chunked"] = "chunked",
        options: CompressiveOptions = CompressiveOptions(),
    ) -> None:  # fmt: skip
        super().__init__(dim, heads)
        self.form, self.options = form, options
        self.kernel = convolution(dim, options)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        self.heads.check_input(x, "x")
        given = prepared(self.heads, x, padding, self.kernel, self.options)
        out = FORMS[self.form](
            *given, self.u, self.t, self.weight, padding=padding, options=self.options
        )
        return self.heads.merge(out)

    @checked
    def step(
        self, x: NewTokens, state: CompressiveState | None = None
    ) -> tuple[NewTokens, CompressiveState]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.check_input(x, "x")
        state, c = checked_state(state, x, self.options), self.options.segment
        out, state = step_in_segments(self._read, x, state, c - state.segment.shape[1], c)
        return self.heads.merge(out), state

    def _read(self, x: Tensor, state: CompressiveState) -> tuple[Tensor, CompressiveState]:
        """What the next queries of the segment take from both memories and from the segment; the
        state after them."""
        state = state.extended(x)
        q, k, v = self.heads.project(x, torch.cat(state[:3], dim=1))
        r, seen = past_keys(self.weight, k.shape[2]), note("seen", state.seen)
        mixed, weights = attended(q, k, v, self.u, self.t, r, seen)
        first, m = state.compressed.shape[1], state.memory.shape[1]
        by = torch.ones_like(x[..., 0], dtype=torch.bool)
        state = state._replace(usage=state.usage + used(weights, first, m, by))
        return mixed, state.closed(self.kernel, self.options)

    @checked
    def reconstruction_loss(self, x: Tokens, padding: TokenPadding = None) -> Float[Tensor, ""]:
        """The attention-reconstruction loss of the inputs of this layer, read from their beginning.

        Its gradient reaches the convolution alone (Rae et al., algorithm 2). A ValueError for fewer
        tokens than memory and one segment, of which nothing has left the memory yet.
        """
        self.heads.check_input(x, "x")
        return lost(self.heads, x, padding, self.kernel, self.options)


# ---- card

h, n, m, d, e, dim, c, M, k, s = letters("h n m d e dim c M k s")

CARD = Card(
    __doc__,
    name="compressive_transformer",
    family="memory",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="its memories hold what was read before",
    options=CompressiveOptions,
    letters={"c": "segment", "M": "memory", "k": "compressed", "s": "rate"},
    positions_reason="its scores have terms of their own for the distance",
    time={
        "naive": 2 * h * n * m * (4 * d + 3 * e) + 2 * h * n * (c + M + k) * d,
        "chunked": 2 * h * n * (c + M + k) * (2 * d + e) + 2 * h * (c + M + k) * d * dim,
    },
    launches=dict.fromkeys(FORMS, launches),
    memory={
        "naive": 2 * h * n * m,
        "chunked": h * (n * (d + e) + c * (c + M + k + 1) + (c + M + k) * d),
    },
    notes={
        "naive": ("weights", "kept"),
        "chunked": ("content", "position", "scores", "weights", "kept"),
    },
    variants=(
        {"segment": 4, "memory": 4, "compressed": 3, "rate": 2},
        {
            "segment": 4,
            "memory": 4,
            "compressed": 5,
            "rate": 3,
            "compression": "convolution",
            "task_gradient": True,
        },
        {"segment": 4, "memory": 4, "compressed": 3, "rate": 2, "compression": "most_used"},
    ),
    build=CompressiveTransformer,
    aliases=("compressive",),
    small_options={"segment": 6, "memory": 6, "compressed": 6, "rate": 3},
)
