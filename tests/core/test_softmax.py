"""The softmax over allowed keys."""

import pytest
import torch

from attnlab.core.softmax import masked_softmax


def test_is_softmax_where_all_is_allowed() -> None:
    scores = torch.randn(2, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(masked_softmax(scores), scores.softmax(-1))


def test_renormalises_over_the_allowed() -> None:
    scores = torch.tensor([[0.0, 5.0, 0.0, 1e9]]).log1p()
    mask = torch.tensor([[True, False, True, False]])
    assert masked_softmax(scores, mask).tolist() == [[0.5, 0.0, 0.5, 0.0]]


def test_empty_row_is_zero_in_values_and_gradients() -> None:
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    weights = masked_softmax(scores, mask)
    assert weights.sum(-1).tolist() == pytest.approx([1, 0, 1])
    (grad,) = torch.autograd.grad(weights.square().sum(), scores)
    assert torch.isfinite(grad).all()
    assert (grad[1] == 0).all()
    assert torch.autograd.gradcheck(lambda s: masked_softmax(s, mask), scores)


def test_half_precision_is_summed_wide() -> None:
    """4,096 equal scores: each weight is 2^-12 exactly, which a bfloat16 sum would miss."""
    weights = masked_softmax(torch.zeros(1, 4096, dtype=torch.bfloat16))
    assert weights.dtype == torch.bfloat16
    assert (weights == 2**-12).all()


def test_minus_infinity_scores_are_a_mask_too() -> None:
    scores = torch.tensor([[1.0, -torch.inf], [-torch.inf, -torch.inf]])
    assert masked_softmax(scores).tolist() == [[1, 0], [0, 0]]
