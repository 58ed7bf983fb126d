"""GBST: forms, the identities U4, lengths, padding anywhere, costs, and what is refused."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.card import letters
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.positions.gbst import CARD, FORMS, GBST, BlockOptions, GBSTOptions

B, DIM = 3, 5
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "calibrated": {"calibrate": True},
    "no convolution": {"convolution": 0},
    "other sizes": {"blocks": (2, 7, 3), "convolution": 2, "downsample": 3, "calibrate": True},
}
LENGTHS = (1, 2, 3, 4, 5, 7, 12, 13)
by_form = pytest.mark.parametrize("form", FORMS)
by_options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def made(form: str = "pooled", **options: Any) -> GBST:
    torch.manual_seed(3)
    return GBST(DIM, form=form, options=GBSTOptions(**options)).double()  # type: ignore[arg-type]


def drawn(n: int, *, b: int = B) -> Tensor:
    return torch.randn(b, n, DIM, dtype=torch.float64)


def padded(n: int) -> list[Tensor | None]:
    """None, at the end, at the front, with holes, and one row of padding alone."""
    end = torch.arange(n) < torch.tensor([[n], [max(1, n - 2)], [(n + 1) // 2]])
    holes = torch.rand(B, n) > 0.4
    holes[1] = False
    return [None, end, end.flip(1), holes]


def weights_of(layer: GBST, x: Tensor, padding: Tensor | None = None) -> Tensor:
    with record() as notes:
        layer(x, padding)
    found: Tensor = notes["weights"][0]
    return found


# ---- the forms


@by_options
@pytest.mark.parametrize("n", LENGTHS)
def test_forms_are_equal_in_values_and_gradients(options: dict[str, Any], n: int) -> None:
    for padding in padded(n):
        x = drawn(n).requires_grad_()
        outs, grads, noted = [], [], []
        for form in FORMS:
            layer = made(form, **options)
            with record() as notes:
                out = layer(x, padding)[0]
            noted.append([notes["scores"][0], notes["weights"][0]])
            direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).double()
            wanted = [x, *layer.parameters()]
            grads.append(torch.autograd.grad((out * direction).sum(), wanted))
            outs.append(out)
        torch.testing.assert_close(*outs)
        torch.testing.assert_close(*(each[1] for each in noted))
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_a_word_by_hand() -> None:
    """Five characters of width 1, sizes 1 to 3, w = 1: every number can be checked."""
    x = torch.tensor([1.0, 3.0, 2.0, 0.0, 4.0])
    ones = x.tolist()
    twos = [2.0, 2.0, 1.0, 1.0, 4.0]
    threes = [2.0, 2.0, 2.0, 2.0, 2.0]
    candidates = torch.tensor([ones, twos, threes]).mT
    mixed = (candidates.softmax(-1) * candidates).sum(-1)
    expected = torch.stack([mixed[:2].mean(), mixed[2:4].mean(), mixed[4]])
    options = BlockOptions(blocks=(1, 2, 3))
    for form in FORMS.values():
        out = form(x[None, :, None], torch.ones(1), None, options=options)
        torch.testing.assert_close(out[0, :, 0], expected)


@by_form
@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_convolution_is_pytorchs(form: str, width: int) -> None:
    """Sizes (1,) and no downsampling leave the convolution alone; one of even width looks right."""
    layer = made(form, blocks=(1,), downsample=1, convolution=width)
    x = drawn(11)
    before = (width - 1) // 2
    assert layer.kernel is not None
    expected = F.conv1d(F.pad(x.mT, (before, width - 1 - before)), layer.kernel).mT
    torch.testing.assert_close(layer(x)[0], expected)


# ---- U4


@by_form
def test_single_characters_are_kept(form: str) -> None:
    layer, x = made(form, blocks=(1,), downsample=1, convolution=0), drawn(13)
    torch.testing.assert_close(layer(x)[0], x)


@by_form
@by_options
def test_rows_of_weights_sum_to_one(form: str, options: dict[str, Any]) -> None:
    padding = padded(13)[1]
    assert padding is not None
    weights = weights_of(made(form, **options), drawn(13), padding)
    assert weights.shape == (B, 13, len(options.get("blocks", (1, 2, 3, 4))))
    torch.testing.assert_close(weights.sum(-1), padding.double())


@by_form
def test_calibrated_weights_lie_within_the_range_of_the_others(form: str) -> None:
    x = drawn(13)
    plain, calibrated = (weights_of(made(form, calibrate=c), x) for c in (False, True))
    assert (calibrated.amax(1) <= plain.amax(1)).all()
    assert (calibrated.amin(1) >= plain.amin(1)).all()
    spread = [float(weights.detach().std(1).mean()) for weights in (plain, calibrated)]
    assert 0 < spread[1] < spread[0]


@by_form
@pytest.mark.parametrize("calibrate", [False, True])
def test_a_scorer_of_zeros_takes_the_mean_over_sizes(form: str, calibrate: bool) -> None:
    layer, x = made(form, convolution=0, downsample=1, calibrate=calibrate), drawn(12)
    torch.nn.init.zeros_(layer.scorer)
    means = [x.unflatten(1, (-1, s)).mean(2).repeat_interleave(s, 1) for s in (1, 2, 3, 4)]
    torch.testing.assert_close(layer(x)[0], torch.stack(means).mean(0))


@by_form
@pytest.mark.parametrize("calibrate", [False, True])
def test_constants_are_kept_at_any_length(form: str, calibrate: bool) -> None:
    for n in LENGTHS:
        x = drawn(1).expand(B, n, DIM)
        layer = made(form, convolution=0, downsample=3, calibrate=calibrate)
        for padding in padded(n)[:3]:
            out, real = layer(x, padding)
            kept = torch.ones(out.shape[:2], dtype=torch.bool) if real is None else real
            torch.testing.assert_close(out[kept], x[:, : out.shape[1]][kept])


@by_form
@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({"convolution": 0}, range(6)),
        ({"convolution": 3}, range(7)),
        ({"convolution": 0, "calibrate": True}, range(11)),
        ({"convolution": 0, "blocks": (1, 2)}, (2, 3)),
    ],
)
def test_what_character_3_reads(form: str, options: dict[str, Any], read: Any) -> None:
    x = drawn(11, b=1).requires_grad_()
    out, _ = made(form, downsample=1, **options)(x)
    (grad,) = torch.autograd.grad(out[0, 3].square().sum(), x)
    assert grad[0].ne(0).any(-1).nonzero().flatten().tolist() == list(read)


def test_all_offsets_together_are_a_triangular_convolution() -> None:
    """What the paper avoids: the mean over every offset of blocks of 3, away from the ends."""
    n, size = 12, 3
    x, options = drawn(n), BlockOptions(blocks=(size,), downsample=1)
    w = torch.zeros(DIM, dtype=torch.float64)
    shifted = [
        F.pad(FORMS["pooled"](x[:, offset:], w, None, options=options), (0, 0, offset, 0))
        for offset in range(size)
    ]
    triangle = torch.tensor([1.0, 2, 3, 2, 1], dtype=torch.float64) / 9
    expected = F.conv1d(x.mT.reshape(-1, 1, n), triangle[None, None]).view(B, DIM, -1).mT
    inside = slice(size - 1, n - size + 1)
    torch.testing.assert_close(torch.stack(shifted).mean(0)[:, inside], expected)


@by_options
def test_module_compiles_whole(options: dict[str, Any]) -> None:
    layer, x, padding = made(**options), drawn(11), padded(11)[3]
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, padding), layer(x, padding))


# ---- lengths and padding


@by_form
@pytest.mark.parametrize("downsample", [1, 2, 3, 17])
def test_lengths(form: str, downsample: int) -> None:
    for n in LENGTHS:
        out, padding = made(form, downsample=downsample)(drawn(n))
        assert out.shape == (B, -(-n // downsample), DIM)
        assert padding is None


@by_form
@by_options
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_padding_changes_nothing(form: str, options: dict[str, Any], data: Any) -> None:
    """Wherever it stands and whatever stands in it: what comes out is what comes out alone."""
    n = data.draw(st.integers(1, 13))
    padding = torch.tensor([data.draw(st.lists(st.booleans(), min_size=n, max_size=n))])
    x = drawn(n, b=1).masked_fill(~padding[..., None], data.draw(st.sampled_from([torch.nan, 9.0])))
    layer = made(form, **options)
    out, real = layer(x, padding)
    length = int(padding.sum())
    assert real.tolist() == [
        [i < -(-length // layer.options.downsample) for i in range(out.shape[1])]
    ]
    assert (out[~real] == 0).all()
    if length:
        alone, _ = layer(x[padding][None])
        torch.testing.assert_close(out[:, : alone.shape[1]], alone)
    for grad in torch.autograd.grad(out.square().sum(), list(layer.parameters())):
        assert grad.isfinite().all()


@by_form
def test_no_sequences_and_no_padding(form: str) -> None:
    out, padding = made(form)(drawn(7, b=0), torch.ones(0, 7, dtype=torch.bool))
    assert out.shape == (0, 4, DIM)
    assert padding.shape == (0, 4)


@by_form
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precisions_are_summed_in_float32(form: str, dtype: torch.dtype) -> None:
    layer, x = made(form, calibrate=True), 200 * drawn(13)
    out, _ = layer.to(dtype)(x.to(dtype))
    expected, _ = layer.double()(x.to(dtype).double())
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=2e-2, atol=2)


# ---- costs


def test_parameters_are_the_convolution_and_one_vector() -> None:
    assert sum(p.numel() for p in made().parameters()) == 5 * DIM**2 + DIM
    assert sum(p.numel() for p in made(convolution=0).parameters()) == DIM


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_costs_are_counted(options: dict[str, Any]) -> None:
    """But for the sums over sizes, 2 n M dim, which are no matrix products."""
    n, x, chosen = 420, torch.randn(1, 420, DIM), GBSTOptions(**options)
    for form in FORMS:
        layer = made(form, **options).float()
        time, memory = (
            CARD.cost(what, form, chosen).subs(dict(zip(letters("n dim"), (n, DIM), strict=True)))
            for what in ("time", "memory")
        )
        counted = count(lambda layer=layer: layer(x))
        assert counted.flops == time - 2 * n * DIM * len(chosen.blocks)
        assert counted.largest_tensor.elements <= memory


def test_pooled_stores_no_candidates() -> None:
    x = torch.randn(1, 420, DIM)
    largest = {form: count(made(form).float(), x).largest_tensor.elements for form in FORMS}
    assert largest["naive"] == 4 * 420 * DIM
    assert largest["pooled"] < 2 * 420 * DIM


# ---- refusals


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: BlockOptions(blocks=()), ValueError, r"different sizes, at least one, got \(\)"),
        (
            lambda: BlockOptions(blocks=(2, 2)),
            ValueError,
            r"different sizes, at least one, got \(2, 2\)",
        ),
        (
            lambda: BlockOptions(blocks=(1, 0)),
            ValueError,
            r"blocks\[1\] should be at least 1, got 0",
        ),
        (lambda: BlockOptions(blocks=3), TypeError, "blocks should be a sequence, got 3"),
        (lambda: BlockOptions(blocks=(1.5,)), TypeError, r"blocks\[0\] should be a whole number"),
        (lambda: BlockOptions(downsample=0), ValueError, "downsample should be at least 1, got 0"),
        (
            lambda: GBSTOptions(convolution=-1),
            ValueError,
            "convolution should be at least 0, got -1",
        ),
        (lambda: BlockOptions(calibrate=1), TypeError, "calibrate should be True or False, got 1"),
        (lambda: made()(drawn(3).long()), ValueError, r"`x` should be Float\[b n dim\]"),
        (lambda: made()(drawn(3)[0]), ValueError, r"`x` should be Float\[b n dim\]"),
        (lambda: made()(drawn(3)[..., :2]), ValueError, "width dim=5, got 2"),
        (lambda: made()(drawn(3), torch.ones(B, 2).bool()), ValueError, "n is 2, expected 3"),
        (lambda: made()(drawn(3), torch.ones(B, 3)), ValueError, "mask == 0"),
        (lambda: made()(drawn(0)), ValueError, "n is 0"),
        (lambda: made()("text"), TypeError, "`x` should be .*, got a str"),
        (lambda: made("blocked"), ValueError, "there is no form 'blocked'"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()
