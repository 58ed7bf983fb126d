r"""Transformer-XL: attention to a segment and to the memory of the segments before it.

A model that reads a long text in separate segments forgets everything at each border, and the first
tokens of a segment have hardly a past. Transformer-XL reads the segments in order and keeps what
went into each layer: a segment of c tokens attends to itself and to the M inputs before it,

$$\tilde h = [\mathrm{SG}(m); h],\qquad q = h W_Q,\qquad k = \tilde h W_K,\qquad v = \tilde h W_V$$

with the inputs h of the segment and those of the memory, m. SG stops the gradient: the
memory is a constant, so that training never goes back further than one segment. It is the *inputs*
that are kept, and not keys and values: today's $W_K$ and $W_V$ are applied to them, are never older
than the queries, and receive gradients from what was read in the memory. Query i attends to

$$S_i = \{\, j \le i : j \ge c \lfloor i / c \rfloor - M \,\}$$

and scores a key by its content and by its distance, which means the same in every segment:

$$s_{ij} = \frac{(q_i + u) \cdot k_j + (q_i + t) \cdot W_R R_{i-j}}{\sqrt d}$$

The page ``attnlab.mechanisms.positions.relative`` explains these four terms and the shift by which
they are computed. The longest path of information grows by M with every layer; the path of
gradients does not grow.

The first query of a segment sees M + 1 keys and the last one M + c. With ``same_length`` each sees
M of them, itself included; the official code evaluates so.

Cost: $2h\,n\,(c + M)(2d + e)$ FLOPs. Recomputing the context of each token on its own, as a model
without memory must, takes c + M times as many.

``naive``    n × n weights and the sets $S_i$ as a mask.
``chunked``  one segment after the other, with the relative shift.

``TransformerXL.step`` takes any number of next tokens, and the state of all before them: the memory
and the inputs of the segment so far. ``state.cleared(ended)`` begins new documents.

The paper's letters: L is our c, $W_{k,E}$ is $W_K$, $W_{k,R}$ is $W_R$, v is t.

Common mistakes: keeping keys and values, which gives the same output while the weights stand still,
but other gradients; stopping the gradient of the keys and not of the inputs, by which $W_K$ loses
what it learns from the memory; mending the memory before the segment has read it.

Departures.
- the memory holds the inputs of the attention layer, which in a pre-norm model are normalised. The
  paper keeps the inputs of the whole layer, which are the same numbers before the layer
  normalisation of a pre-norm model.
- u, t and W_R belong to each layer, and u and t start at zero
- no dropout on the weights, and no extended context. The extended context is ``ext_len`` of the
  official code.

Gives up. Tokens further back than the memory are reached only through several layers.

Dai, Yang, Yang, Carbonell, Le, Salakhutdinov. Transformer-XL: Attentive Language Models beyond a
Fixed-Length Context. ACL 2019, arXiv:1901.02860, section 3.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.carried import step_in_segments
from attnlab.core.options import Count, Options, Size
from attnlab.core.precision import upcast
from attnlab.core.probe import listening, note
from attnlab.core.relative import (
    DistanceWeight,
    HeadVector,
    ScoredByDistance,
    content_scores,
    distance_keys,
    past_keys,
    past_weights,
    weigh,
)
from attnlab.core.segments import SegmentState as SegmentState
from attnlab.core.segments_together import read_together
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
from attnlab.core.tracing import on_cpu

# ---- helpers


@dataclass(frozen=True, kw_only=True)
class TransformerXLOptions(Options):
    """The length of segment and memory: by default a quarter of the paper's on enwik8.

    ``segment``      how many tokens are read, and trained on, at once.
    ``memory``       how many inputs before its segment a query attends to.
    ``same_length``  whether every query attends to ``memory`` keys, itself included.
    """

    segment: Size = 128
    memory: Count = 128
    same_length: bool = False

    def check(self) -> None:
        if self.same_length and not self.memory:
            raise ValueError(
                "with same_length every query attends to memory=0 keys, which is nothing; give a "
                "memory, or leave same_length out"
            )

    def sees(self, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """Which keys j the queries i find in their own segment, and which in the memory."""
        start = i - i % self.segment
        own, past = (j >= start) & (j <= i), (j < start) & (j >= start - self.memory)
        if not self.same_length:
            return own, past
        near = i - j < self.memory
        return own & near, past & near


# ---- naive


@checked
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, memory_k: SelfKeys, memory_v: SelfValues,
    u: HeadVector, t: HeadVector, weight: DistanceWeight, *,
    padding: TokenPadding = None, options: TransformerXLOptions = TransformerXLOptions(),
) -> Outputs:  # fmt: skip
    """The equation (Dai et al., section 3.3), dense. ``memory_k`` and ``memory_v`` are keys and
    values of the same positions, made of inputs without gradient, for queries of later segments."""
    n, d = q.shape[-2:]
    i = torch.arange(n, device=q.device)
    own, past = options.sees(i[:, None], i)
    r = distance_keys(upcast(weight), i)
    content = torch.where(own, content_scores(q, k, u), content_scores(q, memory_k, u))
    distance = (i[:, None] - i).clamp(min=0).expand(*q.shape[:2], n, n)
    position = content_scores(q, r[None], t).gather(-1, distance)
    mask = own | past if padding is None else (own | past) & padding[:, None, None]
    weights = weigh(content, position, mask, d)
    return ((weights * own) @ upcast(v) + (weights * past) @ upcast(memory_v)).to(v.dtype)


# ---- chunked


@checked
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, memory_k: SelfKeys, memory_v: SelfValues,
    u: HeadVector, t: HeadVector, weight: DistanceWeight, *,
    padding: TokenPadding = None, options: TransformerXLOptions = TransformerXLOptions(),
) -> Outputs:  # fmt: skip
    """``naive``, one segment after the other; off the CPU many at once, since a memory holds inputs
    and waits for no output of the segment before it."""
    if not on_cpu(q) and not listening():
        return read_together(q, k, v, memory_k, memory_v, u, t, weight, padding, options)
    n, at, out = q.shape[-2], torch.arange(q.shape[-2], device=q.device), []
    r = past_keys(weight, min(n, options.segment + options.memory))
    for start in range(0, n, options.segment):
        end, low = min(n, start + options.segment), max(0, start - options.memory)
        keys, values = (
            torch.cat((old[:, :, low:start], new[:, :, start:end]), dim=2)
            for old, new in ((memory_k, k), (memory_v, v))
        )
        own, past = options.sees(at[start:end, None], at[low:end])
        mask = own | past if padding is None else (own | past) & padding[:, None, None, low:end]
        weights = past_weights(q[:, :, start:end], keys, u, t, r, mask)
        out.append((weights @ upcast(values)).to(v.dtype))
    return torch.cat(out, dim=2)


FORMS = {"naive": naive, "chunked": chunked}

# ---- module


class TransformerXL(ScoredByDistance):
    """Multi-head attention to a segment and its memory, causal: (b, n, dim) → (b, n, dim).

    ``forward`` reads documents from their beginning, ``step`` reads on. Beside the projections
    dim² + 2 dim parameters: W_R, u and t.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "chunked"] = "chunked",
        options: TransformerXLOptions = TransformerXLOptions(),
    ) -> None:  # fmt: skip
        super().__init__(dim, heads)
        self.form, self.options = form, options

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self.heads.project(x, padding=padding)
        old_k, old_v = k, v
        if x.requires_grad and x.shape[1] > self.options.segment:
            _, old_k, old_v = self.heads.project(x[:, :1], x.detach(), padding=padding)
        out = FORMS[self.form](
            q, k, v, old_k, old_v, self.u, self.t, self.weight,
            padding=padding, options=self.options,
        )  # fmt: skip
        return self.heads.merge(out)

    @checked
    def step(
        self, x: NewTokens, state: SegmentState | None = None
    ) -> tuple[NewTokens, SegmentState]:
        """The next t tokens given the state of all before them (None at the beginning). Keys and
        values of memory and segment are made anew: 2 (m + s) dim² multiplications a call."""
        self.heads.check_input(x, "x")
        c = self.options.segment
        state = SegmentState.checked(state, x, c, self.options.memory)
        out, state = step_in_segments(self._read, x, state, c - state.segment.shape[1], c)
        return self.heads.merge(out), state

    def _read(self, x: Tensor, state: SegmentState) -> tuple[Outputs, SegmentState]:
        """What the next queries of the segment take from memory and segment; the state after
        them."""
        state = state.extended(x)
        q, k, v = self.heads.project(x, torch.cat(state[:2], dim=1))
        m, t = state.memory.shape[1], x.shape[1]
        at = torch.arange(-m, k.shape[2] - m, device=x.device)
        own, past = self.options.sees(at[-t:, None], at)
        mask = (own | past) & note("seen", state.seen)[:, None, None]
        r = past_keys(self.weight, k.shape[2])
        out = (past_weights(q, k, self.u, self.t, r, mask) @ upcast(v)).to(v.dtype)
        return out, state.closed(self.options.segment, self.options.memory)


# ---- card

h, n, m, d, e, dim, c, M = letters("h n m d e dim c M")

CARD = Card(
    __doc__,
    name="transformer_xl",
    family="memory",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="its memory holds what was read before",
    options=TransformerXLOptions,
    letters={"c": "segment", "M": "memory"},
    positions_reason="its scores have terms of their own for the distance",
    time={
        "naive": 2 * h * n * m * (3 * d + 2 * e) + 2 * h * n * d * dim,
        "chunked": 2 * h * n * (c + M) * (2 * d + e) + 2 * h * (c + M) * d * dim,
    },
    memory={
        "naive": h * n * (m + 1),
        "chunked": h * (n * e + c * (c + M + 1) + (c + M) * d),
    },
    notes=dict.fromkeys(FORMS, ("content", "position", "scores", "weights")),
    variants=(
        {"segment": 3, "memory": 4},
        {"segment": 4, "memory": 5, "same_length": True},
        {"segment": 5, "memory": 0},
    ),
    build=TransformerXL,
    aliases=("txl", "segment_recurrence"),
    small_options={"segment": 8, "memory": 8},
)
