"""FlashAttention against full attention: tiles of any size, memory, work, precision."""

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.dense.flash import FORMS, FlashAttention, FlashOptions, naive, tiled
from tests.mechanisms.dense.softmax_promises import PROMISES, queries_keys_values


@pytest.mark.parametrize("tile", [1, 2, 3, 5, 7, 13, 64])
def test_tiles_of_any_size(tile: int) -> None:
    made = [x.requires_grad_() for x in queries_keys_values()]
    for mask in (None, patterns.causal(), torch.rand(2, 1, 7, 13) > 0.5, torch.rand(1, 13) > 0.3):
        expected = torch.autograd.grad(naive(*made, mask=mask).sin().sum(), made)
        got = torch.autograd.grad(
            tiled(*made, mask=mask, options=FlashOptions(tile=tile)).sin().sum(), made
        )
        for mine, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_tiles_survive_poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is allocated empty is written before it is read."""
    poisoned = lambda self, *shape, **kw: self.new_full(  # noqa: E731
        shape[0] if isinstance(shape[0], tuple | torch.Size) else shape, torch.nan, **kw
    )
    qkv = queries_keys_values()
    expected = naive(*qkv, mask=patterns.causal())
    monkeypatch.setattr(Tensor, "new_empty", poisoned)
    torch.testing.assert_close(
        tiled(*qkv, mask=patterns.causal(), options=FlashOptions(tile=4)), expected
    )


def test_tiled_never_makes_the_scores() -> None:
    """Extra memory, forward and backward, grows linearly; naive's grows with the square."""
    peaks = {}
    for form, options in ((naive, {}), (tiled, {"options": FlashOptions(tile=64)})):
        for n in (512, 1024):
            made = [torch.randn(1, 2, n, 16, requires_grad=True) for _ in range(3)]
            call = lambda q, k, v, f=form, o=options: f(q, k, v, mask=patterns.causal(), **o)  # noqa: E731
            peaks[form.__name__, n] = count(call, *made, backward=True).peak_bytes
    assert peaks["naive", 1024] > 3.5 * peaks["naive", 512]
    assert peaks["tiled", 1024] < 2.2 * peaks["tiled", 512]
    assert peaks["tiled", 1024] < 0.2 * peaks["naive", 1024]


def test_tiled_skips_what_nobody_sees() -> None:
    """A causal pattern costs about half of the FLOPs, because empty tiles are not computed."""
    made = [torch.randn(1, 1, 1024, 16) for _ in range(3)]
    whole = count(lambda q, k, v: tiled(q, k, v, options=FlashOptions(tile=64)), *made).flops
    half = count(
        lambda q, k, v: tiled(q, k, v, options=FlashOptions(tile=64), mask=patterns.causal()), *made
    ).flops
    assert half == whole * (16 * 17 / 2) / 16**2


def test_log_sum_exp_is_noted() -> None:
    qkv = queries_keys_values()
    with record() as notes:
        tiled(*qkv, options=FlashOptions(tile=4))
        naive(*qkv)
    torch.testing.assert_close(notes["log_sum_exp"][0], notes["scores"][0].logsumexp(-1))


def test_tiled_sums_in_float32_under_autocast_too() -> None:
    """What it converts to float32 autocast must not convert back, forward or backward."""
    torch.manual_seed(0)
    made = [
        torch.randn(2, 3, n, d).bfloat16().requires_grad_() for n, d in [(7, 5), (11, 5), (11, 13)]
    ]
    plain = tiled(*made, options=FlashOptions(tile=3))
    expected = torch.autograd.grad(plain.float().square().sum(), made)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        automatic = tiled(*made, options=FlashOptions(tile=3))
        found = torch.autograd.grad(automatic.float().square().sum(), made)
    assert torch.equal(automatic, plain)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_second_derivatives_of_tiled_are_refused_not_left_out() -> None:
    q, k, v = torch.randn(3, 1, 1, 5, 4).requires_grad_().unbind()
    for reached in (tiled(q, k, v).sum(), tiled(q, k, v).square().sum()):
        with pytest.raises(RuntimeError, match="tiled has first derivatives only"):
            torch.autograd.grad(reached, q, create_graph=True)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_softmax_attention(promise, form) -> None:
    promise(form)


def test_naive_is_full_attention() -> None:
    qkv = queries_keys_values()
    for mask in (None, patterns.causal()):
        assert torch.equal(naive(*qkv, mask=mask), full.naive(*qkv, mask=mask))


def test_the_layer_is_full_attention() -> None:
    dense = full.FullAttention(12, 3, causal=True).double()
    x = torch.randn(2, 7, 12).double()
    for form in FORMS:
        layer = FlashAttention(12, 3, causal=True, form=form, options=FlashOptions(tile=3)).double()
        layer.load_state_dict(dense.state_dict())
        torch.testing.assert_close(layer(x), dense(x))


def test_counted_flops_are_the_card_s() -> None:
    q, k, v = (torch.randn(1, 3, 17, 5) for _ in range(3))
    claim = attnlab.card("flash").cost("time")
    sizes = {"h": 3, "n": 17, "m": 17, "d": 5, "e": 5}
    claimed = int(claim.subs({s: sizes[s.name] for s in claim.free_symbols}))
    assert count(lambda *x: tiled(*x, options=FlashOptions(tile=4)), q, k, v).flops == claimed


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="did you mean 'tiled'"):
        FlashAttention(12, 3, form="tiles")
    for wrong in (0, 2.5, True):
        with pytest.raises((ValueError, TypeError), match="tile should be"):
            tiled(*(torch.randn(1, 1, 3, 4) for _ in range(3)), options=FlashOptions(tile=wrong))
        with pytest.raises((ValueError, TypeError), match="tile should be"):
            FlashAttention(12, 3, options=FlashOptions(tile=wrong))
