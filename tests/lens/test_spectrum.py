"""Spectra of attention maps: by hand, against the nearest map of lower rank, and in batches."""

import numpy as np
import pytest
import torch

from attnlab.lens.mixing import mixing_matrix
from attnlab.lens.spectrum import Spectrum, spectrum
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.mechanisms.lowrank.linformer import Linformer, LinformerOptions


def diagonal(*values):
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def test_by_hand():
    found = spectrum(diagonal(1, 4, 2, 2))
    np.testing.assert_allclose(found.singular_values, [4, 2, 2, 1])
    np.testing.assert_allclose(found.cumulative(), np.array([16, 20, 24, 25]) / 25)
    np.testing.assert_allclose(found.cumulative("values"), np.array([4, 6, 8, 9]) / 9)
    assert [found.rank(s) for s in (0.5, 0.64, 0.65, 0.8, 0.96, 0.97, 1)] == [1, 1, 2, 2, 3, 4, 4]
    assert found.rank(0.65, "values") == 2
    assert found.rank(0.7, "values") == 3


def test_what_is_left_out_is_the_distance_to_the_nearest_map_of_that_rank():
    maps = torch.rand(2, 3, 11, 13, dtype=torch.float64).softmax(-1)
    found = spectrum(maps)
    u, s, v = torch.linalg.svd(maps, full_matrices=False)
    for r in (1, 4, 10):
        nearest = (u[..., :r] * s[..., None, :r]) @ v[..., :r, :]
        left = (maps - nearest).square().sum((-1, -2)) / maps.square().sum((-1, -2))
        np.testing.assert_allclose(1 - found.cumulative()[..., r - 1], left, atol=1e-14)
    assert found.singular_values.shape == found.cumulative().shape == (2, 3, 11)
    assert found.rank().shape == (2, 3)


def test_a_batch_is_its_maps_one_by_one():
    maps = torch.rand(2, 3, 5, 7).pow(3)
    together = spectrum(maps)
    for b in range(2):
        for h in range(3):
            alone = spectrum(maps[b, h])
            np.testing.assert_allclose(together.singular_values[b, h], alone.singular_values)
            assert together.rank(0.95)[b, h] == alone.rank(0.95)


@pytest.mark.parametrize("r", [1, 3, 7])
def test_numerical_rank_sees_through_rounding(r):
    maps = torch.rand(5, 101, r, dtype=torch.float64) @ torch.rand(5, r, 97, dtype=torch.float64)
    for of in ("energy", "values"):
        assert (spectrum(maps).rank(1, of) == r).all()
    assert (spectrum(maps).singular_values[:, r:] < 1e-12).all()


def test_share_of_a_tiny_rest_is_exact():
    """1 - 10⁻²⁰ rounds to 1, but the second direction is there and one may ask for all."""
    found = spectrum(diagonal(1.0, 1e-10))
    assert found.cumulative()[0] == 1
    assert found.rank(1.0) == 2
    assert found.rank(0.999) == 1


def test_ends_of_the_scale():
    uniform, identity = torch.full((7, 7), 1 / 7), torch.eye(7)
    assert spectrum(uniform).rank(1 - 1e-9) == 1
    assert spectrum(identity).rank(0.9) == 7
    assert spectrum(identity).rank(0.85) == 6
    nothing = spectrum(torch.zeros(3, 5))
    assert nothing.rank(0.9) == 0
    np.testing.assert_array_equal(nothing.cumulative(), 1)


def test_padding_is_as_if_it_had_never_been_there():
    maps = torch.rand(2, 3, 7, 7, dtype=torch.float64)
    padding = torch.tensor([[1] * 7, [0, 1, 1, 1, 1, 1, 0]], dtype=torch.bool)
    found = spectrum(maps, padding=padding)
    inside = spectrum(maps[1, :, 1:6, 1:6])
    np.testing.assert_allclose(found.singular_values[1, :, :5], inside.singular_values)
    np.testing.assert_allclose(found.singular_values[1, :, 5:], 0, atol=1e-15)
    np.testing.assert_array_equal(found.rank(0.9)[1], inside.rank(0.9))
    queries = maps[:, :, :5]  # rows are not the columns' positions: only columns go
    expected = spectrum(queries[1, :, :, 1:6]).singular_values
    np.testing.assert_allclose(
        spectrum(queries, padding=padding).singular_values[1], expected, atol=1e-15
    )


def test_the_map_of_linformer_has_rank_k_and_that_of_full_attention_more():
    x = torch.randn(2, 23, 12, dtype=torch.float64)
    low = mixing_matrix(
        Linformer(12, 3, options=LinformerOptions(k=5, max_len=23)).double(), x
    ).matrix
    high = mixing_matrix(FullAttention(12, 3).double(), 5 * x).matrix
    assert (spectrum(low).rank(1) == 5).all()
    assert (spectrum(high).rank(1) > 5).all()


def test_half_precision_and_gradients_are_fine():
    maps = torch.eye(3, dtype=torch.bfloat16).requires_grad_()
    np.testing.assert_allclose(spectrum(maps).singular_values, [1, 1, 1])


def test_bad_input_is_reported():
    with pytest.raises(ValueError, match="NaN or infinity"):
        spectrum(torch.full((2, 2), torch.nan))
    with pytest.raises(ValueError, match="n m"):
        spectrum(torch.rand(3))
    with pytest.raises(ValueError, match=r"\(b, m\) for maps"):
        spectrum(torch.rand(2, 3, 5, 5), padding=torch.ones(3, 5, dtype=torch.bool))
    found = Spectrum(np.ones(3), (3, 3))
    with pytest.raises(ValueError, match="0 < share ≤ 1, got 90"):
        found.rank(90)
    with pytest.raises(ValueError, match="no kind of share 'value'; did you mean 'values'"):
        found.cumulative("value")
