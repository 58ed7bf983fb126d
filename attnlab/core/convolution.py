r"""Causal convolutions along the sequence: as a matrix, by Fourier transforms, and a few taps.

$$y_i = \sum_{j \le i} K_{i - j}\, x_j$$

in each channel by itself, K its impulse response. As a map of positions this is a lower triangular
Toeplitz matrix: what is written to position i depends on the distance alone. Token 0 of a kernel
is the weight of the newest token. (``torch.nn.Conv1d`` correlates: there the last tap is.)
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.precision import no_autocast, upcast, upcast_together
from attnlab.core.shapes import checked
from attnlab.core.tracing import exporting


@checked
def toeplitz(kernel: Float[Tensor, "... n"]) -> Float[Tensor, "... n n"]:
    """The matrix T of a convolution of n tokens, T[i, j] = kernel[i - j]; zeros above."""
    i = torch.arange(kernel.shape[-1], device=kernel.device)
    distance = i[:, None] - i
    return kernel[..., distance.clamp(min=0)].masked_fill(distance < 0, 0)


@checked
def fourier_convolution(
    x: Float[Tensor, "... n"], kernel: Float[Tensor, "... p"]
) -> Float[Tensor, "... n"]:
    """The first n numbers of the convolution, along the last axis; the others broadcast.

    Both are padded with zeros to at least n + p - 1 points: a Fourier transform is periodic, and
    without them the last tokens would reach the first. Half precisions are computed in float32. A
    transform rounds all positions together, so a token changes what stands before it by as much as
    is rounded, and by a NaN as a whole.
    """
    if not x.numel():
        return x
    n = x.shape[-1]
    kernel = kernel[..., :n]
    points = n + kernel.shape[-1] - 1
    points = points if exporting() else smooth_length(points)  # of a length that is not known yet
    with no_autocast(x.device):
        wide_x, wide_kernel = upcast_together(x, kernel)
        spectrum = torch.fft.rfft(wide_x, n=points) * torch.fft.rfft(wide_kernel, n=points)
        return torch.fft.irfft(spectrum, n=points)[..., :n].to(x.dtype)


def smooth_length(least: int) -> int:
    """The smallest 2^a, 3 · 2^a, 5 · 2^a, 9 · 2^a or 15 · 2^a of at least ``least``: lengths of
    small prime factors have fast transforms."""
    return min(odd << max(0, -(-least // odd) - 1).bit_length() for odd in (1, 3, 5, 9, 15))


@checked
def short_convolution(
    x: Float[Tensor, "b n dim"],
    taps: Float[Tensor, "dim p"],
    before: Tensor | None = None,
) -> Float[Tensor, "b n dim"]:
    """p taps per channel, the first for the token itself; ``before`` (b, p - 1, dim) are the inputs
    before the first (zeros unless given), as ``last_inputs`` keeps them."""
    reach = taps.shape[1] - 1
    past = x.new_zeros(x.shape[0], reach, x.shape[2]) if before is None else before
    whole = torch.cat((past, x), dim=1).mT
    with no_autocast(x.device):
        # torch correlates: the taps are turned around.
        out = F.conv1d(upcast(whole), upcast(taps).flip(1)[:, None], groups=len(taps))
    return out.mT.to(x.dtype)


def last_inputs(
    x: Float[Tensor, "b n dim"], before: Float[Tensor, "b p dim"]
) -> Float[Tensor, "b p dim"]:
    """What a short convolution has to know of the past: as many inputs as ``before`` holds, after
    those of ``x``."""
    reach = before.shape[1]
    joined = torch.cat((before, x), dim=1)
    return joined[:, joined.shape[1] - reach :].clone()  # a view would keep all of them
