r"""TTT-Linear: test-time training. The state is a linear model that learns while it reads.

A recurrence compresses what it has read into its state. TTT makes the state the weights W, b of a
small model f, and the rule of the recurrence a step of gradient descent. Each token is a
pair of training data: from its key, f has to predict its value. Its query then asks f:

$$f(x) = x + \mathrm{LN}(x W + b),\qquad \ell_j = \tfrac12 \lVert f(k_j) - v_j \rVert^2,\qquad o_i =
f_i(q_i)$$

LN has a gain and an offset per channel of each head. Tokens come in mini-batches of c. The
gradients $G_j = \partial \ell_j / \partial (k_j W + b)$ of all tokens of a mini-batch are taken at
the W and b with which it began, so that they are computed at once. Token i reads what those up to
itself have taught:

$$W_i = W - \alpha_i \sum_{j \le i} \eta_j\, k_j^\top G_j,\qquad b_i = b - \alpha_i \sum_{j \le i}
\eta_j\, G_j,\qquad \eta_j = \frac{\eta}{d}\, \sigma(x_j w + u)$$

$\eta_j$ is the step of the token that teaches. $\alpha_i = \max(1 / (i + 1) + \delta_i, 0)$ is a
weight of the place i of the token that reads, from 0 in each mini-batch, with $\delta$ learned:
with $\delta = 0$ the step along the mean of the gradients. The last token of a mini-batch
leaves its W and b to the next. The W of the first is learned as well.

In the *dual form* no $W_i$ is formed. With a column of ones beside Q and K, and b as the last row
of W, the inner outputs of a mini-batch are

$$Q W - \mathrm{diag}(\alpha)\, \mathrm{tril}(Q K^\top)\, \mathrm{diag}(\eta)\, G$$

With ``norm=False``, f(x) = x W + b with the gain and the offset alone: from W = 0 a mini-batch with
$\alpha \eta = 1$ is causal linear attention, in which b adds the sum of the values; mini-batches of
1 are the delta rule of step $\alpha \eta$ on keys with a one beside them. Titans learns with a
momentum and a decay of W in addition: $M_t = (1 - \alpha_t) M_{t-1} + S_t$ and $S_t = \eta_t
S_{t-1} - \theta_t \nabla \lVert k_t M_{t-1} - v_t \rVert^2$. Without both it is the delta rule of
step $2 \theta$.

Around the recurrence: queries and keys are turned by their places (RoPE with positions from 0 in
each mini-batch); all heads together are normalised (mean and variance), with ``gate=True``
multiplied by GELU of another projection, and projected.

Cost: $6\, n h\, d^2$ FLOPs by the primal form and $n h\, (8 d^2 + 4 c d)$ by the dual one, in
n / c steps.

``naive``    the primal form, one token after the other: teach, take the step, read.
``chunked``  the dual form, one mini-batch after the other.

The paper's letters: its b (mini-batch) is our c; $\theta_K x$, $\theta_V x$, $\theta_Q x$ are k, v,
q.

Common mistakes: a start at W = 0, where LN divides by the root of its small constant; gradients at
the W of each token; the place of the token that teaches in place of the one that reads.

Readings. The layer follows the released code.

Departures.
- padded tokens are skipped: places are counted over real tokens

Gives up. Mini-batches follow one another: what is learned in one is not linear in what came before.

Sun, Li, Dalal, Xu, Vikram, Zhang, Dubois, Chen, Wang, Koyejo, Hashimoto, Guestrin. Learning to
(Learn at Test Time): RNNs with Expressive Hidden States. 2024, arXiv:2407.04620.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.forms import form, upcasting, with_options
from attnlab.core.heads import check_input
from attnlab.core.matrix_memory import MatrixMemory, PerToken
from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state
from attnlab.core.shapes import NewTokens, Queries, SelfKeys, Tokens, checked
from attnlab.mechanisms.recurrence.ttt_linear.inner import (
    Inner,
    NormalisedOutput,
    State,
    advanced_together,
    predicted,
    slope,
    turned,
)

PerPlace = Float[Tensor, "n"]
Gains = Float[Tensor, "h d"]
Weights = Float[Tensor, "h d d"]


@dataclass(frozen=True, kw_only=True)
class TTTLinearOptions(Options):
    """The inner model and how it learns.

    ``mini_batch``  tokens whose gradients are taken at the same weights (c)
    ``rate``        the largest step of a token, times d (η)
    ``norm``        whether f(x) is x + LN(x W + b), or x W + b with LN's gain and offset alone
    ``gate``        whether the output is multiplied by GELU of a projection
    """

    mini_batch: Size = 16
    rate: float = 1.0
    norm: bool = True
    gate: bool = False


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfKeys, step: PerToken, place: PerPlace, gain: Gains,
    offset: Gains, W: Weights, b: Gains, *, options: TTTLinearOptions = TTTLinearOptions(),
) -> Queries:  # fmt: skip
    """Teach, take the step and read, token by token; ``step`` is the logit of η, ``place`` δ."""
    inner, eta, alpha = ruled(q, step, place, gain, offset, options)
    W, b = (x.expand(len(q), *x.shape) for x in (W, b[:, None]))
    sums, out = (0 * W, 0 * b), []
    for t, (qi, ki, vi) in enumerate(zip(*(x.split(1, dim=2) for x in (q, k, v)), strict=True)):
        G = eta[:, :, t, None] * slope(inner, ki, ki @ W + b, vi)
        sums = sums[0] + ki.mT @ G, sums[1] + G
        W_t, b_t = W - alpha[t] * sums[0], b - alpha[t] * sums[1]
        out.append(predicted(inner, qi, qi @ W_t + b_t))
        if (t + 1) % options.mini_batch == 0:
            W, b, sums = W_t, b_t, (0 * W, 0 * b)
    note("state", W_t)
    return torch.cat(out, dim=2)


def ruled(
    q: Queries, step: PerToken, place: PerPlace, gain: Gains, offset: Gains,
    options: TTTLinearOptions, start: int = 0,
) -> tuple[Inner, Tensor, Tensor]:  # fmt: skip
    """What the inner model is, η (b, h, n, 1) and α (n, 1, 1), the first token at ``start``."""
    at = (start + torch.arange(len(place), device=place.device)) % options.mini_batch
    alpha = (1 / (at + 1).to(place.dtype) + place).clamp(min=0)
    eta = options.rate / q.shape[-1] * torch.sigmoid(step)[..., None]
    inner = Inner(gain[:, None], offset[:, None], options.norm)
    return inner, note("steps", eta), alpha[:, None, None]


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfKeys, step: PerToken, place: PerPlace, gain: Gains,
    offset: Gains, W: Weights, b: Gains, *, options: TTTLinearOptions = TTTLinearOptions(),
) -> Queries:  # fmt: skip
    """The dual form, one mini-batch after the other."""
    start = fresh(q)
    out, state = advance(q, k, v, step, place, gain, offset, W, b, start, 0, options)
    note("state", state.learned)
    return out


def fresh(q: Queries) -> State:
    """The state before the first token: nothing learned."""
    size = (*q.shape[:2], q.shape[3] + 1, q.shape[3])
    nothing = upcast(q).new_zeros(size)
    return State(nothing, nothing, torch.zeros(len(q), 1, dtype=torch.int64, device=q.device))


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfKeys, step: PerToken, place: PerPlace, gain: Gains,
    offset: Gains, W: Weights, b: Gains, state: State, start: int, options: TTTLinearOptions,
) -> tuple[Queries, State]:  # fmt: skip
    """The outputs of the next tokens after ``state``, and the state after them; all sequences are
    at the place ``start`` of a mini-batch."""
    inner, eta, alpha = ruled(q, step, place, gain, offset, options, start)
    first = torch.cat((W, b[:, None]), dim=1)
    W, sums, out = first + state.learned, state.gradients, []
    size = min(options.mini_batch - start, q.shape[2])
    sizes = [size, *[options.mini_batch] * ((q.shape[2] - size) // options.mini_batch)]
    sizes += [q.shape[2] - sum(sizes)] * (sum(sizes) < q.shape[2])
    beside = (F.pad(x, (0, 1), value=1.0) for x in (q, k))
    for q1, k1, qs, ks, vs, etas, alphas in zip(
        *(x.split(sizes, dim=2) for x in (*beside, q, k, v, eta)), alpha[:, 0].split(sizes),
        strict=True,
    ):  # fmt: skip
        G = etas * slope(inner, ks, k1 @ W, vs)
        taught = q1 @ sums + (q1 @ k1.mT).tril() @ G
        out.append(predicted(inner, qs, q1 @ W - alphas * taught))
        sums, start = sums + k1.mT @ G, start + qs.shape[2]
        if start == options.mini_batch:
            W, sums, start = W - alphas[-1] * sums, torch.zeros_like(sums), 0
    at = torch.full_like(state.place, start)
    return torch.cat(out, dim=2), State(W - first, sums, at)


FORMS = {"naive": naive, "chunked": chunked}

# ---- module


class TTTLinear(MatrixMemory):
    """Multi-head TTT-Linear: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``head_dim`` d, which is even, defaults to dim / heads. ``step`` decodes; its state is what W
    and b have learned, the gradients of the mini-batch that has begun, and the place in it. The map
    of ``lens.mixing_matrix`` is one of derivatives: the output is not linear in the values.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "chunked"] = "chunked",
        options: TTTLinearOptions = TTTLinearOptions(), head_dim: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, width=None, head_dim=head_dim, value_dim=None)
        d = self.head_dim
        if d % 2:
            raise ValueError(
                f"dim={dim} with heads={heads} gives heads of width {d}, but pairs are turned: "
                "choose heads of an even width"
            )
        self.form, self.options = form, options
        self.forms = with_options(FORMS, options)
        self.steps = nn.Linear(dim, heads)
        self.places = nn.Parameter(torch.zeros(options.mini_batch))
        self.gain, self.offset = (
            nn.Parameter(torch.ones(heads, d)),
            nn.Parameter(torch.zeros(heads, d)),
        )
        self.start, self.start_bias = (
            nn.Parameter(0.02 * torch.randn(heads, d, d)), nn.Parameter(torch.zeros(heads, d)),
        )  # fmt: skip
        self.set_output(NormalisedOutput(dim, heads * d, gate=options.gate))

    def taken(self, x: Tokens, start: int = 0) -> tuple[Tensor, ...]:
        """What the forms take; the first token at the place ``start`` of a mini-batch."""
        q, k, v = self._projected(self.into(x), None)
        at = (start + torch.arange(x.shape[1], device=x.device)) % self.options.mini_batch
        q, k = turned(q, at), turned(k, at)
        rules = (self.places[at], self.gain, self.offset, self.start, self.start_bias)
        return q, k, v, self.steps(x).mT, *rules

    @checked
    def step(  # type: ignore[override]
        self, x: NewTokens, state: State | None = None
    ) -> tuple[NewTokens, State]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        check_input(x, "x", self.dim, self.into.weight)
        begin = fresh(x.new_zeros(len(x), self.key_heads, 0, self.head_dim))
        if state is None:
            state = begin
        check_state(state, begin)
        out, after = advanced_together(self._read, x, state)
        return self._output(out, x, None), note("state", after)

    def _read(self, x: Tokens, state: State, at: int) -> tuple[Tensor, State]:
        q, k, v, step, place, gain, offset, W, b = self.taken(x, at)
        return advance(q, k, v, step, place, gain, offset, W, b, state, at, self.options)


# ---- card

n, h, d, c = letters("n h d c")

CARD = Card(
    __doc__,
    name="ttt_linear",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its weights have learned from what was read before",
    options=TTTLinearOptions,
    letters={"c": "mini_batch"},
    time={"naive": 6 * h * n * d**2, "chunked": h * n * (8 * d**2 + 4 * c * d)},
    launches={"naive": n, "chunked": n / c},
    memory={"naive": 3 * h * n * d, "chunked": h * n * (3 * d + c)},
    notes={"naive": ("steps", "state"), "chunked": ("steps", "state")},
    variants=({"mini_batch": 3}, {"mini_batch": 5, "norm": False, "rate": 0.125, "gate": True}),
    build=TTTLinear,
    aliases=("ttt", "test_time_training"),
)
