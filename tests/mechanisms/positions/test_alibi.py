"""ALiBi: slopes for any number of heads; the linear bias, and its form that knows keys only."""

import pytest
import torch

import attnlab
from attnlab.core import patterns
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.positions.alibi import naive, slopes


def test_slopes_of_powers_of_two() -> None:
    assert slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    assert slopes(1).tolist() == [2.0**-8]
    torch.testing.assert_close(slopes(16), 2.0 ** -(torch.arange(1, 17) / 2))


@pytest.mark.parametrize("heads", [3, 6, 12, 20, 40])
def test_slopes_of_other_numbers(heads: int) -> None:
    """Those of the power below, then every second one of twice that power."""
    power = max(p for p in (1, 2, 4, 8, 16, 32) if p <= heads)
    expected = torch.cat((slopes(power), slopes(2 * power)[0::2][: heads - power]))
    torch.testing.assert_close(slopes(heads), expected)
    assert slopes(heads).unique().numel() == heads


@pytest.mark.parametrize("heads", [8, 12, 16])
def test_slopes_as_in_hugging_face(heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    n = 9
    theirs = bloom.build_alibi_tensor(torch.ones(1, n), heads, torch.float32).view(heads, n)
    torch.testing.assert_close(slopes(heads)[:, None] * torch.arange(n), theirs)


def test_the_bias_of_a_causal_layer_may_be_of_the_key_alone() -> None:
    q, k, v = torch.randn(3, 2, 4, 11, 6, dtype=torch.float64).unbind(0)
    at, m = torch.arange(11), slopes(4).double()
    both = naive(at, at, m).expand(2, -1, -1, -1)
    key_alone = (m[:, None] * at)[None, :, None].expand(2, -1, 11, -1)
    mask = patterns.causal()
    torch.testing.assert_close(
        full.naive(q, k, v, mask=mask, bias=both), full.naive(q, k, v, mask=mask, bias=key_alone)
    )


def test_biases_by_hand() -> None:
    bias = attnlab.build("alibi", dim=8, heads=2)(torch.tensor([2]), torch.tensor([0, 2, 3]))
    expected = torch.tensor([[[-2 / 16, 0, -1 / 16]], [[-2 / 256, 0, -1 / 256]]])
    torch.testing.assert_close(bias, expected)


def test_wrong_calls_are_answered_in_sentences() -> None:
    with pytest.raises(ValueError, match="heads should be at least 1"):
        attnlab.build("alibi", dim=8, heads=0)
    with pytest.raises(ValueError, match="the dtype is not a int"):
        naive(torch.zeros(3), torch.zeros(3), slopes(2))
