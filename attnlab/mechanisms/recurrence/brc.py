r"""BRC: a recurrent cell of units that remember one bit each, and do not see each other.

The *bistable recurrent cell* is modelled on a biological neuron, whose memory is its own: the state
of a unit acts on that unit alone. The strength $a$ of this feedback decides whether the unit
forgets or latches. Below 1 it has one stable state, above 1 it has two:

$$a_t = 1 + \tanh(U_a x_t + w_a \odot h_{t-1} + b_a),\qquad c_t = \sigma(U_c x_t + w_c \odot
h_{t-1} + b_c)$$

$$h_t = c_t \odot h_{t-1} + (1 - c_t) \odot \tanh(U x_t + a_t \odot h_{t-1})$$

$w_a$ and $w_c$ are vectors: the Jacobian of $h_t$ in $h_{t-1}$ is diagonal. Without input the fixed
points solve $h = \tanh(a h)$; at zero the slope of the step is $c + (1 - c)\, a$, above 1 where
$a > 1$: a state near zero is pushed out to one of the two others. $c = 1$ keeps it as it is. The
cell nBRC has matrices in the place of $w_a$ and $w_c$.

Cost: $6\, n\, dim^2$ FLOPs for the products with x, and nothing but products of elements in the
loop; the tokens one after the other.

``naive``      the equation, one token at a time.
``projected``  the three products with x for all tokens at once, then the loop.
``fused``      PyTorch's GRU with these weights, w as diagonal matrices: twice the FLOPs, no loop in
               Python.

The paper's letters are ours.

Common mistakes: the gates exchanged, c weighs the old state; a weight or a bias in the candidate.

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
OfUnits = Float[Tensor, "2 dim"]  # w_a and w_c, or b_a and b_c
Before = Float[Tensor, "b dim"] | None  # h_0; None: zeros

# ---- naive


@checked
def naive(
    x: Tokens, inputs: Inputs, recurrent: OfUnits, biases: OfUnits, *, before: Before = None
) -> Tokens:
    """The cell, token by token (Vecoven et al., the equations of BRC)."""
    (U_a, U_c, U), (w_a, w_c), (b_a, b_c) = (wide(each) for each in (inputs, recurrent, biases))
    h = begin(x, before)
    states = []
    with unrounded(x.device):
        for x_t in wide(x).unbind(1):
            a = 1 + torch.tanh(x_t @ U_a.mT + w_a * h + b_a)
            c = torch.sigmoid(x_t @ U_c.mT + w_c * h + b_c)
            h = c * h + (1 - c) * torch.tanh(x_t @ U.mT + a * h)
            states.append(h)
    return note("state", torch.stack(states, dim=1)).to(x.dtype)


# ---- projected


@checked
def projected(
    x: Tokens, inputs: Inputs, recurrent: OfUnits, biases: OfUnits, *, before: Before = None
) -> Tokens:
    """What depends on x alone for all tokens in one product, then the loop."""
    w_a, w_c = wide(recurrent)
    return after_one_product(x, inputs, biases, before, lambda h: (w_a * h, w_c * h))


# ---- fused


@checked
def fused(
    x: Tokens, inputs: Inputs, recurrent: OfUnits, biases: OfUnits, *, before: Before = None
) -> Tokens:
    """PyTorch's GRU, as of nBRC, with the vectors w as diagonal matrices."""
    return as_gru(x, inputs, recurrent.diag_embed(), biases, before)


FORMS = {"naive": naive, "projected": projected, "fused": fused}

# ---- module


class BRC(Cell):
    """A layer of dim units: (b, n, dim) → (b, n, dim), causal; zeros at padding.

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


# ---- card

n, dim = letters("n dim")

CARD = Card(
    name="brc",
    title="BRC: bistable recurrent cell",
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
    time={"naive": 6 * n * dim**2, "projected": 6 * n * dim**2, "fused": 12 * n * dim**2},
    memory={"naive": n * dim, "projected": 3 * n * dim, "fused": 3 * n * dim},
    notes=dict.fromkeys(FORMS, ("state",)),
    departures=("gates have biases, as in the released code",),
    build=BRC,
    aliases=("bistable_recurrent_cell",),
    gives_up="No token is reached directly, and no unit sees the state of another.",
)
