r"""LSTM: a recurrent cell with a memory that is written, kept and read through gates.

Beside its hidden state h the cell has a memory c. Three gates decide, unit by unit, how much of the
memory is kept (f), how much of a candidate is added to it (i) and how much of it is shown (o):

$$i_t, f_t, o_t = \sigma(U x_t + W h_{t-1} + b), \qquad g_t = \tanh(U_g x_t + W_g h_{t-1} + b_g)$$

$$c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh c_t$$

(i, f and o have U, W and b of their own.) With f near 1 the memory is carried over many tokens, and
its gradient back; attention reaches each of them directly.

Cost: $16\, n\, dim^2$ FLOPs; the tokens one after the other.

``naive``  the equation, one token at a time.
``fused``  PyTorch's own kernel.

The letters are those of PyTorch's documentation, but for its $W_{i*}$, our U, and $W_{h*}$, our W.

Common mistakes: the order of the gates, which differs between programs: here and in PyTorch i, f,
g, o; a forget gate without which the memory only grows, as in the first paper.

Readings. Width in and out is dim.

Departures.
- it has the forget gate of Gers, Schmidhuber, Cummins (2000) and no peepholes

Gives up. No token is reached directly: all of the past goes through 2 · dim numbers.

Hochreiter, Schmidhuber. Long Short-Term Memory. Neural Computation 9(8), 1997.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.carried import reset_rows
from attnlab.core.forms import upcasting
from attnlab.core.heads import check_input
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.recurrence import (
    as_kernels_read,
    check_state,
    kernel_options,
    skipping_padding,
)
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked

Matrices = Float[Tensor, "4 dim dim"]  # of i, f, g and o, applied as U x and W h
Biases = Float[Tensor, "4 dim"]


class State(NamedTuple):
    """2 · dim numbers per sequence; in float32 at least, as a long sum in half precision stalls."""

    hidden: Float[Tensor, "b dim"]
    memory: Float[Tensor, "b dim"]

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """Zeros, as at the beginning, in those sequences whose document has ``ended``."""
        return reset_rows(self, ended)


# ---- naive


@checked
def naive(x: Tokens, inputs: Matrices, recurrent: Matrices, biases: Biases) -> Tokens:
    """The cell, token by token (Hochreiter and Schmidhuber, with a forget gate)."""
    return _naive(x, inputs, recurrent, biases, _begin(x))[0]


def _begin(x: Tensor) -> State:
    return State(*(torch.zeros_like(upcast(x[:, 0])) for _ in State._fields))


@upcasting
def _naive(
    x: Tensor, inputs: Tensor, recurrent: Tensor, biases: Tensor, state: State
) -> tuple[Tensor, State]:
    (U_i, U_f, U_g, U_o), (W_i, W_f, W_g, W_o) = inputs, recurrent
    (b_i, b_f, b_g, b_o), (h, c), states = biases, state, []
    for x_t in x.unbind(1):
        i = torch.sigmoid(x_t @ U_i.mT + h @ W_i.mT + b_i)
        f = torch.sigmoid(x_t @ U_f.mT + h @ W_f.mT + b_f)
        g = torch.tanh(x_t @ U_g.mT + h @ W_g.mT + b_g)
        o = torch.sigmoid(x_t @ U_o.mT + h @ W_o.mT + b_o)
        c = f * c + i * g
        h = o * c.tanh()
        states.append(h)
    return note("state", torch.stack(states, dim=1)), State(h, c)


# ---- fused


@checked
def fused(x: Tokens, inputs: Matrices, recurrent: Matrices, biases: Biases) -> Tokens:
    """PyTorch's kernel; of its two biases of each gate the second is zero."""
    return _fused(x, inputs, recurrent, biases, _begin(x))[0]


@upcasting
def _fused(
    x: Tensor, inputs: Tensor, recurrent: Tensor, biases: Tensor, state: State
) -> tuple[Tensor, State]:
    b = biases.flatten()
    matrices = inputs.flatten(0, 1), recurrent.flatten(0, 1)
    weights = as_kernels_read(*matrices, b, torch.zeros_like(b))
    before = [part[None] for part in state]
    out, h, c = torch.lstm(x, before, weights, *kernel_options())
    return note("state", out), State(h[0], c[0])


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "fused": fused}

# ---- module


class LSTM(Layer):
    """A layer of dim units: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``step`` reads on from a state. All parameters are drawn uniformly within ± dim^(-1/2).
    """

    @checked
    def __init__(self, dim: Size, *, form: Literal["naive", "fused"] = "fused") -> None:
        super().__init__()
        self.dim, self.form = dim, form
        shapes = (4, dim, dim), (4, dim, dim), (4, dim)
        drawn = (torch.empty(shape).uniform_(-1, 1) * dim**-0.5 for shape in shapes)
        self.inputs, self.recurrent, self.biases = map(nn.Parameter, drawn)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        check_input(x, "x", self.dim, self.inputs)
        run = lambda real: self._run(real, _begin(real))[0]  # noqa: E731
        return skipping_padding(run, x, padding, rows=("state",))

    @checked
    def step(self, x: NewTokens, state: State | None = None) -> tuple[NewTokens, State]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        check_input(x, "x", self.dim, self.inputs)
        begin = _begin(x)
        if state is None:
            state = begin
        check_state(state, begin)
        out, state = self._run(x, state)
        return out, note("state", state)

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        run = _fused if self.form == "fused" else _naive
        return run(x, self.inputs, self.recurrent, self.biases, state)


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="lstm",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    time=16 * n * dim**2,
    launches={"naive": n},
    memory={"naive": n * dim, "fused": 60 * n * dim},  # fused: what is kept for the backward pass
    notes=dict.fromkeys(FORMS, ("state",)),
    build=LSTM,
    aliases=("long_short_term_memory",),
)
