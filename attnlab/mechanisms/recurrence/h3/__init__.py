r"""H3: shift, state space and gates. Two state spaces and two products replace comparing tokens.

A state space alone cannot compare tokens: its map depends on distance. H3 ("hungry hungry hippos")
puts products between two of them, so that it can do what a recall task asks for: notice that a
token came before, and give back what followed it.

$$y = q \odot \mathrm{SSM}_{diag}\big( \mathrm{SSM}_{shift}(k) \odot v \big)$$

The shift is a short convolution: it puts a key beside the value of the token after it. The
diagonal state space carries the product through the sequence, and the query reads it. With heads
of width d the product is an outer one: a state space carries each of the d × d entries of
$\bar k_j v_j^\top$, all of a head with one kernel K. Written out,

$$y_i = \sum_{j \le i} K_{i - j}\, (q_i \cdot \bar k_j)\, v_j + D\, (q_i \cdot \bar k_i)\, v_i,
\qquad \bar k = \mathrm{SSM}_{shift}(k)$$

linear attention without a denominator, whose weights depend on the distance by the kernel of a
state space. With the identity as shift and K = 1 it is that.

Cost: $4 n^2 d h$ FLOPs of ``naive``; by chunks of c tokens $4 n\, h\, d\, (c + N d)$.

``naive``    the matrix $K_{i-j}\, q_i \cdot \bar k_j$ of every head.
``fft``      all d × d products of a head, convolved by Fourier transforms.
``chunked``  the matrix inside chunks, N / 2 complex matrices d × d from one to the next: exactly
             causal. ``step`` decodes with them.

The paper's letters are ours, but for its N, our n, and m, our N (``state``).

Common mistakes: a key that meets its own value (without a shift nothing is recalled but the token
itself); products in the place of the convolution's input and output exchanged.

Departures.
- the shift's skip is part of its first tap
- poles begin as those of S4D-Lin
- padded tokens are skipped

Gives up. No softmax: weights are products of a query, a key and a kernel, of either sign.

Fu, Dao, Saab, Thomas, Rudra, Ré. Hungry Hungry Hippos: Towards Language Modeling with State Space
Models. ICLR 2023, arXiv:2212.14052, section 3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core import state_space
from attnlab.core.card import Card, letters
from attnlab.core.convolution import (
    fourier_convolution,
    last_inputs,
    short_convolution,
    toeplitz,
)
from attnlab.core.forms import form, with_options
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.precision import exact_dtype, upcast
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
from attnlab.mechanisms.recurrence.h3.chunks import State, advance, initial_state, with_skip

__all__ = [
    "CARD", "FORMS", "H3", "H3Options", "State", "StateSpace", "advance", "chunked", "fft",
    "initial_state", "naive", "shifted",
]  # fmt: skip

Taps = Float[Tensor, "h d p"]  # of the shift, the first for the token itself


class StateSpace(NamedTuple):
    """The diagonal state space of each head: poles -e^log_decay + i frequency, steps e^log_step,
    C B as ``weight`` (real and imaginary parts), and D as ``skip``."""

    frequency: Float[Tensor, "h r"]
    log_decay: Float[Tensor, "h r"]
    log_step: Float[Tensor, "h"]
    weight: Float[Tensor, "h r 2"]
    skip: Float[Tensor, "h"]

    def discrete(self) -> tuple[Tensor, Tensor]:
        """Ā and C B̄ by zero-order hold, in double precision."""
        exact = exact_dtype(self.weight.device)
        A = torch.complex(-self.log_decay.to(exact).exp(), self.frequency.to(exact))
        step = self.log_step.to(exact).exp()[:, None]
        decay, drive = state_space.zero_order_hold(step * A)
        return decay, step * drive * state_space.as_complex(self.weight.to(exact))


@dataclass(frozen=True, kw_only=True)
class H3Options(Options):
    """Both state spaces, before they are learned.

    ``state``  numbers of state (N) for each product of a key's and a value's entry
    ``shift``  taps of the shift (p)
    ``chunk``  tokens per chunk of the chunked form (c)
    """

    state: Size = 64
    shift: Size = 64
    chunk: Size = 64

    def check(self) -> None:
        if self.state % 2:
            raise ValueError(
                f"state should be even, got {self.state}: modes come in conjugate pairs, of which "
                "one is stored"
            )


# ---- naive


@form
def naive(q: Queries, k: SelfKeys, v: SelfValues, taps: Taps, space: StateSpace) -> Outputs:
    """The matrix of every head (Fu et al., section 3.1, written out)."""
    decay, CB = space.discrete()
    K = 2 * (CB[..., None] * state_space.powers(decay, q.shape[2])).sum(dim=1).real
    scores = note("scores", q @ shifted(k, taps).mT)
    map_ = with_skip(toeplitz(note("kernel", K.to(v.dtype))), space.skip)
    return note("weights", scores * map_) @ v


def shifted(k: SelfKeys, taps: Taps, before: Tensor | None = None) -> SelfKeys:
    """Keys after the shift, each channel by its own taps."""
    merged = k.transpose(1, 2).flatten(2)
    out = short_convolution(merged, taps.flatten(0, 1), before)
    return out.unflatten(2, k.shape[1::2]).transpose(1, 2)


# ---- fft


@form
def fft(q: Queries, k: SelfKeys, v: SelfValues, taps: Taps, space: StateSpace) -> Outputs:
    """All products of a key's and a value's entries, convolved by Fourier transforms."""
    decay, CB = space.discrete()
    K = state_space.kernel(decay, CB.to(state_space.COMPLEX[v.dtype]), q.shape[2])
    products = shifted(k, taps).mT[:, :, :, None] * v.mT[:, :, None]  # (b, h, d, e, n)
    carried = fourier_convolution(products, note("kernel", K)[:, None, None])
    carried = carried + space.skip[:, None, None, None] * products
    return torch.einsum("bhnd,bhden->bhne", q, carried)


# ---- chunked


@form
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, taps: Taps, space: StateSpace, *,
    options: H3Options = H3Options(),
) -> Outputs:  # fmt: skip
    """The matrix inside chunks of c tokens, the state from one chunk to the next."""
    begin = initial_state(k, v, space.weight.shape[1])
    given = q, shifted(k, taps), v, begin, *space.discrete(), space.skip
    out, state = advance(*given, options.chunk)
    note("state", state)
    return out


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "fft": fft, "chunked": chunked}

# ---- module


class H3(Layer):
    """Projections, shift, diagonal state space and gates: (b, n, dim) → (b, n, dim), causal; zeros
    at padding. ``step`` decodes.

    ``lens.mixing_matrix`` is exact: one map per head, that of ``naive``.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "fft", "chunked"] = "chunked",
        options: H3Options = H3Options(), bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias)
        self.dim, self.form, self.options = dim, form, options
        self.forms = with_options(FORMS, options)
        modes, d = options.state // 2, self.heads.head_dim
        A, kind = state_space.lin(modes), torch.get_default_dtype()
        self.taps = nn.Parameter(torch.randn(heads, d, options.shift) / options.shift**0.5)
        self.frequency = nn.Parameter(A.imag.to(kind).repeat(heads, 1))
        self.log_decay = nn.Parameter((-A.real).log().to(kind).repeat(heads, 1))
        self.log_step = nn.Parameter(torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)))
        self.weight = nn.Parameter(torch.randn(heads, modes, 2) / 2**0.5)
        self.skip = nn.Parameter(torch.randn(heads))

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        self.heads.check_input(x, "x")
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        return self.heads.merge(
            self.forms[self.form](*self.heads.project(x), self.taps, self._space())
        )

    def _space(self) -> StateSpace:
        return StateSpace(self.frequency, self.log_decay, self.log_step, self.weight, self.skip)

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        self.heads.check_input(x, "x")
        q, k, v = self.heads.project(x)
        reach = self.options.shift - 1
        begin = State(
            initial_state(k, v, self.weight.shape[1]), k.new_zeros(len(x), reach, x.shape[2])
        )
        if state is None:
            state = begin
        check_state(state, begin)
        keys = shifted(upcast(k), upcast(self.taps), upcast(state.keys))
        given = q, keys, v, state.products, *self._space().discrete(), self.skip
        out, products = advance(*given, self.options.chunk)
        after = State(products, last_inputs(self.heads.join(k), state.keys))
        return self.heads.merge(out), note("state", after)


# ---- card

n, h, d, N, c, p = letters("n h d N c p")

CARD = Card(
    __doc__,
    name="h3",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=H3Options,
    letters={"N": "state", "c": "chunk", "p": "shift"},
    time={
        "naive": 4 * n**2 * h * d + 2 * n * h * d * p,
        "fft": n * h * (d**2 * (10 * sympy.log(2 * n, 2) + 2) + 4 * N + 2 * d * p),
        "chunked": n * h * d * (4 * (c + N * d) + 2 * d + 2 * p),
    },
    launches={"chunked": sympy.sqrt(n / c)},
    memory={
        "naive": h * n**2,
        "fft": 2 * n * h * d**2,
        "chunked": n * h * d + c * h * (c + d * (N + d)),
    },
    notes={
        "naive": ("kernel", "scores", "weights"),
        "fft": ("kernel",),
        "chunked": ("state",),
    },
    variants=({"state": 6, "shift": 2, "chunk": 3}, {"state": 2, "shift": 1}),
    build=H3,
    aliases=("hungry_hungry_hippos",),
)
