"""Full attention against hand-computed numbers, PyTorch's own, and its exact identities."""

import math

import pytest
import torch
from torch import nn

import attnlab
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.dense.full import FORMS, FullAttention, fused, naive
from tests.mechanisms.dense.softmax_promises import PROMISES


def test_by_hand() -> None:
    """Two keys whose scores differ by log 3: the weights are 1/4 and 3/4."""
    q = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]], dtype=torch.float64)  # d = 4, so the scale is 1/2
    k = torch.tensor([[[[0.0, 9.0, 9.0, 9.0], [math.log(3), 0, 0, 0]]]], dtype=torch.float64)
    v = torch.tensor([[[[8.0, 0.0], [0.0, 4.0]]]], dtype=torch.float64)
    with record() as notes:
        out = naive(q, k, v)
    torch.testing.assert_close(notes["weights"][0].flatten(), torch.tensor([0.25, 0.75]).double())
    torch.testing.assert_close(out.flatten(), torch.tensor([2.0, 3.0]).double())


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_softmax_attention(promise, form) -> None:
    promise(form)


def test_scale_keeps_unit_variance() -> None:
    with record() as notes:
        naive(torch.randn(1, 1, 500, 64), torch.randn(1, 1, 500, 64), torch.randn(1, 1, 500, 3))
    assert notes["scores"][0].var().item() == pytest.approx(1, abs=0.05)
    with record() as notes:
        naive(*(torch.randn(1, 1, 500, 64) for _ in range(3)), scale=1.0)
    assert notes["scores"][0].var().item() == pytest.approx(64, rel=0.05)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_values_that_are_mixed_with_those_of_another_layer(form) -> None:
    """A value residual: linear in the values, so mixing before is mixing after."""
    q, k, v, first = (torch.randn(2, 3, 7, 5, dtype=torch.float64) for _ in range(4))
    mixed = form(q, k, 0.3 * first + 0.7 * v)
    torch.testing.assert_close(mixed, 0.3 * form(q, k, first) + 0.7 * form(q, k, v))


def test_module_equals_pytorch() -> None:
    """With PyTorch's weights, the module is nn.MultiheadAttention: causal, padded and across."""
    theirs = nn.MultiheadAttention(12, 3, batch_first=True, bias=False, dtype=torch.float64)
    x, context = torch.randn(2, 7, 12).double(), torch.randn(2, 5, 12).double()
    real, real_context = torch.rand(2, 7) > 0.3, torch.rand(2, 5) > 0.3
    real[:, 0] = real_context[:, 0] = True
    for form in FORMS:
        causal, across = (_like(theirs, causal=c, form=form) for c in (True, False))
        forbidden = ~torch.ones(7, 7, dtype=torch.bool).tril()
        expected = theirs(x, x, x, attn_mask=forbidden, key_padding_mask=~real)[0]
        torch.testing.assert_close(causal(x, real)[real], expected[real])
        expected = theirs(x, context, context, key_padding_mask=~real_context)[0]
        torch.testing.assert_close(
            across(x, context=context, context_padding=real_context), expected
        )


def _like(theirs: nn.MultiheadAttention, **options: object) -> FullAttention:
    mine = FullAttention(12, 3, **options).double()  # type: ignore[arg-type]
    weights = theirs.in_proj_weight.detach().chunk(3)
    mine.heads.query.weight.data, mine.heads.key.weight.data, mine.heads.value.weight.data = weights
    mine.heads.output.weight.data = theirs.out_proj.weight.detach()
    return mine


def test_parameter_count() -> None:
    """d=512, H=8: 1,048,576, and 1,050,624 with biases."""
    for bias, expected in ((False, 1_048_576), (True, 1_050_624)):
        layer = attnlab.build("full", dim=512, heads=8, bias=bias)
        assert sum(p.numel() for p in layer.parameters()) == expected


def test_counted_flops_are_the_card_s() -> None:
    q, k, v = (torch.randn(1, 3, 17, 5) for _ in range(3))
    claim = attnlab.card("full").cost("time")
    sizes = {"h": 3, "n": 17, "m": 17, "d": 5, "e": 5}
    claimed = int(claim.subs({s: sizes[s.name] for s in claim.free_symbols}))
    assert count(naive, q, k, v).flops == claimed == 2 * 3 * 17 * 17 * 10
    assert count(fused, q, k, v).flops == claimed


def test_calls_that_make_no_sense() -> None:
    x = torch.randn(2, 7, 12)
    real = torch.ones(2, 7, dtype=torch.bool)
    with pytest.raises(ValueError, match="without a context"):
        FullAttention(12, 3)(x, context_padding=real)
    with pytest.raises(ValueError, match="causal layer cannot look at a context"):
        FullAttention(12, 3, causal=True)(x, context=x)
    with pytest.raises(ValueError, match="give context_padding"):
        FullAttention(12, 3)(x, real, context=x)
    with pytest.raises(ValueError, match="causal=True"):
        FullAttention(12, 3).step(x)
    with pytest.raises(ValueError, match="did you mean 'fused'"):
        FullAttention(12, 3, form="fuse")
    layer = FullAttention(12, 3, causal=True)
    _, state = layer.step(x)
    with pytest.raises(ValueError, match="the cache holds 2 sequences, but 1 came"):
        layer.step(x[:1], state)


def test_a_watched_step_shows_all_keys() -> None:
    x = torch.randn(1, 5, 12)
    for form in FORMS:
        layer = FullAttention(12, 3, causal=True, form=form)
        _, state = layer.step(x[:, :4])
        with record() as notes:
            layer.step(x[:, 4:], state)
        assert notes.last("keys").shape == (1, 3, 5, 4)
        assert notes.last("values").shape == (1, 3, 5, 4)
