"""Bistable cells: the fast forms that BRC and nBRC share.

The two cells differ in what the state adds to the gates: products of elements, or of matrices. What
the input adds is the same: U_a x + b_a and U_c x + b_c at the gates, U x at the candidate.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnlab.core.precision import no_autocast, upcast
from attnlab.core.probe import note
from attnlab.core.recurrence import begin, by_gru


def after_one_product(
    x: Tensor, inputs: Tensor, biases: Tensor, before: Tensor | None,
    of_state: Callable[[Tensor], Sequence[Tensor]],
) -> Tensor:  # fmt: skip
    """The states (b, n, dim): what depends on x (b, n, dim) alone in one product, then the loop.

    ``inputs`` are U_a, U_c and U (3, dim, dim), ``biases`` b_a and b_c (2, dim). ``of_state(h)`` is
    what a state (b, dim) adds to both gates.
    """
    h, (b_a, b_c), states = begin(x, before), upcast(biases), []
    with no_autocast(x.device):
        of_a, of_c, of_h = (upcast(x) @ upcast(inputs).flatten(0, 1).mT).chunk(3, dim=-1)
        for a, c, u in zip(*(y.unbind(1) for y in (of_a + b_a, of_c + b_c, of_h)), strict=True):
            from_a, from_c = of_state(h)
            gate = torch.sigmoid(c + from_c)
            h = gate * h + (1 - gate) * torch.tanh(u + (1 + torch.tanh(a + from_a)) * h)
            states.append(h)
    return note("state", torch.stack(states, dim=1)).to(x.dtype)


def as_gru(
    x: Tensor, inputs: Tensor, recurrent: Tensor, biases: Tensor, before: Tensor | None
) -> Tensor:
    """The states (b, n, dim) by PyTorch's GRU, as 1 + tanh v = 2 σ(2v): its reset gate has 2 U_a
    and 2 W_a, its update gate U_c and W_c, its candidate U and W = 2 I.

    ``recurrent`` are W_a and W_c (2, dim, dim), the other arguments those of the loop.
    """
    (U_a, U_c, U), (W_a, W_c), (b_a, b_c) = (upcast(each) for each in (inputs, recurrent, biases))
    twice = 2 * torch.eye(x.shape[-1], dtype=upcast(x).dtype, device=x.device)
    inside = torch.cat((2 * b_a, b_c, torch.zeros_like(b_a)))
    weights = torch.cat((2 * U_a, U_c, U)), torch.cat((2 * W_a, W_c, twice)), inside
    return by_gru(x, *weights, torch.zeros_like(inside), before)
