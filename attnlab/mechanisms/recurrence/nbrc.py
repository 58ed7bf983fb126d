r"""nBRC: a recurrent cell that can make every unit of it a switch with two stable states.

What a GRU remembers fades: without input its hidden state moves to one fixed point. The
*neuromodulated bistable recurrent cell* lets the state of a unit act on itself with a strength $a$
of up to 2. At $a > 1$ the unit has two stable states, and stays in one of them for as long as
nothing pushes it out: one bit, latched. $a$ and the update gate $c$ are computed from the input and
from the states of all units:

$$a_t = 1 + \tanh(U_a x_t + W_a h_{t-1} + b_a),\qquad c_t = \sigma(U_c x_t + W_c h_{t-1} + b_c)$$

$$h_t = c_t \odot h_{t-1} + (1 - c_t) \odot \tanh(U x_t + a_t \odot h_{t-1})$$

Without input the fixed points of a unit solve $h = \tanh(a h)$: 0 alone where $a \le 1$, and three
where $a > 1$, of which the outer two are stable. As $1 + \tanh v = 2 \sigma(2 v)$, this is a GRU
whose reset gate has twice the weights of $a$ and whose candidate has $W = 2 I$.

Cost: $10\, n\, dim^2$ FLOPs; the tokens one after the other.

``naive``      the equation, one token at a time.
``projected``  the three products with x for all tokens at once, then the loop.
``fused``      PyTorch's GRU with these weights.

The paper's letters are ours.

Common mistakes: the gates exchanged, c weighs the old state; a matrix or a bias in the candidate.

Departures. Width in and out is dim. The biases are those of the released code; the paper has none.

Vecoven, Ernst, Drion. A bio-inspired bistable recurrent cell allows for long-lasting memory. PLoS
ONE 16(6), 2021, arXiv:2006.05252.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.bistable import after_one_product, as_gru
from attnlab.core.card import Card, Paper, letters
from attnlab.core.options import Size
from attnlab.core.precision import unrounded, wide
from attnlab.core.probe import note
from attnlab.core.recurrence import Cell, begin, glorot
from attnlab.core.shapes import Tokens, checked

Inputs = Float[Tensor, "3 dim dim"]  # U_a, U_c and U, applied as U x
Recurrent = Float[Tensor, "2 dim dim"]  # W_a and W_c
Biases = Float[Tensor, "2 dim"]  # b_a and b_c
Before = Float[Tensor, "b dim"] | None  # h_0; None: zeros

# ---- naive


@checked
def naive(
    x: Tokens, inputs: Inputs, recurrent: Recurrent, biases: Biases, *, before: Before = None
) -> Tokens:
    """The cell, token by token (Vecoven et al., the equations of BRC with matrices W)."""
    (U_a, U_c, U), (W_a, W_c), (b_a, b_c) = (wide(each) for each in (inputs, recurrent, biases))
    h = begin(x, before)
    states = []
    with unrounded(x.device):
        for x_t in wide(x).unbind(1):
            a = 1 + torch.tanh(x_t @ U_a.mT + h @ W_a.mT + b_a)
            c = torch.sigmoid(x_t @ U_c.mT + h @ W_c.mT + b_c)
            h = c * h + (1 - c) * torch.tanh(x_t @ U.mT + a * h)
            states.append(h)
    return note("state", torch.stack(states, dim=1)).to(x.dtype)


# ---- projected


@checked
def projected(
    x: Tokens, inputs: Inputs, recurrent: Recurrent, biases: Biases, *, before: Before = None
) -> Tokens:
    """What depends on x alone for all tokens in one product, then the loop."""
    both = wide(recurrent).flatten(0, 1).mT
    return after_one_product(x, inputs, biases, before, lambda h: (h @ both).chunk(2, dim=-1))


# ---- fused


@checked
def fused(
    x: Tokens, inputs: Inputs, recurrent: Recurrent, biases: Biases, *, before: Before = None
) -> Tokens:
    """PyTorch's GRU: reset gate 2 U_a, 2 W_a; update gate U_c, W_c; candidate U and W = 2 I."""
    return as_gru(x, inputs, recurrent, biases, before)


FORMS = {"naive": naive, "projected": projected, "fused": fused}

# ---- module


class NBRC(Cell):
    """A layer of dim units: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``step`` reads on from a state. U is drawn by Glorot's rule, W orthogonal, as released.
    """

    @checked
    def __init__(
        self, dim: Size, *, form: Literal["naive", "projected", "fused"] = "fused"
    ) -> None:
        super().__init__(dim, form, FORMS[form])
        self.inputs = glorot(3, dim, dim)
        of_a, of_c = (nn.init.orthogonal_(torch.empty(dim, dim)) for _ in range(2))
        self.recurrent = nn.Parameter(torch.stack((of_a, of_c)))
        self.biases = nn.Parameter(torch.zeros(2, dim))


# ---- card

n, dim = letters("n dim")

CARD = Card(
    name="nbrc",
    title="nBRC: neuromodulated bistable recurrent cell",
    family="recurrence",
    role="mix",
    paper=Paper(
        "Vecoven, Ernst, Drion",
        "A bio-inspired bistable recurrent cell allows for long-lasting memory",
        "PLoS ONE",
        2021,
        "2006.05252",
    ),
    forms=FORMS,
    causal="always",
    because="its state holds what was read before",
    time={"naive": 10 * n * dim**2, "projected": 10 * n * dim**2, "fused": 12 * n * dim**2},
    memory={"naive": n * dim, "projected": 3 * n * dim, "fused": 3 * n * dim},
    notes=dict.fromkeys(FORMS, ("state",)),
    departures=("gates have biases, as in the released code",),
    build=NBRC,
    aliases=("bistable", "neuromodulated_bistable"),
    gives_up="No token is reached directly: all of the past goes through dim numbers.",
)
