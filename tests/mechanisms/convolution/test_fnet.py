"""FNet: the transform by its sums, its symmetries, and what happens to padding."""

import cmath

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.mechanisms.convolution import fnet
from attnlab.models.tiny import TinyTransformer


def by_sums(x: Tensor) -> Tensor:
    """Re of the double sum, for one sequence (n, dim)."""
    n, dim = x.shape
    out = torch.zeros_like(x)
    for i in range(n):
        for c in range(dim):
            total = 0j
            for j in range(n):
                for k in range(dim):
                    total += float(x[j, k]) * cmath.exp(-2j * cmath.pi * (i * j / n + c * k / dim))
            out[i, c] = total.real
    return out


@pytest.mark.parametrize(("n", "dim"), [(1, 1), (5, 3), (4, 6), (7, 2)])
@pytest.mark.parametrize("form", fnet.FORMS)
def test_it_is_the_real_part_of_the_double_sum(form: str, n: int, dim: int) -> None:
    x = torch.randn(2, n, dim, dtype=torch.float64)
    out = fnet.FORMS[form](x)
    for row in range(2):
        torch.testing.assert_close(out[row], by_sums(x[row]), rtol=1e-10, atol=1e-10)


def test_it_is_the_two_dimensional_transform_of_pytorch() -> None:
    x = torch.randn(3, 11, 8, dtype=torch.float64)
    torch.testing.assert_close(fnet.fft(x), torch.fft.fft2(x).real)


@pytest.mark.parametrize("form", fnet.FORMS)
def test_twice_is_a_reversal(form: str) -> None:
    """Re F twice gives the mean of x and x reversed along both axes, times n · dim."""
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    reversed_ = x.flip(1, 2).roll((1, 1), dims=(1, 2))
    twice = fnet.FORMS[form](fnet.FORMS[form](x))
    torch.testing.assert_close(twice, 42 * (x + reversed_) / 2)


@pytest.mark.parametrize("form", fnet.FORMS)
def test_real_tokens_are_transformed_as_if_they_stood_alone(form: str) -> None:
    x = torch.randn(3, 9, 5, dtype=torch.float64)
    padding = torch.tensor([[1, 1, 0, 1, 0, 1, 1, 0, 1], [0] * 9, [1] * 9], dtype=torch.bool)
    out = fnet.FORMS[form](x, padding=padding)
    for row in (0, 2):
        torch.testing.assert_close(out[row, padding[row]], by_sums(x[row, padding[row]]))
    assert (out[~padding] == 0).all()


def test_angles_of_long_sequences_keep_their_digits() -> None:
    """Of 3,001 places: j · k reaches nine million, whose angle in float32 would be wrong."""
    x = torch.randn(1, 3001, 2)
    exact = fnet.fft(x.double())
    assert (fnet.naive(x) - exact).abs().max() < 2e-3 * exact.abs().max()


def test_nothing_is_learned_and_no_n_by_n_tensor_is_made() -> None:
    layer = attnlab.build("fnet", dim=16, heads=4)
    assert not list(layer.parameters())
    assert not list(layer.buffers())
    assert repr(layer) == "FNet(dim=16, form='fft')"


def test_the_hybrid_has_attention_in_its_last_layer() -> None:
    model = TinyTransformer(
        vocab=13, dim=8, heads=2, layers=3, max_len=16, attention=["fnet", "fnet", "full"],
        kind="classifier", classes=3,
    )  # fmt: skip
    tokens = torch.randint(0, 13, (2, 9))
    assert model(tokens).shape == (2, 3)


def test_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="width 6, but this layer was built with dim=8"):
        fnet.FNet(8)(torch.randn(1, 3, 6))


def test_it_agrees_with_hugging_face() -> None:
    modeling = pytest.importorskip("transformers.models.fnet.modeling_fnet")
    config = pytest.importorskip("transformers").FNetConfig(hidden_size=12)
    theirs = modeling.FNetBasicFourierTransform(config)
    x = torch.randn(2, 7, 12)
    torch.testing.assert_close(fnet.fft(x), theirs(x)[0], rtol=1e-5, atol=1e-5)
