"""Projections and heads."""

import pytest
import torch

from attnlab.core.heads import Heads
from attnlab.core.probe import record


def test_heads_are_cut_from_the_width() -> None:
    """Head a reads columns a·d … (a+1)·d of x W_Q; merging puts them back in the same order."""
    heads = Heads(6, 3)
    with torch.no_grad():
        for linear in (heads.query, heads.key, heads.value, heads.output):
            linear.weight.copy_(torch.eye(6))
    x = torch.randn(2, 5, 6)
    q, k, v = heads.project(x)
    assert torch.equal(q[:, 1], x[..., 2:4])
    assert torch.equal(k, q)
    assert torch.equal(v, q)
    assert torch.equal(heads.merge(v), x)


def test_widths_groups_and_context() -> None:
    heads = Heads(12, 6, kv_heads=2, head_dim=5, value_dim=7)
    q, k, v = heads.project(torch.randn(2, 3, 12), torch.randn(2, 11, 12))
    assert (q.shape, k.shape, v.shape) == ((2, 6, 3, 5), (2, 2, 11, 5), (2, 2, 11, 7))
    assert heads.merge(torch.randn(2, 6, 3, 7)).shape == (2, 3, 12)


def test_projections_are_noted() -> None:
    with record() as notes:
        q, k, v = Heads(6, 3).project(torch.randn(2, 5, 6))
    assert notes["queries"][0] is q
    assert notes["keys"][0] is k
    assert notes["values"][0] is v


def test_autocast_mixes_dtypes() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        q, _, _ = Heads(6, 3).project(torch.randn(2, 5, 6).bfloat16())
    assert q.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"dim": 10, "heads": 3}, "heads=3 does not divide dim=10"),
        ({"dim": 12, "heads": 6, "kv_heads": 4}, "kv_heads=4 does not divide heads=6"),
        ({"dim": 12, "heads": 0}, "heads should be at least 1, got 0"),
        ({"dim": 0, "heads": 1}, "dim should be at least 1, got 0"),
    ],
)
def test_bad_sizes(arguments: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Heads(**arguments)  # type: ignore[arg-type]


def test_bad_inputs() -> None:
    heads = Heads(12, 3)
    with pytest.raises(ValueError, match="`x` has width 5, but this layer was built with dim=12"):
        heads.project(torch.randn(2, 3, 5))
    with pytest.raises(ValueError, match=r"b is 3, expected 2 as in `x`"):
        heads.project(torch.randn(2, 3, 12), torch.randn(3, 3, 12))
    with pytest.raises(ValueError, match=r"`x` is torch.float64 but the layer's parameters"):
        heads.project(torch.randn(2, 3, 12).double())


def test_heads_without_queries_have_values_alone() -> None:
    heads, x = Heads(6, 3, queries=False), torch.randn(2, 5, 6)
    assert {name for name, _ in heads.named_parameters()} == {"value.weight", "output.weight"}
    whole = Heads(6, 3)
    whole.value = heads.value
    assert torch.equal(heads.values(x), whole.project(x)[2])
    with pytest.raises(ValueError, match="built with queries=False"):
        heads.project(x)
    with pytest.raises(ValueError, match="`x` has width 7"):
        heads.values(torch.randn(2, 5, 7))


def test_what_does_not_fit_is_said_before_anything_is_projected() -> None:
    heads = Heads(6, 2)
    heads.check_input(torch.randn(1, 3, 6), "x")
    with pytest.raises(ValueError, match=r"`summary` has width 5, but this layer .* dim=6"):
        heads.check_input(torch.randn(1, 3, 5), "summary")
