r"""PaTH: between a key and a query stands a product of reflections that the tokens chose.

RoPE puts a rotation between a query and a key, the same for every token that lies between the two.
In PaTH each token has a matrix of its own, the identity but for one direction $w_t$, along which a
vector is shortened, wiped out or turned around. A query meets a key through the product of the
matrices of all tokens after the key:

$$s_{ij} = \frac{q_i^\top H_i H_{i-1} \cdots H_{j+1}\, k_j}{\sqrt d},\qquad H_t = I - \beta_t\, w_t
w_t^\top,\qquad o_i = \sum_{j \le i} \mathrm{softmax}_j(s_{ij})\, v_j$$

$w_t$ has length 1 and $\beta_t = 2\,\sigma(x_t w_\beta + b_\beta)$ lies between 0 and 2: with
$\beta = 1$ what lies along $w_t$ is gone, with $\beta = 2$ it changes its sign. It is the matrix by
which the delta rule changes its state (``recurrence.deltanet``); without the softmax the scores are
those of the recurrence $S_t = H_t S_{t-1} + k_t v_t^\top$. With all $\beta = 0$ it is causal
attention without positions.

Cost: $2 h n^2 (d + e)$ FLOPs as for full attention. ``naive`` multiplies every query with the
matrix of every token, another $4 h n^2 d$; ``chunked`` multiplies those of later groups of chunks
alone, with the product of a whole group.

``naive``    the equation: from the last token to the first, all later queries meet the key, and
             then go through the matrix of the token.
``chunked``  the product of a chunk's matrices is $I - W^\top T W$ with $T$ the inverse of a
             triangular matrix (the WY representation), and the product of a group of chunks is that
             of its halves, so that queries go through whole groups.

``PaTHAttention.step`` decodes with a cache of turned keys: token t multiplies all of them by
$H_t$, after which its query is compared with them as in full attention.

The paper's letters: $H_t$, $w_t$ and $\beta_t$ are as here.

Common mistakes: the matrix of the key's own token does not count and that of the query's does; the
order of the product; caching keys as they were projected.

Departures.
- $w_t$ comes from two linear maps with 32 channels between them, a convolution of three tokens and
  SiLU, as in the released code, and is divided by its length
- padding has the matrix I and takes no place in the convolution
- a query without allowed keys gives zeros

Gives up. Each new token changes every key of the cache.

Yang, Shen, Wen, Tan, Mishra, Ren, Panda, Kim. PaTH Attention: Position Encoding via Accumulating
Householder Transformations. NeurIPS 2025, arXiv:2505.16381.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.card import Card, letters
from attnlab.core.carried import check_carried
from attnlab.core.convolution import last_inputs, short_convolution
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.recurrence import skipping_padding
from attnlab.core.shapes import NewTokens, Outputs, Queries, TokenPadding, Tokens, checked
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.positions.path.chunks import scores_in_chunks

SelfKeys = Float[Tensor, "b h n d"]
SelfValues = Float[Tensor, "b h n e"]
Directions = Float[Tensor, "b h n d"]  # w of each token, of length 1
Strengths = Float[Tensor, "b h n"]  # β of each token, from 0 to 2


@dataclass(frozen=True, kw_only=True)
class PaTHOptions(Options):
    """How directions are made, and how many tokens a chunk has.

    ``rank``   channels between the two maps that make w.
    ``width``  how many tokens its convolution reads, itself included.
    ``chunk``  tokens whose matrices are multiplied at once.
    """

    rank: Size = 32
    width: Size = 3
    chunk: Size = 32


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, w: Directions, beta: Strengths, *,
    padding: TokenPadding = None,
) -> Outputs:  # fmt: skip
    """The equation, from the last token to the first. Padding has the matrix I."""
    turned, columns, beta = q, [], _of_tokens(beta, padding)
    for j in reversed(range(k.shape[2])):
        columns.append((turned * k[:, :, j, None]).sum(-1))
        later, own = turned[:, :, j:], w[:, :, j, None]
        along = (later * own).sum(-1, keepdim=True)
        moved = later - beta[:, :, j, None, None] * along * own
        turned = torch.cat((turned[:, :, :j], moved), dim=2)
    scores = note("scores", torch.stack(columns[::-1], dim=-1) * q.shape[-1] ** -0.5)
    weights = note("weights", masked_softmax(scores, _past(padding, q)))
    return weights @ v


def _of_tokens(beta: Tensor, padding: Tensor | None) -> Tensor:
    """Strengths, 0 at padding."""
    return beta if padding is None else beta.masked_fill(~padding[:, None], 0)


def _past(padding: Tensor | None, q: Tensor) -> Tensor | None:
    return patterns.dense_of(patterns.visible(True, padding), q, q)


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, w: Directions, beta: Strengths, *,
    padding: TokenPadding = None, options: PaTHOptions = PaTHOptions(),
) -> Outputs:  # fmt: skip
    """The scores by chunks and groups of them: ``scores_in_chunks``."""
    made = scores_in_chunks(q, k, w, _of_tokens(beta, padding), options.chunk)
    scores = note("scores", made * q.shape[-1] ** -0.5)
    return note("weights", masked_softmax(scores, _past(padding, q))) @ v


FORMS = {"naive": naive, "chunked": chunked}

# ---- module


class State(NamedTuple):
    """Turned keys and the values of all tokens so far, and what the convolution still needs."""

    keys: Float[Tensor, "b h t d"]
    values: Float[Tensor, "b h t e"]
    inputs: Float[Tensor, "b p channels"]


class PaTHAttention(Layer):
    """Multi-head attention through products of reflections, causal: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "chunked"] = "chunked", bias: bool = False,
        options: PaTHOptions = PaTHOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.form, self.options = Heads(dim, heads, bias=bias), form, options
        self.causal = True
        self._attend = naive if form == "naive" else partial(chunked, options=options)
        self.down = nn.Linear(dim, options.rank, bias=False)
        self.up = nn.Linear(options.rank, dim, bias=False)
        bound = options.width**-0.5
        self.taps = nn.Parameter(torch.empty(dim, options.width).uniform_(-bound, bound))
        self.strength = nn.Linear(dim, heads)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self.heads.project(x, padding=padding)
        w = skipping_padding(lambda own: self._directions(self._inputs(own)), x, padding)
        w, beta = (
            self._split(w),
            note("strengths", self._strengths(zero_nonfinite_padding(x, padding))),
        )
        note("mask", patterns.visible(True, padding))
        return self.heads.merge(self._attend(q, k, v, w, beta, padding=padding))

    def _inputs(self, x: Tensor) -> Tensor:
        made: Tensor = self.up(self.down(x))
        return made

    def _directions(self, inputs: Tensor, before: Tensor | None = None) -> Tensor:
        return F.silu(short_convolution(inputs, self.taps, before))

    def _split(self, w: Tensor) -> Tensor:
        each = self.heads.split(w, self.heads.head_dim)
        return note("directions", F.normalize(upcast(each), dim=-1).to(w.dtype))

    def _strengths(self, x: Tensor) -> Tensor:
        found: Tensor = self.strength(x)
        return 2 * torch.sigmoid(found).mT

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        q, k, v = self.heads.project(x)
        inputs = self._inputs(x)
        if state is None:
            before = inputs.new_zeros(len(x), self.options.width - 1, inputs.shape[-1])
            state = State(upcast(k[:, :, :0]), v[:, :, :0], before)
        self._check(state, x, v)
        w, beta = self._split(self._directions(inputs, state.inputs)), self._strengths(x)
        keys, values = state.keys, torch.cat((state.values, v), dim=2)
        past, out = state.values.shape[2], []
        for t in range(x.shape[1]):
            own = w[:, :, t, None]
            keys = keys - beta[:, :, t, None, None] * (keys * own).sum(-1, keepdim=True) * own
            keys = torch.cat((keys, upcast(k[:, :, t, None])), dim=2)
            scores = upcast(q[:, :, t, None]) @ keys.mT * q.shape[-1] ** -0.5
            out.append(masked_softmax(scores) @ upcast(values[:, :, : past + t + 1]))
        joined = torch.cat(out, dim=2) if out else v
        kept = last_inputs(inputs, state.inputs)
        return self.heads.merge(joined.to(v.dtype)), note("state", State(keys, values, kept))

    def _check(self, state: State, x: Tensor, v: Tensor) -> None:
        h, d = self.heads.heads, self.heads.head_dim
        shapes = {
            "values": (state.values, (h, None, d)),
            "inputs": (state.inputs, (None, x.shape[-1])),
        }
        check_carried(shapes, len(x), v)
        check_carried({"keys": (state.keys, (h, state.values.shape[2], d))}, len(x), upcast(v))


# ---- card

h, n, d, e, c = letters("h n d e c")
groups = sympy.sqrt(n / c)

CARD = Card(
    __doc__,
    name="path",
    family="positions",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="a key goes through the matrices of the tokens after it",
    positions_reason="the matrices between a query and a key are its positions",
    options=PaTHOptions,
    letters={"c": "chunk"},
    time={
        "naive": 2 * h * n**2 * (3 * d + e),
        "chunked": h * n * (n * (2 * e + d) + d**2 * groups + 7 * c * (2 * d + c) + 2 * d**3 / c),
    },
    launches={"naive": n, "chunked": groups},
    memory=h * n**2,
    notes=dict.fromkeys(FORMS, ("scores", "weights")),
    variants=({"chunk": 3, "rank": 5}, {"chunk": 5, "width": 1}),
    build=PaTHAttention,
    aliases=("path_attention",),
    small_options={"chunk": 8},
)
