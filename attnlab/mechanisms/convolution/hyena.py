r"""Hyena: long convolutions and gates in turn, whose filters are written by a small network.

A convolution as long as the sequence reaches every token, but its weights depend on the distance
alone. Hyena multiplies its result, channel by channel, with a gate that is computed
from the token, and does so N times (N = ``order``):

$$z^1 = v,\qquad z^{j+1}_t = x^j_t \odot (h^j * z^j)_t,\qquad y = z^{N+1} W_O$$

$v$ and the gates $x^1 \ldots x^N$ are linear maps of the input, each followed by a causal
convolution of 3 taps. In each channel the whole is one n × n matrix, which depends on the tokens
through its diagonal parts and is lower triangular, as attention's is under a causal mask:

$$y = D_{x^N} S_{h^N} \cdots D_{x^1} S_{h^1}\, v$$

A filter $h$ of n numbers per channel would be n · dim parameters. It is *implicit* instead: a
network of sines, given the position as a number t from 0 to 1 and as waves of some frequencies,
writes it, and a window lets it decay:

$$h_t = (e^{-a t} + s)\; \mathrm{FFN}\big(t, \cos 2\pi f t, \sin 2\pi f t\big),\qquad t = \frac{
\mathrm{position}}{L}$$

with a decay $a$ for each channel. L is ``max_len``: a longer sequence is refused, because the
network has never seen its positions.

Cost: $15\, N n\, dim \log_2 2n$ FLOPs, three Fourier transforms of 2n points for each filter.

``naive``   the Toeplitz matrices $S_h$, then the gates.
``fft``     the convolutions by Fourier transforms, padded with zeros to at least 2n − 1 points.

``Hyena.step`` decodes exactly, but a filter of L free numbers has no recurrence: it keeps the
inputs of every filter, N n dim numbers, and token i costs $2 N i\, dim$ FLOPs.

The paper's letters: its N is our N, $z^n$ our $z^j$; $L$ is ``max_len``.

Common mistakes: a Fourier transform without the zeros is circular, and the end of a sequence
reaches its beginning; the released code takes the gates in reversed order, has N − 1 filters for
order N and applies its first gate before the first filter.

Departures.
- the network of the filters has few options. Frequencies, the width of the network and the decays
  are set by ``options``; the released code has many more.
- a learned weight of the token itself is added to each filter. It starts at 0; the released code
  has it, too.
- padded tokens are skipped

Gives up. Tokens are not compared: filters weigh distances, and gates scale the result.

Poli, Massaroli, Nguyen, Fu, Dao, Baccus, Bengio, Ermon, Ré. Hyena Hierarchy: Towards Larger
Convolutional Language Models. ICML 2023, arXiv:2302.10866, section 3, definition 3.1.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.convolution import (
    fourier_convolution,
    last_inputs,
    short_convolution,
    toeplitz,
)
from attnlab.core.forms import form
from attnlab.core.heads import Heads, check_input
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.precision import call_upcast, exact_dtype, no_autocast, upcast, upcast_together
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state, skipping_padding
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked

Gates = Float[Tensor, "b g n dim"]  # g gates, x^1 … x^N
Filters = Float[Tensor, "g dim n"]  # h^1 … h^N, the weight of the newest token first
TAPS = 3


@dataclass(frozen=True, kw_only=True)
class HyenaOptions(Options):
    """The filters and how many there are.

    ``order``    N, the number of filters and of gates.
    ``max_len``  L, the longest sequence.
    ``bands``    frequencies f = 1 … bands that a position is given in.
    ``width``    of the network that writes the filters.
    """

    order: Size = 2
    max_len: Size = 2048
    bands: Size = 8
    width: Size = 32


# ---- naive


@form
def naive(v: Tokens, gates: Gates, filters: Filters) -> Tokens:
    """D S for each filter, one after the other (Poli et al., definition 3.1)."""
    S = note("toeplitz", toeplitz(filters))  # (g, dim, n, n)
    z = v
    for x, matrix in zip(gates.unbind(1), S, strict=True):
        z = x * torch.einsum("dij,bjd->bid", matrix, z)
    return z


# ---- fft


@form
def fft(v: Tokens, gates: Gates, filters: Filters) -> Tokens:
    """The same convolutions by Fourier transforms."""
    z = v.mT
    for x, h in zip(gates.mT.unbind(1), note("filters", filters), strict=True):
        z = x * fourier_convolution(z, h)
    return z.mT


FORMS = {"naive": naive, "fft": fft}

# ---- module


class Filter(nn.Module):
    """Writes N filters for dim channels, (g, dim, n), at the first n of ``max_len`` positions."""

    def __init__(self, dim: int, options: HyenaOptions) -> None:
        super().__init__()
        self.options, out = options, options.order * dim
        sizes = (1 + 2 * options.bands, options.width, options.width, out)
        self.linear = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.frequency = nn.Parameter(torch.full((2, options.width), 10.0))
        # The window falls to 1/100 after 1.5 L in the first channel, and after 0.3 L in the last.
        self.decay = nn.Parameter(torch.linspace(1 / 1.5, 1 / 0.3, dim) * math.log(100))
        self.floor = nn.Parameter(torch.tensor(0.05))
        self.own = nn.Parameter(torch.randn(options.order, dim))

    def forward(self, n: int) -> Filters:
        """Called by ``call_upcast``: in half precision neighbouring positions would be one."""
        exact = exact_dtype(self.own.device)
        t = torch.arange(n, device=self.own.device, dtype=exact)[:, None] / self.options.max_len
        f = torch.arange(1, self.options.bands + 1, device=t.device, dtype=exact)
        waves = 2 * math.pi * f * t
        hidden = torch.cat((t, waves.cos(), waves.sin()), dim=1).to(self.own.dtype)
        *inner, last = self.linear
        for linear, frequency in zip(inner, self.frequency, strict=True):
            hidden = torch.sin(frequency * linear(hidden))
        written = last(hidden).T.unflatten(0, self.own.shape)
        window = torch.exp(-self.decay.abs()[:, None] * t[:, 0].to(self.own.dtype)) + self.floor
        at_zero = F.pad(self.own[..., None], (0, n - 1))
        filters: Tensor = written * window + at_zero
        return filters


class State(NamedTuple):
    """What a layer knows of the tokens before: what every convolution has read."""

    short: Float[Tensor, "b r channels"]  # the last 2 inputs of the short convolutions
    levels: Float[Tensor, "b g t dim"]  # all inputs z^1 … z^N of the long ones


class Hyena(Layer):
    """(b, n, dim) → (b, n, dim), causal, for n up to ``max_len``; zeros at padding.

    Every channel is a head of width one for ``lens.mixing_matrix``.
    """

    @checked
    def __init__(
        self, dim: Size, *,
        form: Literal["naive", "fft"] = "fft", options: HyenaOptions = HyenaOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.dim, self.form, self.options = dim, form, options
        self.heads = Heads(dim, dim, queries=False)
        self.gates = nn.Linear(dim, options.order * dim, bias=False)
        bound = TAPS**-0.5
        drawn = torch.empty((options.order + 1) * dim, TAPS).uniform_(-bound, bound)
        self.taps = nn.Parameter(drawn)
        self.filter = Filter(dim, options)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        check_input(x, "x", self.dim, self.gates.weight)
        self._refuse_longer(x.shape[1])
        return skipping_padding(self._mixed, x, padding)

    def _mixed(self, x: Tokens) -> Tokens:
        gates, v = self._split(short_convolution(self._projected(x), self.taps))
        out = FORMS[self.form](*upcast_together(v, gates, self._filters(x.shape[1])))
        return self.heads.output(out.to(v.dtype))

    def _filters(self, n: int) -> Filters:
        with no_autocast(self.taps.device):
            filters: Filters = call_upcast(self.filter, n)
        return filters

    def _projected(self, x: Tokens) -> Tensor:
        return torch.cat((self.gates(x), self.heads.value(x)), dim=-1)

    def _split(self, mixed: Tensor) -> tuple[Gates, Tokens]:
        *gates, v = mixed.split(self.dim, dim=-1)
        return note("gates", torch.stack(gates, dim=1)), note("values", v)

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state of all before them (None at the beginning).

        The state grows by order · dim numbers with each token, and reading it takes as long as it
        is: an implicit filter has no recurrence.
        """
        check_input(x, "x", self.dim, self.gates.weight)
        projected = self._projected(x)
        begin = State(
            projected.new_zeros(len(x), TAPS - 1, projected.shape[-1]),
            x.new_zeros(len(x), self.options.order, 0, self.dim),
        )
        state = begin if state is None else self._checked_state(state, begin)
        past = state.levels.shape[2]
        self._refuse_longer(past + x.shape[1])
        gates, v = self._split(short_convolution(projected, self.taps, state.short))
        filters, z, levels = self._filters(past + x.shape[1]), v, []
        for gate, h, before in zip(gates.unbind(1), filters, state.levels.unbind(1), strict=True):
            levels.append(torch.cat((before, z), dim=1))
            z = gate * _last_of_convolution(levels[-1], h, x.shape[1])
        new = State(last_inputs(projected, state.short), torch.stack(levels, dim=1))
        return self.heads.output(z), note("state", new)

    @staticmethod
    def _checked_state(state: State, begin: State) -> State:
        t = state.levels.shape[2] if isinstance(state, State) and state[1].ndim == 4 else 0
        b, o, _, dim = begin.levels.shape
        check_state(state, begin._replace(levels=begin.levels.new_empty(b, o, t, dim)))
        return state

    def _refuse_longer(self, n: int) -> None:
        if n > self.options.max_len:
            raise ValueError(
                f"the sequence has {n} positions, but the filters of this layer are written for "
                f"max_len={self.options.max_len}; build it with max_len={n} or more, or shorten "
                "the sequence"
            )


def _last_of_convolution(z: Tensor, h: Tensor, t: int) -> Tensor:
    """The last t outputs of the convolution of all inputs z (b, n, dim) by h (dim, n)."""
    n = z.shape[1]
    distance = torch.arange(n - t, n, device=z.device)[:, None] - torch.arange(n, device=z.device)
    rows = upcast(h)[:, distance.clamp(min=0)].masked_fill(distance < 0, 0)
    with no_autocast(z.device):
        return torch.einsum("dtn,bnd->btd", rows, upcast(z)).to(z.dtype)


# ---- card

n, dim, o, f, w = letters("n dim o f w")

CARD = Card(
    __doc__,
    name="hyena",
    family="convolution",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its filters read what was before",
    options=HyenaOptions,
    letters={"o": "order", "f": "bands", "w": "width"},
    time={"naive": 2 * o * n**2 * dim, "fft": 15 * o * n * dim * (1 + sympy.log(n, 2))},
    memory={"naive": o * n**2 * dim, "fft": n * (3 * (o + 1) * dim + 2 * f + w)},
    notes={"naive": ("toeplitz",), "fft": ("filters",)},
    variants=({"order": 1, "max_len": 131}, {"order": 3}),
    build=Hyena,
    small_options={"max_len": 64, "form": "naive"},
)
