r"""GRU: a recurrent cell with two gates, the usual baseline of what a state can hold.

The hidden state of a gated recurrent unit is a mean of the old state and of a candidate. The update
gate $z$ weighs them, unit by unit, and the reset gate $r$ decides how much of the old state the
candidate is computed from:

$$r_t, z_t = \sigma(U_{r,z}\, x_t + W_{r,z}\, h_{t-1} + b_{r,z}),\qquad \tilde h_t = \tanh(U x_t +
b + r_t \odot (W h_{t-1} + b_W))$$

$$h_t = z_t \odot h_{t-1} + (1 - z_t) \odot \tilde h_t$$

A gate near 1 carries a state over many tokens, and its gradient back; attention reaches each of
them directly.

Cost: $12\, n\, dim^2$ FLOPs; the tokens one after the other.

``naive``  the equation, one token at a time.
``fused``  PyTorch's own kernel.

The paper's letters: $W$ there is our U, its $U$ our W; its first version has z and 1 − z exchanged.

Common mistakes: r multiplies the state before W in the paper and after W here and in PyTorch, which
is another function; weights of a network that was trained with one do not fit the other.

Readings. Width in and out is dim.

Departures.
- the reset gate stands after the recurrent matrix, as in PyTorch. That of cuDNN stands there, too.

Gives up. No token is reached directly: all of the past goes through dim numbers.

Cho, van Merriënboer, Gulcehre, Bahdanau, Bougares, Schwenk, Bengio. Learning Phrase Representations
using RNN Encoder-Decoder for Statistical Machine Translation. EMNLP 2014, arXiv:1406.1078.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.recurrence import Cell, initial_hidden, run_gru_kernel
from attnlab.core.shapes import Tokens, checked

Matrices = Float[Tensor, "3 dim dim"]  # of r, z and the candidate, applied as U x and W h
Biases = Float[Tensor, "4 dim"]  # b_r, b_z, b and b_W
Before = Float[Tensor, "b dim"] | None  # h_0; None: zeros

# ---- naive


@form
def naive(
    x: Tokens, inputs: Matrices, recurrent: Matrices, biases: Biases, *, before: Before = None
) -> Tokens:
    """The cell, token by token (Cho et al., section 2.3, with r after W)."""
    (U_r, U_z, U), (W_r, W_z, W) = inputs, recurrent
    b_r, b_z, b, b_W = biases
    h = initial_hidden(x, before)
    states = []
    for x_t in x.unbind(1):
        r = torch.sigmoid(x_t @ U_r.mT + h @ W_r.mT + b_r)
        z = torch.sigmoid(x_t @ U_z.mT + h @ W_z.mT + b_z)
        candidate = torch.tanh(x_t @ U.mT + b + r * (h @ W.mT + b_W))
        h = z * h + (1 - z) * candidate
        states.append(h)
    return note("state", torch.stack(states, dim=1))


# ---- fused


@form
def fused(
    x: Tokens, inputs: Matrices, recurrent: Matrices, biases: Biases, *, before: Before = None
) -> Tokens:
    """PyTorch's kernel; of its two biases of each gate the second is zero."""
    inside = torch.cat((torch.zeros_like(biases[:2]), biases[3:])).flatten()
    matrices = inputs.flatten(0, 1), recurrent.flatten(0, 1)
    return run_gru_kernel(x, *matrices, biases[:3].flatten(), inside, before)


FORMS = {"naive": naive, "fused": fused}

# ---- module


class GRU(Cell):
    """A layer of dim units: (b, n, dim) → (b, n, dim), causal; zeros at padding.

    ``step`` reads on from a state. All parameters are drawn uniformly within ± dim^(-1/2).
    """

    @checked
    def __init__(self, dim: Size, *, form: Literal["naive", "fused"] = "fused") -> None:
        super().__init__(dim, form, FORMS[form])
        shapes = (3, dim, dim), (3, dim, dim), (4, dim)
        drawn = (torch.empty(shape).uniform_(-1, 1) * dim**-0.5 for shape in shapes)
        self.inputs, self.recurrent, self.biases = map(nn.Parameter, drawn)


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="gru",
    family="recurrence",
    role="mix",
    forms=FORMS,
    causal="always",
    causal_reason="its state holds what was read before",
    time=12 * n * dim**2,
    launches=dict.fromkeys(FORMS, n),
    memory={"naive": n * dim, "fused": 3 * n * dim},
    notes=dict.fromkeys(FORMS, ("state",)),
    build=GRU,
    aliases=("gated_recurrent_unit",),
)
