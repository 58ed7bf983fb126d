"""Performer: an unbiased estimate, of known variance, that tends to softmax; stable, and causal.

Statistical tests have fixed seeds, so they never flake. ``SIGMAS`` says what they are worth: with
fresh seeds, and means of so many trials near enough to normal, each comparison would hold with
probability above 1 - 6e-7 (five standard errors, two sides).
"""

import math
import re

import numpy as np
import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.kernelized.performer import (
    FORMS,
    Performer,
    PerformerOptions,
    chunked,
    default_features,
    features,
    gaussian_rows,
    naive,
    orthogonal_rows,
    rescaled,
    sums,
    trigonometric_features,
)

SIGMAS = 5
FAST = {name: form for name, form in FORMS.items() if name != "naive"}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(trials: int, r: int, d: int, *, seed: int, orthogonal: bool = False, **norms) -> Tensor:
    """(trials, r, d): as many projections at once, by one generator."""
    if not orthogonal:
        return gaussian_rows(trials * r, d, seeded(seed)).view(trials, r, d)
    assert r % d == 0
    return orthogonal_rows(trials * r, d, seeded(seed), **norms).view(trials, r, d)


def phi(kind: str, x: Tensor, rows: Tensor) -> Tensor:
    x = x.expand(len(rows), 1, -1)
    if kind == "trigonometric":
        return trigonometric_features(x, rows)
    return features(x, rows, kernel=kind)


def estimates(kind: str, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    """One estimate of exp(x·y) per projection."""
    return (phi(kind, x, rows) * phi(kind, y, rows)).sum(dim=-1).flatten()


def pair(d: int, seed: int, length: float) -> tuple[Tensor, Tensor]:
    """Two vectors of one length, at some angle."""
    x, y = torch.randn(2, d, generator=seeded(seed), dtype=torch.float64)
    return length * x / x.norm(), length * y / y.norm()


def standard_error(values: Tensor) -> float:
    return float(values.std() / math.sqrt(len(values)))


# ------------------------------------------------------------------------------ the estimate


@pytest.mark.parametrize("orthogonal", [False, True], ids=["independent", "orthogonal"])
@pytest.mark.parametrize("kind", ["positive", "hyperbolic", "trigonometric"])
def test_estimates_are_unbiased(kind: str, orthogonal: bool) -> None:
    """Mean of 40,000 estimates of 10 features; the bound is under 2 % of the kernel."""
    for seed in range(3):
        x, y = pair(5, seed, 0.8)
        kernel = math.exp(x @ y)
        found = estimates(kind, x, y, drawn(40_000, 10, 5, seed=seed, orthogonal=orthogonal))
        bound = SIGMAS * standard_error(found)
        assert bound < 0.02 * kernel
        assert abs(found.mean() - kernel) < bound


def test_orthogonal_rows_of_one_length_are_biased() -> None:
    """Why "fixed" norms are not the default: E over a sphere of radius √d is not the kernel."""
    x, y = pair(5, 0, 0.8)
    kernel = math.exp(x @ y)
    rows = drawn(40_000, 10, 5, seed=0, orthogonal=True, norms="fixed")
    found = estimates("positive", x, x, rows)
    assert kernel != math.exp(x @ x)
    assert abs(found.mean() - math.exp(x @ x)) > SIGMAS * standard_error(found)


VARIANCES = {
    "positive": lambda x, y, sm: sm**2 * (math.exp((x + y) @ (x + y)) - 1),
    "hyperbolic": lambda x, y, sm: (
        (1 - math.exp(-(x + y) @ (x + y))) / 2 * VARIANCES["positive"](x, y, sm)
    ),
    "trigonometric": lambda x, y, sm: (
        math.exp((x + y) @ (x + y)) / sm**2 * (1 - math.exp(-(x - y) @ (x - y))) ** 2 / 2
    ),
}


@pytest.mark.parametrize("r", [1, 7])
@pytest.mark.parametrize("kind", VARIANCES)
def test_variances_are_the_papers(kind: str, r: int) -> None:
    """Independent rows: the variance of lemma 2, over r. The bound is under 6 % of it."""
    for seed in range(3):
        x, y = pair(5, seed, 0.4)
        found = estimates(kind, x, y, drawn(200_000, r, 5, seed=10 + seed))
        squares = (found - found.mean()).square()
        expected = VARIANCES[kind](x, y, math.exp(x @ y)) / r
        bound = SIGMAS * standard_error(squares)
        assert bound < 0.06 * expected
        assert abs(squares.mean() - expected) < bound


@pytest.mark.parametrize("kind", ["positive", "hyperbolic", "trigonometric"])
def test_variance_falls_with_the_number_of_features(kind: str) -> None:
    """Slope -1 in log-log, over two decades; 4,000 trials leave the slope uncertain by 0.01."""
    x, y = pair(5, 1, 0.7)
    sizes = [5, 20, 80, 320]
    variances = [estimates(kind, x, y, drawn(4_000, r, 5, seed=r)).var().item() for r in sizes]
    slope = np.polyfit(np.log(sizes), np.log(variances), 1)[0]
    assert slope == pytest.approx(-1, abs=0.06)


@pytest.mark.parametrize("kind", ["positive", "hyperbolic"])
@pytest.mark.parametrize("d", [5, 11])
def test_orthogonal_rows_beat_independent_ones(kind: str, d: int) -> None:
    """One block of d rows, squared errors of 50,000 trials each: lower by five standard errors."""
    x, y = pair(d, 3, 0.5)
    kernel = math.exp(x @ y)
    errors = [
        (estimates(kind, x, y, drawn(50_000, d, d, seed=4, orthogonal=o)) - kernel).square()
        for o in (False, True)
    ]
    gain = errors[0].mean() - errors[1].mean()
    assert gain > SIGMAS * math.hypot(*map(standard_error, errors))


def test_positive_features_have_positive_denominators_and_waves_do_not() -> None:
    """Where the kernel is small, waves scatter around zero; nothing saves their denominators."""
    x = 2 * torch.randn(97, 5, generator=seeded(0), dtype=torch.float64)
    rows = orthogonal_rows(10, 5, seeded(1))
    waves = trigonometric_features(x, rows)
    assert ((waves @ waves.sum(dim=0)) < 0).any()
    for kernel in ("positive", "hyperbolic"):
        values = features(x, rows, kernel=kernel)
        assert (values > 0).all()
        assert (values @ values.sum(dim=0) > 0).all()
    assert (features(x, rows, kernel="relu") >= 0).all()


def test_features_are_the_equations() -> None:
    x = torch.randn(3, 7, 5, dtype=torch.float64)
    rows = gaussian_rows(11, 5, seeded(2))
    grown = torch.exp(x @ rows.mT - x.square().sum(-1, keepdim=True) / 2)
    shrunk = torch.exp(-x @ rows.mT - x.square().sum(-1, keepdim=True) / 2)
    both = torch.cat((grown, shrunk), dim=-1)
    torch.testing.assert_close(features(x, rows), grown / math.sqrt(11))
    torch.testing.assert_close(features(x, rows, kernel="hyperbolic"), both / math.sqrt(22))
    torch.testing.assert_close(
        features(x, rows, kernel="relu"), (x @ rows.mT).clamp(min=0) / math.sqrt(11)
    )


# ------------------------------------------------------------------------------ projections


def test_rows_are_orthogonal_in_blocks_and_as_long_as_gaussian_ones() -> None:
    rows = orthogonal_rows(13, 5, seeded(0))
    assert rows.shape == (13, 5)
    for block in rows.split(5):
        products = block @ block.mT
        off = products - products.diagonal().diag()
        assert off.abs().max() < 1e-12
    assert (rows[:5] @ rows[5:10].mT).abs().max() > 0.1
    long = orthogonal_rows(50_000, 5, seeded(1)).norm(dim=-1).square()
    assert abs(long.mean() - 5) < SIGMAS * standard_error(long)  # chi-squared(5): mean 5, var 10
    squares = (long - 5).square()
    assert abs(squares.mean() - 10) < SIGMAS * standard_error(squares)
    fixed = orthogonal_rows(13, 5, seeded(0), norms="fixed").norm(dim=-1)
    torch.testing.assert_close(fixed, torch.full_like(fixed, math.sqrt(5)))


def test_every_row_of_a_block_is_uniform_in_direction() -> None:
    """Without R's signs, the first coordinate of the first row is never positive."""
    blocks = orthogonal_rows(100_000, 5, seeded(0)).view(-1, 5, 5)
    means = blocks.mean(dim=0)
    bounds = SIGMAS * blocks.std(dim=0) / math.sqrt(len(blocks))
    assert bounds.max() < 0.05
    assert (means.abs() < bounds).all()


def test_default_number_of_features_is_d_log_d() -> None:
    assert [default_features(d) for d in (64, 32, 2, 1)] == [266, 110, 4, 2]
    assert Performer(256, 4).projection.shape == (4, 266, 64)


# ------------------------------------------------------------------------------ the map


def made(n: int, m: int, *, d: int = 5, r: int = 13, scale: float = 1.0) -> list[Tensor]:
    shapes = [(2, 3, n, d), (2, 3, m, d), (2, 3, m, 7), (3, r, d)]
    q, k, v, rows = (
        torch.randn(s, generator=seeded(i), dtype=torch.float64) for i, s in enumerate(shapes)
    )
    return [q * scale, k * scale, v, rows]


def closed_map(q: Tensor, k: Tensor, rows: Tensor, kernel: str, causal: bool) -> Tensor:
    """The n × m map by the plain features: tril where causal, rows over their sums."""
    scale = q.shape[-1] ** -0.25
    products = features(q * scale, rows, kernel=kernel) @ (
        features(k * scale, rows, kernel=kernel).mT
    )
    products = products.tril(k.shape[-2] - q.shape[-2]) if causal else products
    return (products / products.sum(dim=-1, keepdim=True)).nan_to_num(0)  # relu: 0 / 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["positive", "hyperbolic", "relu"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms_are_the_map_by_plain_features(form, kernel: str, causal: bool) -> None:
    """Quadratic order of products = linear order; causal = tril; the units cancel."""
    for n, m in ((13, 13), (5, 17)):
        q, k, v, rows = made(n, m)
        expected = closed_map(q, k, rows, kernel, causal) @ v
        found = form(q, k, v, rows, causal=causal, options=PerformerOptions(kernel=kernel))
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["positive", "hyperbolic", "relu"])
def test_mixing_matrix_is_the_closed_form(kernel: str, causal: bool) -> None:
    layer = Performer(
        15, 3, causal=causal, options=PerformerOptions(kernel=kernel, features=23, chunk=4)
    ).double()
    x = torch.randn(2, 13, 15, dtype=torch.float64)
    found = mixing_matrix(layer, x)
    with torch.no_grad():
        q, k, _ = layer.heads.project(x)
        expected = closed_map(q, k, layer.projection, kernel, causal)
    assert found.exact
    torch.testing.assert_close(found.matrix, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel", ["positive", "hyperbolic"])
def test_map_tends_to_softmax_as_features_grow(kernel: str) -> None:
    """Root mean square error of 40 draws: slope -1/2 in log-log, over two decades.

    With positive features the slope's standard error is 0.008 (ten sets of seeds). Vectors are
    short: at |x + y| = 3 the variance is e^9 times the kernel's square, and the slope begins later.
    """
    q, k, v, _ = made(11, 11, scale=0.25)
    exact = full.naive(q, k, v)
    sizes, errors = [40, 160, 640, 2560], []
    for r in sizes:
        draws = [orthogonal_rows(3 * r, 5, seeded(seed)).view(3, r, 5) for seed in range(40)]
        found = torch.stack(
            [chunked(q, k, v, rows, options=PerformerOptions(kernel=kernel)) for rows in draws]
        )
        errors.append((found - exact).square().mean().sqrt().item())
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.08)
    assert errors[-1] < 0.01 * exact.square().mean().sqrt()


def test_relu_is_another_kernel() -> None:
    """More features do not bring its map to the softmax."""
    q, k, v, _ = made(11, 11, scale=0.25)
    rows = torch.stack([orthogonal_rows(3200, 5, seeded(h)) for h in range(3)])
    exact = full.naive(q, k, v)
    assert (
        chunked(q, k, v, rows, options=PerformerOptions(kernel="relu")) - exact
    ).norm() > 0.2 * exact.norm()


def test_spans_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    padding = torch.rand(2, 61, generator=seeded(9)) > 0.3
    for n, m in ((61, 61), (17, 61)):
        tensors = made(n, m)
        for causal in (False, True):
            expected = naive(*tensors, causal=causal, padding=padding)
            for span, chunk in ((1, 1), (1, 7), (900, 5), (10**6, 64)):
                monkeypatch.setattr(sums, "SPAN", span)
                found = chunked(
                    *tensors, causal=causal, padding=padding, options=PerformerOptions(chunk=chunk)
                )
                torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_more_queries_than_keys_leave_the_first_without_any() -> None:
    tensors = made(11, 5)
    expected = naive(*tensors, causal=True)
    assert (expected[..., :6, :] == 0).all()
    assert (expected[..., 6:, :] != 0).all()
    for form in FAST.values():
        found = form(*tensors, causal=True)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


# ------------------------------------------------------------------------------ stability


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("form", FAST.values(), ids=FAST)
def test_large_logits_lose_nothing(form, dtype: torch.dtype, causal: bool) -> None:
    """Exponents of several hundred, far past float32's 88, beside float64, which holds them."""
    tensors = [x.to(dtype) for x in made(31, 31, scale=12)]
    exponents = features(tensors[1].double() * 5**-0.25, tensors[3].double()).log()
    assert (exponents.abs() > 88).any()
    expected = naive(*(x.double() for x in tensors), causal=causal)
    tensors = [x.requires_grad_() for x in tensors]
    found = form(*tensors, causal=causal)
    tolerance = 2e-3 if dtype == torch.float32 else 4e-2
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    grads = torch.autograd.grad(found.sum(), tensors)
    assert all(torch.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("form", FAST.values(), ids=FAST)
def test_small_keys_after_large_ones_and_the_reverse(form) -> None:
    """A key of length 60 has features of e^-600: the unit must be the one of keys seen so far."""
    for backwards in (False, True):
        q, k, v, rows = made(29, 29)
        lengths = torch.linspace(0.1, 40, 29, dtype=torch.float64)[:, None]
        k = k * (lengths.flip(0) if backwards else lengths)
        expected = rescaled(q, k, v, rows, causal=True)
        found = form(*(x.float() for x in (q, k, v, rows)), causal=True)
        torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)
        first = v[..., 0, :].float()
        torch.testing.assert_close(found[..., 0, :], first)  # a row of one key is that value


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_absurd_logits_give_no_nan(form) -> None:
    for scale in (100, 1e4):
        tensors = [x.float().requires_grad_() for x in made(17, 17, scale=scale)]
        for causal in (False, True):
            found = form(*tensors, causal=causal)
            grads = torch.autograd.grad(found.sum(), tensors)
            assert all(torch.isfinite(x).all() for x in (found, *grads))


# ------------------------------------------------------------------------------ module


def test_redraw_and_seed() -> None:
    layer, same, other = (
        Performer(12, 3, options=PerformerOptions(seed=seed)) for seed in (5, 5, 6)
    )
    assert torch.equal(layer.projection, same.projection)
    assert not torch.equal(layer.projection, other.projection)
    assert not torch.equal(layer.projection[0], layer.projection[1])  # each head its own
    before, generator = layer.projection.clone(), seeded(7)
    layer.redraw(generator)
    assert not torch.equal(layer.projection, before)
    state = torch.get_rng_state()
    same.redraw(seeded(7))
    assert torch.equal(layer.projection, same.projection)
    assert torch.equal(state, torch.get_rng_state())  # the caller's randomness is left alone
    layer.redraw(generator)
    assert not torch.equal(layer.projection, same.projection)


def test_projection_is_a_buffer_not_a_parameter() -> None:
    layer, other = (Performer(12, 3, options=PerformerOptions(seed=seed)) for seed in (1, 2))
    assert sum(p.numel() for p in layer.parameters()) == 4 * 12 * 12
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.projection, layer.projection)
    with torch.device("meta"):
        assert attnlab.build("performer", dim=64, heads=2).projection.shape == (2, 110, 32)


def test_state_is_of_constant_size() -> None:
    layer, state = (
        (Performer(12, 3, causal=True, options=PerformerOptions(features=11, kernel="hyperbolic"))),
        None,
    )
    for _ in range(3):
        _, state = layer.step(torch.randn(2, 5, 12), state)
        assert state.sums.shape == (2, 3, 22, 5)
        assert state.unit.shape == (2, 3)


@pytest.mark.parametrize("form", ["chunked", "recurrent"])
def test_half_precision_sums_do_not_stop_growing(form: str) -> None:
    """In bfloat16 a sum of ones ends at 256; the mean of many equal keys would be wrong."""
    q, k = torch.zeros(2, 1, 1, 1021, 5, dtype=torch.bfloat16)
    v = torch.linspace(0, 1, 1021, dtype=torch.bfloat16)[None, None, :, None]
    rows = gaussian_rows(7, 5, seeded(0))[None].bfloat16()
    found = FORMS[form](q, k, v, rows, causal=True)
    torch.testing.assert_close(found[0, 0, -1, 0].item(), 0.5, atol=4e-3, rtol=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kernel": "positve"}, "there is no kernel 'positve'; did you mean 'positive'?"),
        ({"kernel": "trigonometric"}, "there is no kernel 'trigonometric'"),
        ({"norms": "long"}, "there is no norms 'long'"),
        ({"norms": "fixed", "orthogonal": False}, "norms='fixed' is for orthogonal rows"),
        ({"features": 0}, "features should be at least 1, got 0"),
        ({"chunk": 0}, "chunk should be at least 1, got 0"),
    ],
)
def test_wrong_options_are_answered_in_sentences(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Performer(12, 3, options=PerformerOptions(**options))


def test_wrong_calls_are_answered_in_sentences() -> None:
    tensors = made(7, 7)
    with pytest.raises(ValueError, match="chunk should be at least 1, got 0"):
        chunked(*tensors, options=PerformerOptions(chunk=0))
    with pytest.raises(ValueError, match="there is no form 'fast'"):
        Performer(12, 3, form="fast")
    with pytest.raises(ValueError, match="there is no kernel 'cos'"):
        naive(*tensors, options=PerformerOptions(kernel="cos"))
    with pytest.raises(ValueError, match="causal=True"):
        Performer(12, 3).step(torch.randn(2, 1, 12))
    layer = Performer(12, 3, causal=True)
    _, state = layer.step(torch.randn(2, 1, 12))
    with pytest.raises(ValueError, match=r"start a new batch with state=None"):
        layer.step(torch.randn(5, 1, 12), state)
