r"""Bistable cells: recurrent cells of which each unit can remember one bit.

What a GRU remembers fades: without input its hidden state moves to one fixed point. In a *bistable
recurrent cell* the state of a unit acts on itself with a strength $a$ of up to 2:

$$h_t = c_t \odot h_{t-1} + (1 - c_t) \odot \tanh(U x_t + a_t \odot h_{t-1})$$

Without input the fixed points solve $h = \tanh(a h)$: 0 alone where $a \le 1$, and three where
$a > 1$, of which the outer two are stable: one bit, latched until something pushes it out. At zero
the slope of the step is $c + (1 - c)\, a$, above 1 where $a > 1$. $c = 1$ keeps the state as it is.

Two cells differ in what $a$ and $c$ know of the state. In BRC, modelled on a biological neuron,
each unit sees itself alone. $w_a$ and $w_c$ are vectors, and the Jacobian of $h_t$ in $h_{t-1}$ is
diagonal:

$$a_t = 1 + \tanh(U_a x_t + w_a \odot h_{t-1} + b_a),\qquad c_t = \sigma(U_c x_t + w_c \odot
h_{t-1} + b_c)$$

In the *neuromodulated* cell, nBRC, each unit sees all units, through matrices $W_a$ and $W_c$:

$$a_t = 1 + \tanh(U_a x_t + W_a h_{t-1} + b_a),\qquad c_t = \sigma(U_c x_t + W_c h_{t-1} + b_c)$$

As $1 + \tanh v = 2 \sigma(2 v)$, both are a GRU whose reset gate has twice the weights of $a$ and
whose candidate has $W = 2 I$.

Cost: $6\, n\, dim^2$ FLOPs for the products with x, and with nBRC $4\, n\, dim^2$ for those with h;
the tokens one after the other.

``naive``      the equation, one token at a time.
``projected``  the three products with x for all tokens at once, then the loop.
``fused``      PyTorch's GRU with these weights, no loop in Python; w as diagonal matrices.

The paper's letters are ours.

Common mistakes: the gates exchanged, c weighs the old state; a weight or a bias in the candidate.

Readings. Width in and out is dim.

Departures.
- gates have biases, as in the released code. The paper has none.

Vecoven, Ernst, Drion. A bio-inspired bistable recurrent cell allows for long-lasting memory. PLoS
ONE 16(6), 2021, arXiv:2006.05252.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.recurrence import Cell, glorot, initial_hidden, run_gru_kernel
from attnlab.core.shapes import Tokens, checked

Inputs = Float[Tensor, "3 dim dim"]  # U_a, U_c and U, applied as U x
OfUnits = Float[Tensor, "2 dim"]  # w_a and w_c
Matrices = Float[Tensor, "2 dim dim"]  # W_a and W_c
Biases = Float[Tensor, "2 dim"]  # b_a and b_c
Before = Float[Tensor, "b dim"] | None  # h_0; None: zeros
OfState = Callable[[Tensor], tuple[Tensor, ...]]  # what a state h adds to both gates

# ---- naive


@form
def naive(
    x: Tokens, inputs: Inputs, recurrent: OfUnits, biases: Biases, *, before: Before = None
) -> Tokens:
    """BRC, token by token."""
    w_a, w_c = recurrent
    return _token_by_token(x, inputs, biases, before, lambda h: (w_a * h, w_c * h))


@form
def nbrc_naive(
    x: Tokens, inputs: Inputs, recurrent: Matrices, biases: Biases, *, before: Before = None
) -> Tokens:
    """nBRC, token by token."""
    W_a, W_c = recurrent
    return _token_by_token(x, inputs, biases, before, lambda h: (h @ W_a.mT, h @ W_c.mT))


def _token_by_token(
    x: Tensor, inputs: Tensor, biases: Tensor, before: Before, of_state: OfState
) -> Tensor:
    """The equations of Vecoven et al."""
    (U_a, U_c, U), (b_a, b_c), h, states = inputs, biases, initial_hidden(x, before), []
    for x_t in x.unbind(1):
        of_a, of_c = of_state(h)
        a = 1 + torch.tanh(x_t @ U_a.mT + of_a + b_a)
        c = torch.sigmoid(x_t @ U_c.mT + of_c + b_c)
        h = c * h + (1 - c) * torch.tanh(x_t @ U.mT + a * h)
        states.append(h)
    return note("state", torch.stack(states, dim=1))


# ---- projected


@form
def projected(
    x: Tokens, inputs: Inputs, recurrent: OfUnits, biases: Biases, *, before: Before = None
) -> Tokens:
    """BRC: what depends on x alone for all tokens in one product, then the loop."""
    w_a, w_c = recurrent
    return _after_one_product(x, inputs, biases, before, lambda h: (w_a * h, w_c * h))


@form
def nbrc_projected(
    x: Tokens, inputs: Inputs, recurrent: Matrices, biases: Biases, *, before: Before = None
) -> Tokens:
    """nBRC, likewise; the two products with h are one."""
    both = recurrent.flatten(0, 1).mT
    return _after_one_product(x, inputs, biases, before, lambda h: (h @ both).chunk(2, dim=-1))


def _after_one_product(
    x: Tensor, inputs: Tensor, biases: Tensor, before: Before, of_state: OfState
) -> Tensor:
    h, (b_a, b_c), states = initial_hidden(x, before), biases, []
    by_a, by_c, by_h = (x @ inputs.flatten(0, 1).mT).chunk(3, dim=-1)
    for a, c, u in zip(*(y.unbind(1) for y in (by_a + b_a, by_c + b_c, by_h)), strict=True):
        of_a, of_c = of_state(h)
        gate = torch.sigmoid(c + of_c)
        h = gate * h + (1 - gate) * torch.tanh(u + (1 + torch.tanh(a + of_a)) * h)
        states.append(h)
    return note("state", torch.stack(states, dim=1))


# ---- fused


@form
def fused(
    x: Tokens, inputs: Inputs, recurrent: OfUnits, biases: Biases, *, before: Before = None
) -> Tokens:
    """BRC by PyTorch's GRU, with the vectors w as diagonal matrices: twice the FLOPs."""
    return _as_gru(x, inputs, recurrent.diag_embed(), biases, before)


@form
def nbrc_fused(
    x: Tokens, inputs: Inputs, recurrent: Matrices, biases: Biases, *, before: Before = None
) -> Tokens:
    """nBRC by PyTorch's GRU: reset gate 2 U_a, 2 W_a; update gate U_c, W_c; candidate U, 2 I."""
    return _as_gru(x, inputs, recurrent, biases, before)


def _as_gru(x: Tensor, inputs: Tensor, recurrent: Tensor, biases: Tensor, before: Before) -> Tensor:
    (U_a, U_c, U), (W_a, W_c), (b_a, b_c) = inputs, recurrent, biases
    twice = 2 * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    inside = torch.cat((2 * b_a, b_c, torch.zeros_like(b_a)))
    weights = torch.cat((2 * U_a, U_c, U)), torch.cat((2 * W_a, W_c, twice)), inside
    return run_gru_kernel(x, *weights, torch.zeros_like(inside), before)


FORMS = {"naive": naive, "projected": projected, "fused": fused}
NBRC_FORMS = {"naive": nbrc_naive, "projected": nbrc_projected, "fused": nbrc_fused}

# ---- modules


class BRC(Cell):
    """A layer of dim units that do not see each other: (b, n, dim) → (b, n, dim), causal; zeros at
    padding.

    ``step`` reads on from a state. U is drawn by Glorot's rule and w starts at 1, as released.
    """

    @checked
    def __init__(
        self, dim: Size, *, form: Literal["naive", "projected", "fused"] = "fused"
    ) -> None:
        super().__init__(dim, form, FORMS[form])
        self.inputs = glorot(3, dim, dim)
        self.recurrent = nn.Parameter(torch.ones(2, dim))
        self.biases = nn.Parameter(torch.zeros(2, dim))


class NBRC(Cell):
    """A layer of dim units that see each other: (b, n, dim) → (b, n, dim), causal; zeros at
    padding.

    ``step`` reads on from a state. U is drawn by Glorot's rule, W orthogonal, as released.
    """

    @checked
    def __init__(
        self, dim: Size, *, form: Literal["naive", "projected", "fused"] = "fused"
    ) -> None:
        super().__init__(dim, form, NBRC_FORMS[form])
        self.inputs = glorot(3, dim, dim)
        of_a, of_c = (nn.init.orthogonal_(torch.empty(dim, dim)) for _ in range(2))
        self.recurrent = nn.Parameter(torch.stack((of_a, of_c)))
        self.biases = nn.Parameter(torch.zeros(2, dim))


# ---- cards

n, dim = letters("n dim")

_card = partial(
    Card,
    __doc__,
    family="recurrence",
    role="mix",
    causal="always",
    causal_reason="its state holds what was read before",
    launches=dict.fromkeys(FORMS, n),
    memory={"naive": n * dim, "projected": 3 * n * dim, "fused": 3 * n * dim},
    notes=dict.fromkeys(FORMS, ("state",)),
)

CARDS = (
    _card(
        name="brc",
        title="BRC: bistable recurrent cell",
        forms=FORMS,
        time={"naive": 6 * n * dim**2, "projected": 6 * n * dim**2, "fused": 12 * n * dim**2},
        build=BRC,
        aliases=("bistable_recurrent_cell",),
        gives_up="No token is reached directly, and no unit sees the state of another.",
    ),
    _card(
        name="nbrc",
        title="nBRC: neuromodulated bistable recurrent cell",
        forms=NBRC_FORMS,
        time={"naive": 10 * n * dim**2, "projected": 10 * n * dim**2, "fused": 12 * n * dim**2},
        build=NBRC,
        aliases=("bistable", "neuromodulated_bistable"),
        gives_up="No token is reached directly: all of the past goes through dim numbers.",
    ),
)
