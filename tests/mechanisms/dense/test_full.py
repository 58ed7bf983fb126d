"""Full attention against hand-computed numbers, PyTorch's own, and its exact identities."""

import math

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.dense.full import FORMS, FullAttention, fused, naive, tiled


@pytest.fixture
def qkv() -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((2, 3, 7, 5), (2, 3, 13, 5), (2, 3, 13, 11))
    return tuple(torch.randn(s, dtype=torch.float64) for s in shapes)  # type: ignore[return-value]


def test_by_hand() -> None:
    """Two keys whose scores differ by log 3: the weights are 1/4 and 3/4."""
    q = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]], dtype=torch.float64)  # d = 4, so the scale is 1/2
    k = torch.tensor([[[[0.0, 9.0, 9.0, 9.0], [math.log(3), 0, 0, 0]]]], dtype=torch.float64)
    v = torch.tensor([[[[8.0, 0.0], [0.0, 4.0]]]], dtype=torch.float64)
    with record() as notes:
        out = naive(q, k, v)
    torch.testing.assert_close(notes["weights"][0].flatten(), torch.tensor([0.25, 0.75]).double())
    torch.testing.assert_close(out.flatten(), torch.tensor([2.0, 3.0]).double())


@pytest.mark.parametrize("tile", [1, 2, 3, 5, 7, 13, 64])
def test_tiles_of_any_size(qkv: tuple[Tensor, Tensor, Tensor], tile: int) -> None:
    made = [x.requires_grad_() for x in qkv]
    for mask in (None, patterns.causal(), torch.rand(2, 1, 7, 13) > 0.5, torch.rand(1, 13) > 0.3):
        expected = torch.autograd.grad(naive(*made, mask=mask).sin().sum(), made)
        got = torch.autograd.grad(tiled(*made, mask=mask, tile=tile).sin().sum(), made)
        for mine, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_tiles_survive_poisoned_memory(
    qkv: tuple[Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is allocated empty is written before it is read."""
    poisoned = lambda self, *shape, **kw: self.new_full(  # noqa: E731
        shape[0] if isinstance(shape[0], tuple | torch.Size) else shape, torch.nan, **kw
    )
    expected = naive(*qkv, mask=patterns.causal())
    monkeypatch.setattr(Tensor, "new_empty", poisoned)
    torch.testing.assert_close(tiled(*qkv, mask=patterns.causal(), tile=4), expected)


def test_tiled_never_makes_the_scores() -> None:
    """Extra memory, forward and backward, grows linearly; naive's grows with the square."""
    peaks = {}
    for form, options in ((naive, {}), (tiled, {"tile": 64})):
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
    whole = count(lambda q, k, v: tiled(q, k, v, tile=64), *made).flops
    half = count(lambda q, k, v: tiled(q, k, v, tile=64, mask=patterns.causal()), *made).flops
    assert half == whole * (16 * 17 / 2) / 16**2


def test_log_sum_exp_is_noted(qkv: tuple[Tensor, Tensor, Tensor]) -> None:
    with record() as notes:
        tiled(*qkv, tile=4)
        naive(*qkv)
    torch.testing.assert_close(notes["log_sum_exp"][0], notes["scores"][0].logsumexp(-1))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_leaves_the_weights_unchanged(form, qkv: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v = qkv
    out = form(q, k, v)
    shift = torch.randn(5, dtype=torch.float64)
    torch.testing.assert_close(form(q, k + shift, v), out)  # one vector added to all keys
    assert not torch.allclose(form(q + shift, k, v), out)  # not so for queries
    torch.testing.assert_close(form(3 * q, k / 3, v), out)
    order = torch.randperm(13)
    torch.testing.assert_close(form(q, k[:, :, order], v[:, :, order]), out)
    means = v.mean(dim=2, keepdim=True).expand(-1, -1, 7, -1)
    torch.testing.assert_close(form(torch.zeros_like(q), k, v), means)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_empty_rows_leave_the_others_alone(form, qkv: tuple[Tensor, Tensor, Tensor]) -> None:
    made = [x.requires_grad_() for x in qkv]
    mask = torch.ones(7, 13, dtype=torch.bool)
    mask[2] = False
    out = form(*made, mask=mask)
    assert (out[:, :, 2] == 0).all()
    kept = [0, 1, 3, 4, 5, 6]
    torch.testing.assert_close(out[:, :, kept], naive(*made)[:, :, kept])
    grads = torch.autograd.grad(out.square().sum(), made)
    assert all(torch.isfinite(g).all() for g in grads)
    assert (grads[0][:, :, 2] == 0).all()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_huge_scores_do_not_overflow(form) -> None:
    q, k = torch.full((1, 1, 2, 4), 200.0), torch.full((1, 1, 3, 4), 200.0)
    v = torch.randn(1, 1, 3, 4)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    out = form(q, k, v, mask=mask)
    torch.testing.assert_close(out[0, 0, 0], v[0, 0, :2].mean(0))


def test_causal_is_aligned_at_the_bottom_right() -> None:
    """The cached decoding trap: one query among five keys is the last, and sees all of them."""
    q, k, v = (torch.randn(1, 1, n, 4, dtype=torch.float64) for n in (1, 5, 5))
    for form in FORMS.values():
        torch.testing.assert_close(form(q, k, v, mask=patterns.causal()), naive(q, k, v))
    wrong = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert not torch.allclose(wrong, naive(q, k, v))


def test_scale_keeps_unit_variance() -> None:
    with record() as notes:
        naive(torch.randn(1, 1, 500, 64), torch.randn(1, 1, 500, 64), torch.randn(1, 1, 500, 3))
    assert notes["scores"][0].var().item() == pytest.approx(1, abs=0.05)
    with record() as notes:
        naive(*(torch.randn(1, 1, 500, 64) for _ in range(3)), scale=1.0)
    assert notes["scores"][0].var().item() == pytest.approx(64, rel=0.05)


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
        torch.testing.assert_close(causal(x, real), expected)
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
    assert count(lambda *x: tiled(*x, tile=4), q, k, v).flops == claimed


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
    with pytest.raises(ValueError, match="did you mean 'tiled'"):
        FullAttention(12, 3, form="tiles")
    with pytest.raises(ValueError, match="tile must be at least 1"):
        tiled(*(torch.randn(1, 1, 3, 4) for _ in range(3)), tile=0)
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


def test_tiled_sums_in_float32_under_autocast_too() -> None:
    """What it converts to float32 autocast must not convert back, forward or backward."""
    torch.manual_seed(0)
    made = [
        torch.randn(2, 3, n, d).bfloat16().requires_grad_() for n, d in [(7, 5), (11, 5), (11, 13)]
    ]
    plain = tiled(*made, tile=3)
    expected = torch.autograd.grad(plain.float().square().sum(), made)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        automatic = tiled(*made, tile=3)
        found = torch.autograd.grad(automatic.float().square().sum(), made)
    assert torch.equal(automatic, plain)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_second_derivatives_of_tiled_are_refused_not_left_out() -> None:
    q, k, v = torch.randn(3, 1, 1, 5, 4).requires_grad_().unbind()
    for reached in (tiled(q, k, v).sum(), tiled(q, k, v).square().sum()):
        with pytest.raises(RuntimeError, match="tiled has first derivatives only"):
            torch.autograd.grad(reached, q, create_graph=True)
