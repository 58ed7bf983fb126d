"""Linear attention: by hand, identities, the map, feature maps up to the softmax, the state."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count, exponent
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.kernelized.linear import (
    FORMS,
    LinearAttention,
    LinearOptions,
    based_features,
    chunked,
    dpfp_features,
    elu_features,
    exponential_features,
    naive,
    relu_features,
)

MAPS = {
    "elu": {},
    "relu": {},
    "dpfp": {"nu": 2},
    "taylor": {"degree": 2},
    "based": {},
}


def made(d: int = 5, n: int = 7, m: int = 7) -> list[Tensor]:
    shapes = ((2, 3, n, d), (2, 3, m, d), (2, 3, m, 11))
    return [torch.randn(s, dtype=torch.float64) for s in shapes]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_by_hand(form) -> None:
    """φ(q) = 3 meets φ(k) = 4, 1/2 and 1, no 1/√d: weights 12, 3/2 and 3 of 33/2."""
    q = torch.tensor([2.0], dtype=torch.float64).view(1, 1, 1, 1)
    k = torch.tensor([3.0, -math.log(2), 0.0], dtype=torch.float64).view(1, 1, 3, 1)
    v = torch.tensor([11.0, 22.0, 33.0], dtype=torch.float64).view(1, 1, 3, 1)
    assert form(q, k, v).item() == pytest.approx((8 * 11 + 1 * 22 + 2 * 33) / 11)
    real = torch.tensor([[True, False, True]])
    assert form(q, k, v, padding=real).item() == pytest.approx((8 * 11 + 2 * 33) / 10)


# ---- identities


@pytest.mark.parametrize("feature", MAPS)
def test_the_rnn_is_the_masked_quadratic_form(feature: str) -> None:
    """Both as they stand in the paper: S and z token by token, and tril(φ(Q) φ(K)ᵀ) V."""
    q, k, v = made()
    phi = LinearOptions(feature=feature, **MAPS[feature])
    weights = (phi(q) @ phi(k).mT).tril()
    quadratic = weights / weights.sum(-1, keepdim=True) @ v
    s, z, rows = torch.zeros(2, 3, phi(k).shape[-1], 11).double(), 0, []
    for i in range(7):
        s = s + phi(k)[:, :, i, :, None] * v[:, :, i, None, :]
        z = z + phi(k)[:, :, i]
        numerator = (phi(q)[:, :, i, :, None] * s).sum(-2)
        rows.append(numerator / (phi(q)[:, :, i] * z).sum(-1, keepdim=True))
    rnn = torch.stack(rows, dim=2)
    torch.testing.assert_close(rnn, quadratic, equal_nan=True)
    for form in FORMS.values():
        out = form(q, k, v, causal=True, options=phi)
        torch.testing.assert_close(out, quadratic.nan_to_num())


@pytest.mark.parametrize("feature", MAPS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_last_causal_row_is_the_non_causal_row(form, feature: str) -> None:
    q, k, v = made()
    options = {"options": LinearOptions(feature=feature, **MAPS[feature])}
    causal, whole = form(q, k, v, causal=True, **options), form(q, k, v, **options)
    torch.testing.assert_close(causal[:, :, -1], whole[:, :, -1])
    assert not torch.allclose(causal[:, :, 0], whole[:, :, 0])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_constant_features_are_a_running_mean(form) -> None:
    q, k, v = made()
    out = form(q, k, v, causal=True, options=LinearOptions(feature="taylor", degree=0))
    torch.testing.assert_close(out, v.cumsum(2) / torch.arange(1, 8)[:, None])


def test_taylor_features_tend_to_softmax_attention() -> None:
    """On heads of width 2: each further even degree at least halves the distance."""
    q, k, v = (x.tanh() for x in made(d=2))
    for causal in (False, True):
        with record() as notes:
            full.naive(q, k, v, mask=full.patterns.causal() if causal else None)
        weights, errors = notes["weights"][0], []
        for degree in (0, 2, 4, 6, 8, 10):
            with record() as notes:
                naive(
                    q, k, v, causal=causal, options=LinearOptions(feature="taylor", degree=degree)
                )
            errors.append((notes["weights"][0] - weights).abs().max().item())
        assert all(later < earlier / 2 for earlier, later in itertools.pairwise(errors)), errors
        assert errors[0] > 0.1
        assert errors[-1] < 1e-5


# ---- Based


def test_based_has_the_products_of_the_series_with_fewer_features() -> None:
    """1 + s + s²/2 for s = q · k / √d: 153 features of width 16 where the series has 273."""
    q, k, _ = made(d=16)
    few, all_of_them = (f(q) @ f(k).mT for f in (based_features, exponential_features))
    s = q @ k.mT / 4
    torch.testing.assert_close(few, 1 + s + s**2 / 2)
    torch.testing.assert_close(few, all_of_them)
    assert based_features(q).shape[-1] == LinearOptions(feature="based").count(16) == 153
    assert exponential_features(q).shape[-1] == 273


def test_weights_of_based() -> None:
    """At least 1/2, at s = -1; near the exponential for small scores; large again far below 0."""
    s = torch.linspace(-9, 9, 181).double()
    one = torch.ones(1, 1).double()
    weight = (based_features(s[:, None]) @ based_features(one).mT)[:, 0]
    assert weight.min() >= 0.5 - 1e-12
    torch.testing.assert_close(weight[80], torch.tensor(0.5).double())
    small = s.abs() < 0.35
    assert ((weight - s.exp()).abs()[small] < s.abs()[small] ** 3 / 5 + 1e-12).all()
    assert weight[0] > weight[90]


@torch.no_grad()
def test_based_compares_few_numbers_and_moves_many() -> None:
    """The layer of the authors' code in plain steps: queries and keys narrower than values."""
    layer = LinearAttention(
        12, 2, causal=True, options=LinearOptions(feature="based", chunk=3), feature_dim=4
    ).double()
    x = torch.randn(2, 11, 12, dtype=torch.float64)
    split = lambda one, width: one(x).view(2, 11, 2, width).transpose(1, 2)  # noqa: E731
    heads = layer.heads
    q, k, v = split(heads.query, 4), split(heads.key, 4), split(heads.value, 6)
    s = q @ k.mT / 2
    weights = (1 + s + s**2 / 2).tril()
    out = weights / weights.sum(-1, keepdim=True) @ v
    torch.testing.assert_close(layer(x), heads.output(out.transpose(1, 2).flatten(2)))
    assert layer.step(x)[1].values.shape == (2, 2, 15, 6)
    with pytest.raises(ValueError, match="heads=5 does not divide dim=12"):
        LinearAttention(12, 5, feature_dim=4)


# ---- the map


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("feature", MAPS)
@pytest.mark.parametrize("form", FORMS)
def test_mixing_matrix_is_the_closed_form(
    form: str, feature: str, causal: bool, padded: bool
) -> None:
    layer = LinearAttention(
        12, 3, causal=causal, form=form, options=LinearOptions(feature=feature, **MAPS[feature])
    )
    layer, x = layer.double(), torch.randn(2, 11, 12, dtype=torch.float64)
    real = torch.arange(11) < torch.tensor([[11], [7]])
    mixing = mixing_matrix(layer, x, padding=real if padded else None)
    q, k, _ = layer.heads.project(x)
    weights = layer.options(q) @ layer.options(k).mT
    weights = weights * (real[:, None, None] & real[:, None, :, None]) if padded else weights
    weights = weights.tril() if causal else weights
    total = weights.sum(-1, keepdim=True)
    assert mixing.exact
    expected = weights / total.masked_fill(total == 0, 1)
    torch.testing.assert_close(mixing.matrix, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(mixing.matrix, expected, rtol=0, atol=1e-12)


# ---- feature maps


def test_elu_and_relu() -> None:
    x = torch.tensor([-math.log(4), 0.0, 2.0])
    torch.testing.assert_close(elu_features(x), torch.tensor([0.25, 1.0, 3.0]))
    torch.testing.assert_close(relu_features(x), torch.tensor([0.0, 0.0, 2.0]))


@pytest.mark.parametrize("nu", [1, 2, 5, 9])
def test_dpfp_by_its_definition(nu: int) -> None:
    x = torch.randn(3, 5, dtype=torch.float64)
    both = torch.cat((x, -x), dim=-1).clamp(min=0)
    expected = torch.stack(
        [both[:, j] * both[:, (j + i) % 10] for i in range(1, nu + 1) for j in range(10)], dim=-1
    )
    torch.testing.assert_close(dpfp_features(x, nu), expected)


def test_dpfp_tells_opposite_quadrants_apart() -> None:
    """Features of different sign patterns (d = 2, ν = 1) are orthogonal: each has one of four."""
    x = torch.tensor([[1.0, 2.0], [-1.0, 2.0], [-1.0, -2.0], [1.0, -2.0]])
    torch.testing.assert_close(dpfp_features(x) @ dpfp_features(x).mT, 4 * torch.eye(4))


@pytest.mark.parametrize("degree", [0, 2, 4])
def test_taylor_features_multiply_to_the_series(degree: int) -> None:
    q, k = torch.randn(2, 7, 3, dtype=torch.float64)
    products = exponential_features(q, degree) @ exponential_features(k, degree).mT
    scores = q @ k.mT / math.sqrt(3)
    expected = sum(scores**i / math.factorial(i) for i in range(degree + 1))
    torch.testing.assert_close(products, expected)
    assert exponential_features(q, degree).shape[-1] == sum(3**i for i in range(degree + 1))


@pytest.mark.parametrize("feature", ["relu", "dpfp"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_nothing_in_common_gives_zero(form, feature: str) -> None:
    """A query of negative entries has no relu features at all; a key on another axis is unseen."""
    q, k, v = made(d=2)
    q[:, :, 3] = torch.tensor([-1.0, 0.0])
    k[:] = torch.tensor([2.0, 3.0])
    leaves = [x.requires_grad_() for x in (q, k, v)]
    for causal in (False, True):
        out = form(*leaves, causal=causal, options=LinearOptions(feature=feature))
        assert (out[:, :, 3] == 0).all()
        assert (out[q.gt(0).all(-1)] != 0).all()
        assert all(torch.isfinite(g).all() for g in torch.autograd.grad(out.sin().sum(), leaves))


def test_wrong_options_are_answered_in_sentences() -> None:
    q, k, v = made()
    for form in FORMS.values():
        with pytest.raises(ValueError, match="no feature 'elo'; did you mean 'elu'"):
            form(q, k, v, options=LinearOptions(feature="elo"))
        with pytest.raises(ValueError, match='nu is an option of feature="dpfp", not of "elu"'):
            form(q, k, v, options=LinearOptions(nu=1))
        with pytest.raises(ValueError, match='degree is an option of feature="taylor"'):
            form(q, k, v, options=LinearOptions(feature="dpfp", degree=2))
        with pytest.raises(ValueError, match="degree should be even and not negative, got 3"):
            form(q, k, v, options=LinearOptions(feature="taylor", degree=3))
    with pytest.raises(ValueError, match=r"nu should be between 1 and 2d - 1 = 9.*got 10"):
        chunked(q, k, v, options=LinearOptions(feature="dpfp", nu=10))
    with pytest.raises(ValueError, match="nu should be at least 1, got 0"):
        LinearOptions(feature="dpfp", nu=0)
    with pytest.raises(ValueError, match="nu should be between 1 and 2d - 1 = 3"):
        LinearAttention(12, 6, options=LinearOptions(feature="dpfp", nu=4))
    with pytest.raises(ValueError, match="no form 'chunks'"):
        LinearAttention(12, 6, form="chunks")
    with pytest.raises(ValueError, match="chunk should be at least 1, got 0"):
        LinearAttention(12, 6, options=LinearOptions(chunk=0))
    with pytest.raises(ValueError, match="causal=True"):
        LinearAttention(12, 6).step(torch.randn(1, 1, 12))


# ---- state and cost


@pytest.mark.parametrize("feature", MAPS)
def test_the_state_has_one_size(feature: str) -> None:
    layer = LinearAttention(
        12, 3, causal=True, options=LinearOptions(feature=feature, **MAPS[feature])
    )
    r = layer.options(torch.zeros(4)).shape[-1]
    state, sizes = None, []
    for t in (1, 1, 67, 1):
        _, state = layer.step(torch.randn(2, t, 12), state)
        storages = {part.untyped_storage().data_ptr(): part for part in state}
        assert sum(part.untyped_storage().nbytes() for part in storages.values()) == (
            4 * 2 * 3 * r * (4 + 1)
        )
        sizes.append(sum(part.numel() for part in state))
    assert sizes == [2 * 3 * r * (4 + 1)] * 4


def test_a_state_of_another_batch_is_refused() -> None:
    layer = LinearAttention(12, 3, causal=True)
    _, state = layer.step(torch.randn(2, 1, 12))
    with pytest.raises(ValueError, match="start a new batch with state=None"):
        layer.step(torch.randn(3, 1, 12), state)


def test_step_in_half_precision_keeps_its_sums_in_float32() -> None:
    layer = LinearAttention(12, 3, causal=True).bfloat16()
    out, state = layer.step(torch.randn(1, 3, 12, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert {part.dtype for part in state} == {torch.float32}


@pytest.mark.parametrize("causal", [False, True])
def test_cost_is_linear_forward_and_backward(causal: bool) -> None:
    lengths, d, chunk = (512, 1024, 2048), 16, 32
    counts = []
    for n in lengths:
        q, k, v = (torch.randn(1, 2, n, d, requires_grad=True) for _ in range(3))
        call = lambda *x: chunked(*x, causal=causal, options=LinearOptions(chunk=chunk))  # noqa: E731
        with torch.no_grad():
            flops = count(call, q, k, v).flops
        products = 4 * 2 * n * d * d + causal * 2 * 2 * n * chunk * (d + d)
        assert products < flops < 1.1 * products  # the denominators come on top
        counts.append(count(call, q, k, v, backward=True))
    for values in (
        [c.flops for c in counts],
        [c.largest_tensor.elements for c in counts],
        [c.peak_bytes for c in counts],
    ):
        assert exponent(lengths, values).slope == pytest.approx(1, abs=0.05)


def test_parameters() -> None:
    """Those of full attention: features have none."""
    linear, dense = (attnlab.build(name, dim=12, heads=3) for name in ("linear", "full"))
    sizes = [{k: p.shape for k, p in layer.named_parameters()} for layer in (linear, dense)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("causal", [False, True])
def test_the_rnn_sums_half_precision_wide_and_notes_its_state(causal: bool) -> None:
    """Ones in bfloat16 would stop at 256."""
    ones = torch.zeros(1, 1, 521, 2, dtype=torch.bfloat16)  # elu(0) + 1 = 1
    with record() as notes:
        out = FORMS["recurrent"](ones, ones, ones + 3, causal=causal)
    assert out.dtype == torch.bfloat16
    assert (out == 3).all()
    assert (notes["state"][0].keys == 521).all()
    assert (notes["state"][0].values == 3 * 521).all()
