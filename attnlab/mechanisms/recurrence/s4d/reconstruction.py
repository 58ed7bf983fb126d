"""Reading the past from a state."""

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core import state_space
from attnlab.core.options import Size
from attnlab.core.shapes import checked
from attnlab.core.state_space import Modes, as_complex


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
