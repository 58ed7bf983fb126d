r"""H3: two state spaces and two products, in place of comparing tokens.

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

Departures. The shift's skip D is part of its first tap. Poles begin as those of S4D-Lin. Padded
tokens are skipped.

Fu, Dao, Saab, Thomas, Rudra, Ré. Hungry Hungry Hippos: Towards Language Modeling with State Space
Models. ICLR 2023, arXiv:2212.14052, section 3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core import state_space
from attnlab.core.card import Card, Paper, letters
from attnlab.core.carried import emptied
from attnlab.core.convolution import (
    fourier_convolution,
    last_inputs,
    short_convolution,
    toeplitz,
)
from attnlab.core.heads import Heads
from attnlab.core.options import Options, Size
from attnlab.core.precision import exact_dtype, unrounded, wide, widened
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

Taps = Float[Tensor, "h d p"]  # of the shift, the first for the token itself
PerHead = Float[Tensor, "h"]
PerMode = Float[Tensor, "h r"]
Weights = Float[Tensor, "h r 2"]  # C B, real and imaginary parts


@dataclass(frozen=True, kw_only=True)
class Hippos(Options):
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


def _system(
    frequency: PerMode, log_decay: PerMode, log_step: PerHead, weight: Weights
) -> tuple[Tensor, Tensor]:
    """Ā and C B̄ by zero-order hold, in double precision."""
    exact = exact_dtype(weight.device)
    A = torch.complex(-log_decay.to(exact).exp(), frequency.to(exact))
    step = log_step.to(exact).exp()[:, None]
    decay, drive = state_space.zero_order_hold(step * A)
    return decay, step * drive * state_space.as_complex(weight.to(exact))


def shifted(k: SelfKeys, taps: Taps, before: Tensor | None = None) -> SelfKeys:
    """Keys after the shift, each channel by its own taps."""
    merged = k.transpose(1, 2).flatten(2)
    out = short_convolution(merged, taps.flatten(0, 1), before)
    return out.unflatten(2, k.shape[1::2]).transpose(1, 2)


# ---- naive


@checked
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, taps: Taps, frequency: PerMode, log_decay: PerMode,
    log_step: PerHead, weight: Weights, skip: PerHead, *, options: Hippos = Hippos(),
) -> Outputs:  # fmt: skip
    """The matrix of every head (Fu et al., section 3.1, written out)."""
    decay, CB = _system(frequency, log_decay, log_step, weight)
    K = 2 * (CB[..., None] * state_space.powers(decay, q.shape[2])).sum(dim=1).real
    K = K.to(wide(v).dtype)
    with unrounded(v.device):
        wide_q, wide_k, wide_v, K = widened(q, k, v, K)
        scores = note("scores", wide_q @ shifted(wide_k, wide(taps)).mT)
        weights = note("weights", scores * _with_skip(toeplitz(note("kernel", K)), skip))
        return (weights @ wide_v).to(v.dtype)


def _with_skip(map_: Tensor, skip: Tensor) -> Tensor:
    """The matrix of every head (h, n, n), with D on the diagonal."""
    eye = torch.eye(map_.shape[-1], dtype=map_.dtype, device=map_.device)
    return map_ + wide(skip)[:, None, None] * eye


# ---- fft


@checked
def fft(
    q: Queries, k: SelfKeys, v: SelfValues, taps: Taps, frequency: PerMode, log_decay: PerMode,
    log_step: PerHead, weight: Weights, skip: PerHead, *, options: Hippos = Hippos(),
) -> Outputs:  # fmt: skip
    """All products of a key's and a value's entries, convolved by Fourier transforms."""
    decay, CB = _system(frequency, log_decay, log_step, weight)
    with unrounded(v.device):
        wide_q, wide_k, wide_v = widened(q, k, v)
        K = note(
            "kernel",
            state_space.kernel(decay, CB.to(state_space.COMPLEX[wide_v.dtype]), q.shape[2]),
        )
        keys = shifted(wide_k, wide(taps))
        products = keys.mT[:, :, :, None] * wide_v.mT[:, :, None]  # (b, h, d, e, n)
        carried = fourier_convolution(products, K[:, None, None])
        carried = carried + wide(skip)[:, None, None, None] * products
        return torch.einsum("bhnd,bhden->bhne", wide_q, carried).to(v.dtype)


# ---- chunked


@checked
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, taps: Taps, frequency: PerMode, log_decay: PerMode,
    log_step: PerHead, weight: Weights, skip: PerHead, *, options: Hippos = Hippos(),
) -> Outputs:  # fmt: skip
    """The matrix inside chunks of c tokens, the state from one chunk to the next."""
    keys = shifted(wide(k), wide(taps))
    system = _system(frequency, log_decay, log_step, weight)
    out, state = advance(q, keys, v, nothing(k, v, weight), *system, skip, options.chunk)
    note("state", state)
    return out


def nothing(k: SelfKeys, v: SelfValues, weight: Weights) -> Float[Tensor, "b h r d e 2"]:
    """The state before the first token."""
    (b, h, _, d), r = k.shape, weight.shape[1]
    return wide(v).new_zeros(b, h, r, d, v.shape[3], 2)


def advance(
    q: Queries, keys: SelfKeys, v: SelfValues, state: Tensor, decay: Tensor, CB: Tensor,
    skip: PerHead, chunk: int,
) -> tuple[Outputs, Tensor]:  # fmt: skip
    """The outputs of the next tokens after ``state``, and the state after them; ``keys`` are
    shifted."""
    wide_q, wide_k, wide_v = widened(q, keys, v)
    kind = state_space.COMPLEX[wide_v.dtype]
    c = min(chunk, q.shape[2])
    past = state_space.powers(decay, c + 1)  # (h, r, c + 1)
    K = 2 * (CB[..., None] * past[..., :-1]).sum(dim=1).real.to(wide_v.dtype)
    # Of a complex product the real part alone is wanted: real parts and imaginary ones apart.
    read = torch.view_as_real(2 * (CB[..., None] * past[..., 1:]).conj_physical().to(kind))
    fading, past, S, out = torch.view_as_real(past.to(kind)), past.to(kind), state, []
    with unrounded(v.device):
        inside = _with_skip(toeplitz(K), skip)
        for qi, ki, vi in zip(*(x.split(c, dim=2) for x in (wide_q, wide_k, wide_v)), strict=True):
            t = qi.shape[2]
            near = (qi @ ki.mT * inside[:, :t, :t]) @ vi
            weighed = torch.einsum("hrtc,bhrdec->bhtde", read[:, :, :t], S)
            out.append(near + (qi[..., None, :] @ weighed)[..., 0, :])
            faded = fading[:, :, :t].flip(2)[..., None, :] * ki[:, :, None, ..., None]
            kept = past[..., t, None, None] * state_space.as_complex(S)
            S = torch.view_as_real(kept) + torch.einsum("bhrtdc,bhte->bhrdec", faded, vi)
        return torch.cat(out, dim=2).to(v.dtype), S


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "fft": fft, "chunked": chunked}

# ---- module


class State(NamedTuple):
    """What a layer knows of the tokens before: dim · (N d + p - 1) numbers per sequence."""

    products: Float[Tensor, "b h r d e 2"]
    keys: Float[Tensor, "b _ dim"]  # the last, before the shift

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """With nothing of the documents that have ended (b,)."""
        return emptied(self, ended)


class H3(nn.Module):
    """Projections, shift, diagonal state space and gates: (b, n, dim) → (b, n, dim), causal; zeros
    at padding. ``step`` decodes.

    ``lens.mixing_matrix`` is exact: one map per head, that of ``naive``.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "fft", "chunked"] = "chunked",
        options: Hippos = Hippos(), bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias)
        self.dim, self.form, self.options = dim, form, options
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
        self.heads.fits(x, "x")
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        q, k, v = self.heads.project(x)
        out = FORMS[self.form](q, k, v, self.taps, *self._poles(), self.skip, options=self.options)
        return self.heads.merge(out)

    def _poles(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.frequency, self.log_decay, self.log_step, self.weight

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        self.heads.fits(x, "x")
        q, k, v = self.heads.project(x)
        reach = self.options.shift - 1
        begin = State(nothing(k, v, self.weight), k.new_zeros(len(x), reach, x.shape[2]))
        if state is None:
            state = begin
        check_state(state, begin)
        keys = shifted(wide(k), wide(self.taps), wide(state.keys))
        system = _system(*self._poles())
        out, products = advance(q, keys, v, state.products, *system, self.skip, self.options.chunk)
        after = State(products, last_inputs(self.heads.join(k), state.keys))
        return self.heads.merge(out), note("state", after)

    def extra_repr(self) -> str:
        return f"form={self.form!r}, {self.options}".removesuffix(", ")


# ---- card

n, h, d, N, c, p = letters("n h d N c p")

CARD = Card(
    name="h3",
    title="H3: shift, state space and gates",
    family="recurrence",
    role="mix",
    paper=Paper(
        "Fu, Dao, Saab, Thomas, Rudra, Ré",
        "Hungry Hungry Hippos: Towards Language Modeling with State Space Models",
        "ICLR",
        2023,
        "2212.14052",
    ),
    forms=FORMS,
    causal="always",
    because="its state holds what was read before",
    options=Hippos,
    letters={"N": "state", "c": "chunk", "p": "shift"},
    time={
        "naive": 4 * n**2 * h * d + 2 * n * h * d * p,
        "fft": n * h * (d**2 * (10 * sympy.log(2 * n, 2) + 2) + 4 * N + 2 * d * p),
        "chunked": n * h * d * (4 * (c + N * d) + 2 * d + 2 * p),
    },
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
    departures=(
        "the shift's skip is part of its first tap",
        "poles begin as those of S4D-Lin",
        "padded tokens are skipped",
    ),
    variants=({"state": 6, "shift": 2, "chunk": 3}, {"state": 2, "shift": 1}),
    build=H3,
    aliases=("hungry_hungry_hippos",),
    gives_up="No softmax: weights are products of a query, a key and a kernel, of either sign.",
)
