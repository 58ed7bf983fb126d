r"""S4D: diagonal state space. A linear system, run as a recurrence, trained as a convolution.

A mass on a spring remembers how it was pushed: its position swings and fades. A state space is many
of them, driven by one channel of the input; the output is a mixture of their positions. S4D takes
each to be one complex number, a *mode*, whose pole $A$ says how fast it fades ($\mathrm{Re}\, A <
0$) and swings ($\mathrm{Im}\, A$). Tokens come with a step of time $\Delta$ between them:

$$x_k = \bar A x_{k-1} + \bar B u_k,\qquad y_k = 2\, \mathrm{Re} \sum_r C_r x_{k,r} + D u_k$$

$\bar A = e^{\Delta A}$ and $\bar B = (e^{\Delta A} - 1) B / A$ hold the input during a step
(``zoh``); ``bilinear`` takes the trapezoidal rule. As everything is linear and the same at all
times, the output is a convolution too, with $K_k = 2\, \mathrm{Re} \sum_r C_r \bar B_r \bar A_r^k$.
The n × n map of a channel is a lower triangular Toeplitz matrix. It does not depend on the tokens.

``softmax`` is the kernel of DSS, which came before: the response of a mode is divided by its sum
over $\ell$ tokens (``length``), so that $K_k = 2\, \mathrm{Re} \sum_r \frac{C_r B_r}{A_r}\,
\mathrm{softmax}_k(\Delta A_r k)$ with the softmax over k = 0 … $\ell$ - 1. This is a hold whose
$\bar B$ is divided by $e^{\ell \Delta A} - 1$. DSS_exp is ``zoh`` with B = 1.

The state is worth something if the past can be read from it. HiPPO-LegS chooses A and B so that the
state holds the past as coefficients of Legendre polynomials, with a weight that fades
exponentially. ``legs`` takes the diagonal of its normal part, ``lin`` a damped Fourier series
($A_k = -1/2 + i \pi k$), ``inv`` a formula near the poles of LegS, ``real`` the eigenvalues of
HiPPO itself, $A_k = -(k + 1)$: its modes fade and do not swing, and do not learn to.
``reconstruction.reconstructed`` reads the past from a state.

After the convolution come GELU and a gated linear unit, $W y \odot \sigma(W' y)$, for each token.

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

Readings. There are N / 2 poles of ``real``, where S4D-Real has N: give twice the ``state``. A
residual connection, normalisation and dropout are the model's.

Departures.
- B is learned; under legs it starts as V* B / 2, which the released code clips. It also leaves the
  1/2 out.
- DSS's softmax is over a given length; in its code over that of the sequence at hand. ``system``
  says more.
- padded tokens are skipped

Gives up. The map depends on distance alone: no token is picked out by its content.

Gu, Gupta, Goel, Ré. On the Parameterization and Initialization of Diagonal State Space Models.
NeurIPS 2022, arXiv:2206.11893. HiPPO: Gu, Dao, Ermon, Rudra, Ré, NeurIPS 2020, arXiv:2008.07669.
DSS: Gupta, Gu, Berant, NeurIPS 2022, arXiv:2203.14343, proposition 1.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import state_space
from attnlab.core.card import Card, letters
from attnlab.core.carried import reset_rows
from attnlab.core.convolution import toeplitz
from attnlab.core.forms import form
from attnlab.core.heads import Channels, check_input
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state, skipping_padding
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked
from attnlab.core.state_space import Held
from attnlab.mechanisms.recurrence.s4d.forms import chunked, fft, recurrent
from attnlab.mechanisms.recurrence.s4d.system import (
    Learned,
    S4DOptions,
    System,
    initial,
    system,
)

__all__ = [
    "CARD", "FORMS", "S4D", "Learned", "S4DOptions", "State", "chunked", "fft", "naive",
    "recurrent",
]  # fmt: skip

# ---- naive


@form
def naive(x: Tokens, learned: Learned, *, options: S4DOptions = S4DOptions()) -> Tokens:
    """The matrix of every channel, T[i, j] = K[i - j] (Gu et al., section 2)."""
    decay, drive, out = system(learned, options)
    powers = state_space.powers(decay, x.shape[1])  # (dim, r, n)
    K = 2 * ((out * drive)[..., None] * powers).sum(dim=1).real
    weights = note("weights", toeplitz(note("kernel", K.to(x.dtype))))
    return torch.einsum("dij,bjd->bid", weights, x) + learned.skip * x


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
        return reset_rows(self, ended)


class GatedOutput(nn.Linear):
    """GELU, then a gated linear unit: (…, inputs) → (…, dim)."""

    def __init__(self, inputs: int, dim: int) -> None:
        super().__init__(inputs, 2 * dim)

    def forward(self, y: Tensor) -> Tensor:
        return F.glu(super().forward(F.gelu(y)))


class S4D(Layer):
    """A state space for every channel, then GELU and GLU: (b, n, dim) → (b, n, dim), causal; zeros
    at padding.

    ``step`` decodes; its state is N numbers per channel. Every channel is a head of width one for
    ``lens.mixing_matrix``: its map is the Toeplitz matrix of the kernel, with D on the diagonal.
    """

    @checked
    def __init__(
        self, dim: Size, *, form: Literal["naive", "recurrent", "fft", "chunked"] = "chunked",
        options: S4DOptions = S4DOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.dim, self.form, self.options = dim, form, options
        self.heads = Channels(dim, nn.Identity(), GatedOutput(dim, dim))
        (A, B), kind = initial(options), torch.get_default_dtype()
        learned = nn.Buffer if options.initial == "real" else nn.Parameter
        self.frequency = learned(A.imag.to(kind).repeat(dim, 1))
        self.log_decay = nn.Parameter((-A.real).log().to(kind).repeat(dim, 1))
        shortest, longest = math.log(options.shortest), math.log(options.longest)
        self.log_step = nn.Parameter(torch.empty(dim).uniform_(shortest, longest))
        self.B = nn.Parameter(torch.view_as_real(B).to(kind).repeat(dim, 1, 1))
        self.C = nn.Parameter(torch.randn(dim, len(A), 2) / 2**0.5)
        self.skip = nn.Parameter(torch.randn(dim))

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        check_input(x, "x", self.dim, self.skip)
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        mixed = FORMS[self.form](self.heads.value(x), self._learned(), options=self.options)
        return self.heads.output(mixed)

    def _learned(self) -> Learned:
        poles = self.frequency, self.log_decay, self.log_step
        return Learned(*poles, self.B, self.C, self.skip)

    @torch.no_grad()
    def system(self) -> System:
        """The discretised system as it is now, for ``reconstructed`` and for pictures."""
        return system(self._learned(), self.options)

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        check_input(x, "x", self.dim, self.skip)
        begin = State(state_space.initial_state(x, self.B.shape[1]))
        if state is None:
            state = begin
        check_state(state, begin)
        u = self.heads.value(x)
        parts = system(self._learned(), self.options)
        mixed, modes = state_space.advance(upcast(u), state.modes, *parts, chunk=self.options.chunk)
        out = (mixed + upcast(self.skip) * upcast(u)).to(x.dtype)
        return self.heads.output(out), note("state", State(modes))


# ---- card

n, dim, N, c = letters("n dim N c")

CARD = Card(
    __doc__,
    name="s4d",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    options=S4DOptions,
    letters={"N": "state", "c": "chunk"},
    time={
        "naive": 2 * n**2 * dim,
        "recurrent": 6 * n * N * dim,
        "fft": 15 * n * dim * sympy.log(2 * n, 2) + 4 * N * n * dim,
        "chunked": 2 * n * dim * (c + 2 * N),
    },
    launches={"recurrent": n, "chunked": sympy.sqrt(n / c)},
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
    variants=(
        {"state": 6, "discretization": "bilinear", "initial": "lin", "chunk": 3},
        {"state": 2, "initial": "inv"},
        {"state": 4, "discretization": "softmax", "length": 13, "initial": "real"},
    ),
    build=S4D,
    aliases=("diagonal_state_space", "dss"),
)
