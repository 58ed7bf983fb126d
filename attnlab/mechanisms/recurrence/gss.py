r"""GSS: gated state space. One branch of a gated unit goes through a state space of few channels.

A gated linear unit multiplies two projections of a token. GSS sends one of the two through a
diagonal state space, which is then the only place where tokens meet. The convolution is the dear
part, so it runs on H = dim / 4 channels, and the gate on 4 · dim:

$$y = \big( (Y W_g) \odot V \big) W_o,\qquad Y = \mathrm{DSS}\big(\mathrm{norm}(\mathrm{GELU}(x
W_u))\big),\qquad V = \mathrm{GELU}(x W_v)$$

The state space of each channel has N complex modes that need no conjugates, with poles
$A = -e^a + i e^b$ that all channels share, a step of 1 and B = 1:

$$K_k = \mathrm{Re} \sum_r C_r\, \frac{e^{A_r} - 1}{A_r}\, e^{A_r k},\qquad
Y = K * U + D U$$

With C = 0 and D = 1 the layer works position by position. It is linear in what the state space
takes, and one Toeplitz matrix per channel, whatever the tokens are.

Cost: by Fourier transforms $15\, n\, H \log_2 2n + 8 N n\, H$ FLOPs, H = dim / k with k the option
``narrow``; by chunks of c tokens $2 n\, H\, (c + 4 N)$.

``naive``    the kernel as a Toeplitz matrix per channel.
``fft``      the kernel by a Vandermonde product, then zero-padded Fourier transforms.
``chunked``  the matrix inside chunks, the state from one chunk to the next: exactly causal.
             ``step`` decodes with that state.

The paper's letters: its L is our n, E our dim, F and H the widths of the gate and of the state
space.

Common mistakes: the exponential of the imaginary part left out (S4D has none); a sigmoid on the
gate, which has GELU; the real part taken twice: modes come without their conjugates.

Readings. Poles begin as in S4D-Lin, the first at a small angle instead of 0; with a step of 1 these
angles are multiples of π, so that before training all modes decay by one of two numbers, $e^{-1/2}$
and $-e^{-1/2}$.

Departures.
- the first normalisation and the residual connection are the model's
- the state has 64 modes unless given; the paper's has 512
- padded tokens are skipped

Gives up. Where a token looks is fixed by distance; content enters by a gate alone.

Mehta, Gupta, Cutkosky, Neyshabur. Long Range Language Modeling via Gated State Spaces. ICLR 2023,
arXiv:2206.13947, section 3.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import state_space
from attnlab.core.card import Card, letters
from attnlab.core.carried import reset_rows
from attnlab.core.convolution import toeplitz
from attnlab.core.forms import form, with_options
from attnlab.core.heads import Channels, check_input
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.precision import exact_dtype, upcast
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state, skipping_padding
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked
from attnlab.core.state_space import Held

PerChannel = Float[Tensor, "dim"]
PerMode = Float[Tensor, "r"]
Weights = Float[Tensor, "dim r 2"]  # real and imaginary parts


@dataclass(frozen=True, kw_only=True)
class GSSOptions(Options):
    """Widths of the layer and of its state space.

    ``state``   complex modes per channel (N)
    ``narrow``  by how much the state space is narrower than the model (k)
    ``wide``    by how much the gate is wider (w)
    ``chunk``   tokens per chunk of the chunked form (c)
    """

    state: Size = 64
    narrow: Size = 4
    wide: Size = 4
    chunk: Size = 64


# ---- naive


@form
def naive(x: Tokens, a: PerMode, b: PerMode, C: Weights, skip: PerChannel) -> Tokens:
    """The Toeplitz matrix of every channel (Mehta et al., section 3.1 and its pseudocode)."""
    decay, drive, half = _system(a, b, C)
    powers = state_space.powers(decay, x.shape[1])  # (dim, r, n)
    K = 2 * ((half * drive)[..., None] * powers).sum(dim=1).real
    weights = note("weights", toeplitz(note("kernel", K.to(x.dtype))))
    return torch.einsum("dij,bjd->bid", weights, x) + skip * x


def _system(a: PerMode, b: PerMode, C: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """Ā and B̄ of every mode in double precision, and C / 2: the parts shared with S4D take each
    mode twice."""
    exact = exact_dtype(C.device)
    decay, drive = state_space.zero_order_hold(torch.complex(-a.to(exact).exp(), b.to(exact).exp()))
    decay, drive = (part.expand(len(C), -1) for part in (decay, drive))
    return decay, drive, state_space.as_complex(upcast(C)) / 2


# ---- fft


@form
def fft(x: Tokens, a: PerMode, b: PerMode, C: Weights, skip: PerChannel) -> Tokens:
    """The kernel by a Vandermonde product, then a convolution by Fourier transforms."""
    return state_space.convolved(x, *_system(a, b, C)) + skip * x


# ---- chunked


@form
def chunked(
    x: Tokens, a: PerMode, b: PerMode, C: Weights, skip: PerChannel,
    *, options: GSSOptions = GSSOptions(),
) -> Tokens:  # fmt: skip
    """The matrix inside chunks of c tokens, the state from one chunk to the next."""
    begin = state_space.initial_state(x, len(a))
    out, state = state_space.advance(x, begin, *_system(a, b, C), chunk=options.chunk)
    note("state", state)
    return out + skip * x


FORMS = {"naive": naive, "fft": fft, "chunked": chunked}

# ---- module


class State(NamedTuple):
    """What a layer knows of the tokens before: 2 N numbers for each of its narrow channels."""

    modes: Held

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """With nothing of the documents that have ended (b,)."""
        return reset_rows(self, ended)


class GatedOutput(nn.Module):
    """The state space's output widened, times the gate, projected: (Y W_g ⊙ V) W_o."""

    def __init__(self, narrow: int, hidden: int, dim: int) -> None:
        super().__init__()
        self.widen = nn.Linear(narrow, hidden, bias=False)
        self.project = nn.Linear(hidden, dim, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.project.weight

    def forward(self, y: Tensor, gate: Tensor) -> Tensor:
        return self.project(self.widen(y) * gate)


class GSS(Layer):
    """A gated state space: (b, n, dim) → (b, n, dim), causal; zeros at padding. ``step`` decodes.

    Every narrow channel is a head of width one for ``lens.mixing_matrix``.
    """

    @checked
    def __init__(
        self, dim: Size, *, form: Literal["naive", "fft", "chunked"] = "chunked",
        options: GSSOptions = GSSOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        if dim % options.narrow:
            raise ValueError(
                f"narrow={options.narrow} does not divide dim={dim}: choose one of its divisors"
            )
        self.dim, self.form, self.options = dim, form, options
        self.forms = with_options(FORMS, options)
        channels, hidden = dim // options.narrow, dim * options.wide
        value = nn.Sequential(
            nn.Linear(dim, channels, bias=False), nn.GELU(), nn.LayerNorm(channels)
        )
        self.heads = Channels(channels, value, GatedOutput(channels, hidden, dim))
        self.gate = nn.Linear(dim, hidden, bias=False)
        poles, kind = state_space.lin(options.state), torch.get_default_dtype()
        self.a = nn.Parameter((-poles.real).log().to(kind))
        self.b = nn.Parameter(poles.imag.clamp(min=0.01).log().to(kind))
        self.C = nn.Parameter(torch.randn(channels, options.state, 2) / options.state**0.5)
        self.skip = nn.Parameter(torch.randn(channels))

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        check_input(x, "x", self.dim, self.skip)
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        mixed = self.forms[self.form](self.heads.value(x), self.a, self.b, self.C, self.skip)
        return self.heads.output(mixed, F.gelu(self.gate(x)))

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        check_input(x, "x", self.dim, self.skip)
        u = self.heads.value(x)
        begin = State(state_space.initial_state(u, len(self.a)))
        if state is None:
            state = begin
        check_state(state, begin)
        parts = _system(self.a, self.b, self.C)
        mixed, modes = state_space.advance(upcast(u), state.modes, *parts, chunk=self.options.chunk)
        out = (mixed + upcast(self.skip) * upcast(u)).to(x.dtype)
        return self.heads.output(out, F.gelu(self.gate(x))), note("state", State(modes))


# ---- card

n, dim, N, c, k, w = letters("n dim N c k w")

CARD = Card(
    __doc__,
    name="gss",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=GSSOptions,
    letters={"N": "state", "c": "chunk", "k": "narrow", "w": "wide"},
    time={
        "naive": 2 * n**2 * dim / k,
        "fft": (15 * n * sympy.log(2 * n, 2) + 8 * N * n) * dim / k,
        "chunked": 2 * n * (c + 4 * N) * dim / k,
    },
    launches={"chunked": sympy.sqrt(n / c)},
    memory={
        "naive": w * n * dim + n**2 * dim / k,
        "fft": w * n * dim + (2 * n + N * sympy.sqrt(n)) * dim / k,
        "chunked": w * n * dim + (2 * n * N / c + c * (c + 2 * N)) * dim / k,
    },
    notes={"naive": ("kernel", "weights"), "fft": ("kernel",), "chunked": ("state",)},
    variants=({"state": 3, "chunk": 3}, {"narrow": 2, "state": 2, "wide": 1}),
    build=GSS,
    aliases=("gated_state_space",),
)
