"""Multi-query attention: its two ends, its cache, and the repeating trap."""

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.dense.multi_query import FORMS, MultiQueryAttention


def made(g: int) -> list[Tensor]:
    shapes = ((2, 6, 7, 5), (2, g, 13, 5), (2, g, 13, 11))
    return [torch.randn(s, dtype=torch.float64) for s in shapes]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_as_many_groups_as_heads_is_multi_head(form) -> None:
    q, k, v = made(6)
    mask = patterns.causal()
    torch.testing.assert_close(form(q, k, v, mask=mask), full.naive(q, k, v, mask=mask))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_heads_are_repeated_one_after_the_other(form) -> None:
    """(0, 0, 0, 1, 1, 1), not (0, 1, 0, 1, 0, 1)."""
    q, k, v = made(2)
    order = [0, 0, 0, 1, 1, 1]
    expected = full.naive(q, k[:, order], v[:, order])
    torch.testing.assert_close(form(q, k, v), expected)
    in_turn = [0, 1, 0, 1, 0, 1]
    assert not torch.allclose(form(q, k, v), full.naive(q, k[:, in_turn], v[:, in_turn]))


def test_module_with_repeated_weights_is_multi_head() -> None:
    grouped = MultiQueryAttention(12, 6, kv_heads=2, causal=True).double()
    whole = full.FullAttention(12, 6, causal=True).double()
    for name in ("query", "output"):
        getattr(whole.heads, name).weight.data = getattr(grouped.heads, name).weight.data
    for name in ("key", "value"):
        weight = getattr(grouped.heads, name).weight.data.unflatten(0, (2, 2))
        getattr(whole.heads, name).weight.data = weight.repeat_interleave(3, dim=0).flatten(0, 1)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    torch.testing.assert_close(grouped(x), whole(x))


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_cache_shrinks_by_the_group(kv_heads: int) -> None:
    layer = MultiQueryAttention(12, 6, kv_heads=kv_heads, causal=True)
    _, state = layer.step(torch.randn(1, 5, 12))
    assert sum(part.numel() for part in state) == kv_heads * 5 * (2 + 2)


def test_parameter_counts() -> None:
    """MQA at d=512, H=8: 589,824; GQA at d=4096, H=32, G=8: 41,943,040."""
    for dim, heads, kv_heads, expected in ((512, 8, 1, 589_824), (4096, 32, 8, 41_943_040)):
        with torch.device("meta"):
            layer = attnlab.build("multi_query", dim=dim, heads=heads, kv_heads=kv_heads)
        assert sum(p.numel() for p in layer.parameters()) == expected


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_groups_must_divide_the_heads(form) -> None:
    q, k, v = made(4)
    with pytest.raises(ValueError, match="4 key/value heads do not divide 6 query heads"):
        form(q, k, v)
    with pytest.raises(ValueError, match="kv_heads=4 does not divide heads=6"):
        MultiQueryAttention(12, 6, kv_heads=4)


def test_step_needs_a_causal_layer() -> None:
    with pytest.raises(ValueError, match="causal=True"):
        MultiQueryAttention(12, 6).step(torch.randn(1, 1, 12))
