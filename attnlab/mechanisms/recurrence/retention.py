r"""RetNet: retention. Linear attention whose weights fade with distance.

Linear attention sums all keys and values that came before, and what was summed once is never
forgotten. Retention multiplies the sum by a decay $\gamma < 1$ at each token, one for each head,
and turns queries and keys by an angle that grows with their position, so that their product depends
on the distance:

$$o_i = \sum_{j \le i} \gamma^{i - j}\, (q_i \cdot k_j)\, v_j,\qquad y = \big(\mathrm{silu}(x W_G)
\odot \mathrm{norm}(o)\big) W_O$$

There is no denominator: weights have either sign, and each head of a token is divided by its root
mean square instead. The sum is a recurrence, $S_i = \gamma S_{i-1} + k_i v_i^\top$ with $o_i =
q_i^\top S_i$. The heads decay at different rates, $\gamma_h = 1 - 2^{-5 - h}$ with h from 0.

Cost: $2 n^2 h\, (d + e)$ FLOPs, or $2 n h\, (c\, (d + e) + 2 d e)$ by chunks of c tokens.

``naive``      all weights at once: $(Q K^\top \odot D)\, V$ with $D_{ij} = \gamma^{i - j}$. The
               paper calls it parallel.
``recurrent``  the sum S, one token at a time.
``chunked``    weights inside chunks, S from one chunk to the next.

The paper's letters: its B is our c, and its R the sum before a chunk, our S; $\theta$ is its angle.

Common mistakes: a last chunk that is shorter, decayed as if it were whole; angles of RoPE: here
they are $\theta = 10000^{-t / (d / 2 - 1)}$ for t = 0 … d / 2 - 1.

Departures.
- weights are not divided by their row sums, which vanish in the norm that follows. The paper
  divides D by the root of its row sums and the scores by their sums, against overflow; both vanish
  but for the norm's small constant. The layer keeps what it sums in float32 up to the norm.
- padded tokens are skipped

Gives up. The past fades at a rate that is fixed per head, whatever the tokens say.

Sun, Dong, Huang, Ma, Xia, Xue, Wang, Wei. Retentive Network: A Successor to Transformer for Large
Language Models. 2023, arXiv:2307.08621, section 2.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import chunks
from attnlab.core.card import Card, letters
from attnlab.core.carried import reset_rows
from attnlab.core.convolution import toeplitz
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.matrix_memory import chunked_elements
from attnlab.core.options import Options, Size
from attnlab.core.precision import exact_dtype, upcast, upcast_together
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state, skipping_padding
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

Sums = Float[Tensor, "b h d e"]


@dataclass(frozen=True, kw_only=True)
class RetentionOptions(Options):
    """How it is computed.

    ``chunk``  tokens per chunk of the chunked form (c)
    """

    chunk: Size = 64


# ---- naive


@form
def naive(q: Queries, k: SelfKeys, v: SelfValues) -> Outputs:
    """All weights at once (Sun et al., eq. 5), of queries and keys that are turned."""
    scores = note("scores", q @ k.mT)
    weights = note("weights", scores * toeplitz(fading(q.shape[1], q.shape[2], v)))
    return weights @ v


def fading(heads: int, n: int, like: Tensor) -> Float[Tensor, "h n"]:
    """γ⁰ … γ^(n - 1) of every head."""
    steps = torch.arange(n, device=like.device)
    return (log_decays(heads, like)[:, None] * steps).exp().to(upcast(like).dtype)


def log_decays(heads: int, like: Tensor) -> Float[Tensor, "h"]:
    """log γ of every head, in double precision."""
    h = torch.arange(heads, dtype=exact_dtype(like.device), device=like.device)
    return torch.log1p(-(2.0 ** (-5 - h)))


def turned(x: Tensor, positions: Tensor) -> Tensor:
    """(…, n, d) with the pairs (2t, 2t + 1) of each row turned by position · θ_t."""
    half, exact = x.shape[-1] // 2, exact_dtype(x.device)
    theta = 10000 ** -torch.linspace(0, 1, half, dtype=exact, device=x.device)
    angle = positions.to(exact)[:, None] * theta
    cos, sin = (part.to(x.dtype) for part in (angle.cos(), angle.sin()))
    even, odd = x.unflatten(-1, (half, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


# ---- recurrent


@form
def recurrent(q: Queries, k: SelfKeys, v: SelfValues) -> Outputs:
    """The sum, token by token (eq. 6)."""
    gamma, S, out = fading(q.shape[1], 2, v)[:, 1, None, None], initial_state(k, v), []
    for qi, ki, vi in zip(*(x.split(1, dim=2) for x in (q, k, v)), strict=True):
        S = gamma * S + ki.mT @ vi
        out.append(qi @ S)
    note("state", S)
    return torch.cat(out, dim=2)


def initial_state(k: SelfKeys, v: SelfValues) -> Sums:
    """The sum before the first token."""
    return upcast(v).new_zeros(*k.shape[:2], k.shape[3], v.shape[3])


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, *, options: RetentionOptions = RetentionOptions()
) -> Outputs:
    """Weights inside chunks, the sum from one chunk to the next (eq. 7)."""
    out, S = advance(q, k, v, initial_state(k, v), options.chunk)
    note("state", S)
    return out


@upcasting
def advance(q: Queries, k: SelfKeys, v: SelfValues, S: Sums, chunk: int) -> tuple[Outputs, Sums]:
    """The outputs of the next tokens after the sum ``S``, and the sum after them."""
    log = log_decays(q.shape[1], v).to(v.dtype)
    return chunks.advance(q, k, v, S, chunk, log_decay=log[None, :, None, None])


FORMS = {"naive": naive, "recurrent": recurrent, "chunked": chunked}

# ---- module


class State(NamedTuple):
    """What a layer knows of the tokens before: h · d · e numbers per sequence, with keys turned as
    the next token sees them."""

    sums: Sums

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """With nothing of the documents that have ended (b,)."""
        return reset_rows(self, ended)


class GatedOutput(nn.Module):
    """Each head divided by its root mean square, times SiLU of a gate, projected."""

    def __init__(self, heads: int, width: int, dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.gate = nn.Linear(dim, heads * width, bias=False)
        self.project = nn.Linear(heads * width, dim, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.project.weight

    def forward(self, out: Tensor, x: Tokens) -> Tokens:
        each = upcast(out).unflatten(-1, (self.heads, -1))
        normed = F.rms_norm(each, each.shape[-1:], eps=1e-6).flatten(-2).to(x.dtype)
        return self.project(F.silu(self.gate(x)) * normed)


class Retention(Layer):
    """Multi-scale retention: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    Values are ``value_scale`` times as wide as queries and keys. ``step`` decodes; its state is the
    sum of every head. ``lens.mixing_matrix`` is exact: one map per head, before the norm.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "recurrent", "chunked"] = "chunked",
        options: RetentionOptions = RetentionOptions(), value_scale: Size = 2,
    ) -> None:  # fmt: skip
        super().__init__()
        if dim % heads == 0 and dim // heads % 2:
            raise ValueError(
                f"dim={dim} with heads={heads} gives heads of width {dim // heads}, but pairs are "
                "turned: choose heads of an even width"
            )
        self.heads = Heads(dim, heads, value_dim=value_scale * max(1, dim // heads))
        self.heads.output = GatedOutput(heads, self.heads.value_dim, dim)
        self.dim, self.form, self.options = dim, form, options
        self.forms = with_options(FORMS, options)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        self.heads.check_input(x, "x")
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        return self.heads.output(self.heads.join(self.forms[self.form](*self._projected(x))), x)

    def _projected(self, x: Tokens) -> tuple[Tensor, ...]:
        """Queries, keys and values; queries and keys turned by their places in ``x``. Not in half
        precision: what is not divided by row sums may be beyond the numbers of float16."""
        q, k, v = upcast_together(*self.heads.project(x))
        places = torch.arange(x.shape[1], device=x.device)
        return turned(q, places), turned(k * k.shape[-1] ** -0.5, places), v

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        self.heads.check_input(x, "x")
        q, k, v = self._projected(x)
        begin = State(initial_state(k, v))
        if state is None:
            state = begin
        check_state(state, begin)
        out, sums = advance(q, k, v, state.sums, self.options.chunk)
        # Places are counted from the first token of a call, and begin anew with the next call.
        back = turned(sums.mT, -torch.full((1,), x.shape[1], device=x.device)).mT
        return self.heads.output(self.heads.join(out), x), note("state", State(back.contiguous()))


# ---- card

n, h, d, e, c = letters("n h d e c")

CARD = Card(
    __doc__,
    name="retention",
    family="recurrence",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=RetentionOptions,
    letters={"c": "chunk"},
    positions_reason="it turns queries and keys itself, and fades with the distance",
    time={
        "naive": 2 * h * n**2 * (d + e),
        "recurrent": 4 * h * n * d * e,
        "chunked": 2 * h * n * (c * (d + e) + 2 * d * e),
    },
    launches={"recurrent": n, "chunked": sympy.sqrt(n / c)},
    memory={
        "naive": h * n**2,
        "recurrent": h * n * (d + 2 * e),
        "chunked": h * n * (chunked_elements(c, d, e, erase=False) + e),
    },
    notes={
        "naive": ("scores", "weights"),
        "recurrent": ("state",),
        "chunked": ("state",),
    },
    variants=({"chunk": 3}, {"value_scale": 1}),
    build=Retention,
    aliases=("retnet",),
)
