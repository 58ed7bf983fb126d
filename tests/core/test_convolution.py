"""Causal convolutions: by their sums, by PyTorch's, and cut anywhere."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.convolution import (
    fourier_convolution,
    last_inputs,
    short_convolution,
    smooth_length,
    toeplitz,
)


def by_sums(x: Tensor, kernel: Tensor) -> Tensor:
    """y_i = Σ_j K_{i - j} x_j of one channel, in plain numbers."""
    out = torch.zeros_like(x)
    for i in range(len(x)):
        for j in range(i + 1):
            if i - j < len(kernel):
                out[i] += kernel[i - j] * x[j]
    return out


@pytest.mark.parametrize(("n", "p"), [(1, 1), (7, 7), (13, 3), (5, 11), (16, 16), (97, 97)])
def test_three_ways_to_one_convolution(n: int, p: int) -> None:
    x, kernel = torch.randn(3, n).double(), torch.randn(3, p).double()
    wanted = torch.stack([by_sums(*each) for each in zip(x, kernel, strict=True)])
    torch.testing.assert_close(fourier_convolution(x, kernel), wanted)
    torch.testing.assert_close(short_convolution(x.mT[None], kernel)[0].mT, wanted)
    if n == p:
        torch.testing.assert_close((toeplitz(kernel) @ x[..., None])[..., 0], wanted)


def test_a_toeplitz_matrix_holds_the_kernel_below_its_diagonal() -> None:
    found = toeplitz(torch.tensor([[5.0, 7.0, 11.0]]))
    assert found.tolist() == [[[5, 0, 0], [7, 5, 0], [11, 7, 5]]]


def test_the_last_token_does_not_come_round_to_the_first() -> None:
    """Without zeros behind the tokens a Fourier transform is a circle."""
    x = torch.zeros(8).double()
    x[-1] = 1
    out = fourier_convolution(x, torch.ones(8).double())
    torch.testing.assert_close(out, x)


def test_half_precision_is_summed_in_float32() -> None:
    ones = torch.ones(1, 3000, dtype=torch.bfloat16)
    out = fourier_convolution(ones, ones)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), torch.arange(1.0, 3001)[None], rtol=4e-3, atol=0)


def test_lengths_are_smooth_and_close() -> None:
    for least in range(1, 3000):
        found = smooth_length(least)
        rest = found
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        assert rest == 1
        assert least <= found < 1.35 * least + 1


@pytest.mark.parametrize("cut", [[11], [1] * 11, [3, 1, 7], [1, 10]])
@pytest.mark.parametrize("p", [1, 2, 4, 17])
def test_a_short_convolution_goes_on_from_its_last_inputs(cut: list[int], p: int) -> None:
    x, taps = torch.randn(2, 11, 3).double(), torch.randn(3, p).double()
    before, parts = x.new_zeros(2, p - 1, 3), []
    for piece in x.split(cut, dim=1):
        parts.append(short_convolution(piece, taps, before))
        before = last_inputs(piece, before)
        assert before.shape == (2, p - 1, 3)
    torch.testing.assert_close(torch.cat(parts, dim=1), short_convolution(x, taps))


def test_the_first_tap_is_for_the_token_itself() -> None:
    x = torch.randn(2, 7, 3)
    assert torch.equal(short_convolution(x, torch.ones(3, 1)), x)
    shift = torch.tensor([0.0, 1.0]).expand(3, -1)
    assert torch.equal(short_convolution(x, shift), F.pad(x, (0, 0, 1, 0))[:, :-1])


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="the dtype is complex, not a float"):
        fourier_convolution(torch.randn(3, 7) * 1j, torch.randn(3, 7))
    with pytest.raises(ValueError, match="the dtype is complex, not a float"):
        toeplitz(torch.randn(3, 7) * 1j)
