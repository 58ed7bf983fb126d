r"""S4D: a linear system with a memory, run as a recurrence and trained as a convolution.

A mass on a spring remembers how it was pushed: its position swings and fades. A state space is many
of them, driven by one channel of the input; the output is a mixture of their positions. S4D takes
each to be one complex number, a *mode*, whose pole $A$ says how fast it fades ($\mathrm{Re}\, A <
0$) and swings ($\mathrm{Im}\, A$). Tokens come with a step of time $\Delta$ between them:

$$x_k = \bar A x_{k-1} + \bar B u_k,\qquad y_k = 2\, \mathrm{Re} \sum_r C_r x_{k,r} + D u_k$$

$\bar A = e^{\Delta A}$ and $\bar B = (e^{\Delta A} - 1) B / A$ hold the input during a step
(``zoh``); ``bilinear`` takes the trapezoidal rule. As everything is linear and the same at all
times, the output is a convolution too, with $K_k = 2\, \mathrm{Re} \sum_r C_r \bar B_r \bar A_r^k$.
The n × n map of a channel is a lower triangular Toeplitz matrix. It does not depend on the tokens.

The state is worth something if the past can be read from it. HiPPO-LegS chooses A and B so that the
state holds the past as coefficients of Legendre polynomials, with a weight that fades
exponentially. ``legs`` takes the diagonal of its normal part, ``lin`` a damped Fourier series
($A_k = -1/2 + i \pi k$), ``inv`` a formula near the poles of LegS. ``reconstructed`` reads the past
from a state.

After the convolution come GELU and a gated linear unit, $W y \odot \sigma(W' y)$, position by
position.

Cost: $15\, n\, dim\, \log_2 2n + 4 N n\, dim$ FLOPs by Fourier transforms, $2 n\, dim\, (c + 2N)$
by chunks of c tokens; a token of a decoder costs the same whatever came before.

``naive``      the map as an n × n matrix per channel.
``recurrent``  the recurrence, one token at a time.
``fft``        the kernel by a Vandermonde product, then zero-padded Fourier transforms.
``chunked``    the matrix inside chunks, the state from one chunk to the next: exactly causal.

The paper's letters are ours, but for its L, our n, and its H, our dim; N counts conjugate modes too
(``state``), so that N / 2 are stored.

Common mistakes: a kernel that starts with $C \bar A \bar B$ (the state already holds the newest
token, so $K_0 = C \bar B$); a Fourier transform without zero padding, which is circular; the real
part taken once where half of the modes are stored.

Departures. ``legs`` starts with B = V* B / 2, as the theory has it; the released code clips B at 2
and leaves the 1/2 out. B is learned. Padded tokens are skipped. A residual connection,
normalisation and dropout are the model's.

Gu, Gupta, Goel, Ré. On the Parameterization and Initialization of Diagonal State Space Models.
NeurIPS 2022, arXiv:2206.11893. HiPPO: Gu, Dao, Ermon, Rudra, Ré, NeurIPS 2020, arXiv:2008.07669.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import state_space
from attnlab.core.card import Card, Paper, letters
from attnlab.core.carried import emptied
from attnlab.core.convolution import toeplitz
from attnlab.core.heads import Channels, fits
from attnlab.core.options import Options, Size
from attnlab.core.precision import exact_dtype, unrounded, wide
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state, skipping_padding
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked
from attnlab.core.state_space import Held, Modes, as_complex

PerChannel = Float[Tensor, "dim"]
PerMode = Float[Tensor, "dim r"]
Weights = Float[Tensor, "dim r 2"]  # real and imaginary parts


@dataclass(frozen=True, kw_only=True)
class StateSpace(Options):
    """The system of every channel, before it is learned.

    ``state``           numbers of state per channel (N), two for each mode that is stored
    ``discretization``  zero-order hold or the trapezoidal rule
    ``initial``         where the poles begin: legs, lin or inv
    ``shortest``        steps of time are drawn between this
    ``longest``         and this, on a logarithmic scale
    ``chunk``           tokens per chunk of the chunked form (c)
    """

    state: Size = 64
    discretization: Literal["zoh", "bilinear"] = "zoh"
    initial: Literal["legs", "lin", "inv"] = "legs"
    shortest: float = 0.001
    longest: float = 0.1
    chunk: Size = 64

    def check(self) -> None:
        if self.state % 2:
            raise ValueError(
                f"state should be even, got {self.state}: modes come in conjugate pairs, of which "
                "one is stored"
            )
        if not 0 < self.shortest <= self.longest:
            raise ValueError(
                f"steps should satisfy 0 < shortest <= longest, got {self.shortest} and "
                f"{self.longest}"
            )


class System(NamedTuple):
    """Decay Ā, drive B̄ (double precision) and weight C of every mode."""

    decay: Modes
    drive: Modes
    C: Modes


def system(
    frequency: PerMode, log_decay: PerMode, log_step: PerChannel, B: Weights, C: Weights,
    options: StateSpace,
) -> System:  # fmt: skip
    """The discretised system, with A = -e^log_decay + i frequency, so that it is always stable."""
    exact = exact_dtype(C.device)
    A = torch.complex(-log_decay.to(exact).exp(), frequency.to(exact))
    step = log_step.to(exact).exp()[:, None]
    decay, drive = state_space.RULES[options.discretization](step * A)
    return System(decay, step * drive * as_complex(B.to(exact)), as_complex(wide(C)))


# ---- reading the past from a state


@checked
def reconstructed(
    state: Float[Tensor, "... dim r 2"], decay: Modes, drive: Modes, n: Size
) -> Float[Tensor, "... dim n"]:
    """The last n tokens as the state remembers them, the oldest first.

    Of all inputs of n tokens that leave this state behind, the one of least energy: what no mode
    responds to is taken to be 0. ``decay`` and ``drive`` are those of a ``System``.
    """
    responses = drive[..., None] * state_space.powers(decay, n).flip(-1)  # (dim, r, n)
    rows = torch.cat((responses.real, responses.imag), dim=1)
    found = torch.linalg.pinv(rows, rtol=1e-6) @ state.mT.flatten(-2)[..., None].to(rows.dtype)
    return found[..., 0].to(state.dtype)


@checked
def legendre_past(
    state: Float[Tensor, "... r 2"], ages: Float[Tensor, "a"]
) -> Float[Tensor, "... a"]:
    """The input some ``ages`` ago (in units of time, of which a token takes one step) by the series
    that HiPPO-LegS stands for: u(t - s) = Σ_i x_i √(2i + 1) P_i(2 e^{-s} - 1).

    For states of the poles and B of ``legs``, as they begin.
    """
    _, _, V = state_space.legs(state.shape[-2])
    dense = 2 * (V @ as_complex(state.double())[..., None])[..., 0].real
    z = 2 * (-ages.double()).exp() - 1
    terms = [torch.ones_like(z), z]
    for i in range(1, len(V)):
        terms.append(((2 * i + 1) * z * terms[i] - i * terms[i - 1]) / (i + 1))
    root = (2 * torch.arange(len(V), device=z.device).double() + 1).sqrt()
    return ((dense * root) @ torch.stack(terms[: len(V)])).to(state.dtype)


# ---- naive


@checked
def naive(
    x: Tokens, frequency: PerMode, log_decay: PerMode, log_step: PerChannel, B: Weights,
    C: Weights, skip: PerChannel, *, options: StateSpace = StateSpace(),
) -> Tokens:  # fmt: skip
    """The matrix of every channel, T[i, j] = K[i - j] (Gu et al., section 2)."""
    decay, drive, out = system(frequency, log_decay, log_step, B, C, options)
    powers = state_space.powers(decay, x.shape[1])  # (dim, r, n)
    K = 2 * ((out * drive)[..., None] * powers).sum(dim=1).real
    with unrounded(x.device):
        weights = note("weights", toeplitz(note("kernel", K.to(wide(x).dtype))))
        mixed = torch.einsum("dij,bjd->bid", weights, wide(x))
    return (mixed + wide(skip) * wide(x)).to(x.dtype)


# ---- recurrent


@checked
def recurrent(
    x: Tokens, frequency: PerMode, log_decay: PerMode, log_step: PerChannel, B: Weights,
    C: Weights, skip: PerChannel, *, options: StateSpace = StateSpace(),
) -> Tokens:  # fmt: skip
    """The recurrence, token by token."""
    parts = system(frequency, log_decay, log_step, B, C, options)
    out, state = state_space.recurrent(wide(x), state_space.nothing(x, B.shape[1]), *parts)
    note("state", state)
    return (out + wide(skip) * wide(x)).to(x.dtype)


# ---- fft


@checked
def fft(
    x: Tokens, frequency: PerMode, log_decay: PerMode, log_step: PerChannel, B: Weights,
    C: Weights, skip: PerChannel, *, options: StateSpace = StateSpace(),
) -> Tokens:  # fmt: skip
    """The kernel by a Vandermonde product, then a convolution by Fourier transforms."""
    mixed = state_space.convolved(wide(x), *system(frequency, log_decay, log_step, B, C, options))
    return (mixed + wide(skip) * wide(x)).to(x.dtype)


# ---- chunked


@checked
def chunked(
    x: Tokens, frequency: PerMode, log_decay: PerMode, log_step: PerChannel, B: Weights,
    C: Weights, skip: PerChannel, *, options: StateSpace = StateSpace(),
) -> Tokens:  # fmt: skip
    """The matrix inside chunks of c tokens, the state from one chunk to the next."""
    parts = system(frequency, log_decay, log_step, B, C, options)
    begin = state_space.nothing(x, B.shape[1])
    out, state = state_space.advance(wide(x), begin, *parts, chunk=options.chunk)
    note("state", state)
    return (out + wide(skip) * wide(x)).to(x.dtype)


FORMS: dict[str, Callable[..., Tensor]] = {
    "naive": naive,
    "recurrent": recurrent,
    "fft": fft,
    "chunked": chunked,
}

# ---- module


class State(NamedTuple):
    """What a layer knows of the tokens before: N numbers per channel, at any length."""

    modes: Held

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """With nothing of the documents that have ended (b,)."""
        return emptied(self, ended)


class GatedOutput(nn.Linear):
    """GELU, then a gated linear unit: (…, inputs) → (…, dim)."""

    def __init__(self, inputs: int, dim: int) -> None:
        super().__init__(inputs, 2 * dim)

    def forward(self, y: Tensor) -> Tensor:
        return F.glu(super().forward(F.gelu(y)))


class S4D(nn.Module):
    """A state space for every channel, then GELU and GLU: (b, n, dim) → (b, n, dim), causal; zeros
    at padding.

    ``step`` decodes; its state is N numbers per channel. Every channel is a head of width one for
    ``lens.mixing_matrix``: its map is the Toeplitz matrix of the kernel, with D on the diagonal.
    """

    @checked
    def __init__(
        self, dim: Size, *, form: Literal["naive", "recurrent", "fft", "chunked"] = "chunked",
        options: StateSpace = StateSpace(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.dim, self.form, self.options = dim, form, options
        self.heads = Channels(dim, nn.Identity(), GatedOutput(dim, dim))
        A, B = initial(options)
        self.frequency = nn.Parameter(A.imag.float().repeat(dim, 1))
        self.log_decay = nn.Parameter((-A.real).log().float().repeat(dim, 1))
        shortest, longest = math.log(options.shortest), math.log(options.longest)
        self.log_step = nn.Parameter(torch.empty(dim).uniform_(shortest, longest))
        self.B = nn.Parameter(torch.view_as_real(B).float().repeat(dim, 1, 1))
        self.C = nn.Parameter(torch.randn(dim, len(A), 2) / 2**0.5)
        self.skip = nn.Parameter(torch.randn(dim))

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        fits(x, "x", self.dim, self.skip)
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        mixed = FORMS[self.form](
            self.heads.value(x), *self._learned(), self.skip, options=self.options
        )
        return self.heads.output(mixed)

    def _learned(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.frequency, self.log_decay, self.log_step, self.B, self.C

    @torch.no_grad()
    def system(self) -> System:
        """The discretised system as it is now, for ``reconstructed`` and for pictures."""
        return system(*self._learned(), self.options)

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        fits(x, "x", self.dim, self.skip)
        begin = State(state_space.nothing(x, self.B.shape[1]))
        if state is None:
            state = begin
        check_state(state, begin)
        u = self.heads.value(x)
        parts = system(*self._learned(), self.options)
        mixed, modes = state_space.advance(wide(u), state.modes, *parts, chunk=self.options.chunk)
        out = (mixed + wide(self.skip) * wide(u)).to(x.dtype)
        return self.heads.output(out), note("state", State(modes))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, form={self.form!r}, {self.options}".removesuffix(", ")


def initial(options: StateSpace) -> tuple[Complex[Tensor, "r"], Complex[Tensor, "r"]]:
    """A and B of one channel before learning."""
    modes = options.state // 2
    if options.initial == "legs":
        A, B, _ = state_space.legs(modes)
        return A, B
    A = {"lin": state_space.lin, "inv": state_space.inv}[options.initial](modes)
    return A, torch.ones_like(A)


# ---- card

n, dim, N, c = letters("n dim N c")

CARD = Card(
    name="s4d",
    title="S4D: diagonal state space",
    family="spectral",
    role="mix",
    paper=Paper(
        "Gu, Gupta, Goel, Ré",
        "On the Parameterization and Initialization of Diagonal State Space Models",
        "NeurIPS",
        2022,
        "2206.11893",
    ),
    forms=FORMS,
    causal="always",
    because="its state holds what was read before",
    options=StateSpace,
    letters={"N": "state", "c": "chunk"},
    time={
        "naive": 2 * n**2 * dim,
        "recurrent": 6 * n * N * dim,
        "fft": 15 * n * dim * sympy.log(2 * n, 2) + 4 * N * n * dim,
        "chunked": 2 * n * dim * (c + 2 * N),
    },
    memory={
        "naive": n**2 * dim,
        "recurrent": n * dim,
        "fft": 2 * n * dim + N * dim * sympy.sqrt(n),
        "chunked": n * dim * (1 + N / c) + c * dim * (c + N),
    },
    notes={
        "naive": ("kernel", "weights"),
        "recurrent": ("state",),
        "fft": ("kernel",),
        "chunked": ("state",),
    },
    departures=(
        "B is learned; under legs it starts as V* B / 2, which the released code clips",
        "padded tokens are skipped",
    ),
    variants=(
        {"state": 6, "discretization": "bilinear", "initial": "lin", "chunk": 3},
        {"state": 2, "initial": "inv"},
    ),
    build=S4D,
    aliases=("diagonal_state_space",),
    gives_up="The map depends on distance alone: no token is picked out by its content.",
)
