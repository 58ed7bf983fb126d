"""α-entmax: against all possible supports (identity R5), its limits, derivatives and package."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.learned.entmax import FORMS, EntmaxAttention, naive
from attnlab.mechanisms.learned.entmax.definition import by_bisection, by_sorting, shifted
from attnlab.mechanisms.learned.entmax.implicit import entmax

B, H, N, M, D, E = 2, 3, 5, 11, 7, 13


def bisected(scores: Tensor, alpha: float | Tensor) -> Tensor:
    return by_bisection(shifted(scores, None), alpha)


def sorted_(scores: Tensor, alpha: float) -> Tensor:
    return by_sorting(shifted(scores, None), alpha)


def scores(*shape: int, spread: float = 1.5) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64) * spread


def made(alpha: float | Tensor) -> tuple[list[Tensor], dict[str, Any]]:
    shapes = ((B, H, N, D), (B, H, M, D), (B, H, M, E))
    return [torch.randn(s, dtype=torch.float64) for s in shapes], {"alpha": alpha}


# ---- R5: what it is


def by_all_supports(z: list[float], alpha: float) -> list[float]:
    """The weights that satisfy the equation, found by trying every support (α = 1.5 or 2)."""
    x = [(alpha - 1) * value for value in z]
    for size in range(1, len(x) + 1):
        for support in itertools.combinations(range(len(x)), size):
            inside = [x[i] for i in support]
            mean = sum(inside) / size
            room = (1 - sum((value - mean) ** 2 for value in inside)) / size
            if alpha == 1.5 and room < 0:
                continue
            tau = mean - (math.sqrt(room) if alpha == 1.5 else 1 / size)
            p = [max(value - tau, 0) ** (1 / (alpha - 1)) for value in x]
            if {i for i in range(len(p)) if p[i] > 0} == set(support):
                return p
    raise AssertionError("every row has a solution")


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("way", [sorted_, bisected, entmax])
def test_every_way_finds_the_support_of_the_equation(
    way: Callable[[Tensor, float], Tensor], alpha: float
) -> None:
    z = scores(40, 6)
    expected = torch.tensor([by_all_supports(row, alpha) for row in z.tolist()]).double()
    assert 1 < (expected > 0).sum(-1).float().mean() < 5
    p = way(z, alpha)
    assert torch.equal(p > 0, expected > 0)
    torch.testing.assert_close(p, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("alpha", [1.01, 1.2, 1.5, 2.0, 3.0, 5.0])
def test_weights_solve_the_equation_for_any_alpha(alpha: float) -> None:
    z = scores(7, 23)
    p = entmax(z, alpha)
    tau = ((alpha - 1) * z - p ** (alpha - 1)).where(p > 0, -torch.inf).amax(-1, keepdim=True)
    torch.testing.assert_close(p, ((alpha - 1) * z - tau).clamp_min(0) ** (1 / (alpha - 1)))
    torch.testing.assert_close(p.sum(-1), torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(p, bisected(z, alpha))


@pytest.mark.parametrize("way", [bisected, entmax])
@pytest.mark.parametrize(("alpha", "near"), [(1.0, 1e-9), (1 + 1e-6, 1e-4), (1 + 1e-3, 1e-2)])
def test_it_tends_to_softmax_in_single_precision_too(
    way: Callable[[Tensor, float], Tensor], alpha: float, near: float
) -> None:
    z = scores(5, 19)
    torch.testing.assert_close(way(z, alpha), z.softmax(-1), rtol=0, atol=near)
    single = way(z.float(), alpha)
    torch.testing.assert_close(single, way(z, alpha).float(), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("way", [bisected, entmax])
def test_a_large_alpha_chooses_the_largest(way: Callable[[Tensor, float], Tensor]) -> None:
    z = torch.tensor([[0.3, 1.0, 0.9], [2.0, 2.0, -1.0]], dtype=torch.float64)
    expected = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]], dtype=torch.float64)
    for alpha in (50.0, 1e9):
        torch.testing.assert_close(way(z, alpha), expected)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
def test_the_weaker_of_two_is_dropped_once_it_is_far_enough_behind(alpha: float) -> None:
    gap = 1 / (alpha - 1)
    for factor, dropped in ((0.99, False), (1.01, True)):
        p = entmax(torch.tensor([[gap * factor, 0.0]], dtype=torch.float64), alpha)
        assert (p[0, 1] == 0) == dropped


def test_constants_and_scores_far_below_change_nothing() -> None:
    z = scores(3, 17)
    for alpha in (1.2, 1.5, 2.0, 3.0):
        torch.testing.assert_close(entmax(z + 1e4, alpha), entmax(z, alpha), atol=1e-9, rtol=0)
        low = torch.cat([z, torch.full((3, 2), -1e8, dtype=torch.float64)], -1)
        torch.testing.assert_close(entmax(low, alpha)[:, :17], entmax(z, alpha))


@pytest.mark.parametrize("m", [1, 2, 300, 2000])
@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 100.0])
def test_newton_is_done_within_its_steps(m: int, spread: float) -> None:
    for alpha in (1.05, 1.5, 2.0):
        hard = -torch.logspace(-6, 0, m, dtype=torch.float64) / (alpha - 1)  # ever denser ends
        for z in (scores(4, m, spread=spread), hard[None], hard.flip(0)[None] ** 3):
            torch.testing.assert_close(entmax(z, alpha), bisected(z, alpha), atol=1e-9, rtol=1e-7)


# ---- derivatives


@pytest.mark.parametrize("alpha", [1.0, 1.001, 1.3, 1.5, 2.0, 2.6])
@pytest.mark.parametrize("way", [bisected, entmax])
def test_derivatives_by_the_scores(way: Callable[[Tensor, float], Tensor], alpha: float) -> None:
    z = scores(4, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: way(z, alpha), z, atol=1e-5)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_derivatives_of_sorting(alpha: float) -> None:
    z = scores(4, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: sorted_(z, alpha), z, atol=1e-5)


@pytest.mark.parametrize("way", [bisected, entmax])
def test_derivatives_by_alpha(way: Callable[[Tensor, Tensor], Tensor]) -> None:
    z = scores(5, 2, 6).requires_grad_()
    alpha = torch.tensor([1.01, 1.08, 1.5, 1.9, 2.4], dtype=torch.float64)[:, None, None]
    assert torch.autograd.gradcheck(way, (z, alpha.requires_grad_()), atol=1e-5)


def test_derivative_by_alpha_beside_softmax() -> None:
    z, g = scores(1, 9), torch.randn(9, dtype=torch.float64)
    alpha = torch.full((1, 1), 1 + 1e-9, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad((entmax(z, alpha) * g).sum(), alpha)
    p, squares = z.softmax(-1), z.log_softmax(-1) ** 2
    expected = -(p * (squares - (p * squares).sum()) * g).sum() / 2
    torch.testing.assert_close(found.sum(), expected, rtol=1e-6, atol=1e-6)


def test_second_derivatives_are_refused() -> None:
    z = scores(2, 5).requires_grad_()
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(entmax(z, 1.5).square().sum(), z, create_graph=True)


# ---- beside the package


@pytest.mark.parametrize("alpha", [1.5, 2.0, 1.3, 1.7])
def test_values_and_derivatives_of_the_package(alpha: float) -> None:
    package = pytest.importorskip("entmax", reason="the package entmax is not installed")
    theirs = {1.5: package.entmax15, 2.0: package.sparsemax}.get(
        alpha, lambda z: package.entmax_bisect(z, alpha)
    )
    z, g = scores(3, 2, 29).requires_grad_(), scores(3, 2, 29)
    ours, expected = entmax(z, alpha), theirs(z)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(*(torch.autograd.grad(p, z, g)[0] for p in (ours, expected)))


def test_derivative_by_alpha_of_the_package() -> None:
    package = pytest.importorskip("entmax", reason="the package entmax is not installed")
    z, g = scores(3, 2, 29), scores(3, 2, 29)
    alpha = torch.tensor([1.2, 1.5, 1.8]).double()[:, None, None].requires_grad_()
    ours, expected = entmax(z, alpha), package.entmax_bisect(z, alpha)
    torch.testing.assert_close(*(torch.autograd.grad(p, alpha, g)[0] for p in (ours, expected)))


def kept(run: Callable[[], Tensor]) -> int:
    """The bytes that a forward pass keeps for the backward pass."""
    sizes: dict[int, int] = {}

    def book(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(book, lambda x: x):
        out = run()
    assert out.requires_grad
    return sum(sizes.values())


def test_the_weights_alone_are_kept_for_the_backward_pass() -> None:
    z = torch.randn(4, 64, 97, requires_grad=True)
    allowed = torch.rand(64, 97) > 0.5
    for alpha in (1.5, 2.0, 1.3):
        assert kept(lambda a=alpha: entmax(z, a, allowed)) == z.numel() * 4
    package = pytest.importorskip("entmax", reason="the package entmax is not installed")
    assert kept(lambda: package.entmax15(z)) >= z.numel() * 4


# ---- attention


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_attention_is_the_weights_times_the_values(form: Callable[..., Tensor]) -> None:
    (q, k, v), given = made(1.5)
    allowed = torch.rand(B, H, N, M) > 0.3
    allowed[0, 1, 2] = False
    with record() as notes:
        out = form(q, k, v, **given, mask=allowed)
    for b, h, i in itertools.product(range(B), range(H), range(N)):
        keys = [j for j in range(M) if allowed[b, h, i, j]]
        row = [float(q[b, h, i] @ k[b, h, j]) / math.sqrt(D) for j in keys]
        p = by_all_supports(row, 1.5) if keys else []
        expected = sum((w * v[b, h, j] for w, j in zip(p, keys, strict=True)), torch.zeros(E))
        torch.testing.assert_close(out[b, h, i], expected, check_dtype=False)
        assert notes["support"][0][b, h, i] == sum(w > 0 for w in p)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_head_has_its_own_alpha(form: Callable[..., Tensor]) -> None:
    alpha = torch.tensor([1.1, 1.5, 2.0], dtype=torch.float64)
    inputs, given = made(alpha)
    with record() as notes:
        out = form(*inputs, **given)
    assert torch.equal(notes["alpha"][0], alpha)
    for head, of_head in enumerate(alpha.tolist()):
        part = [x[:, head : head + 1] for x in inputs]
        torch.testing.assert_close(out[:, head : head + 1], form(*part, alpha=of_head))


def test_at_alpha_one_it_is_full_attention() -> None:
    inputs, given = made(1.0)
    for form in FORMS.values():
        torch.testing.assert_close(form(*inputs, **given), full.naive(*inputs))


def test_a_learned_alpha_starts_as_given_and_stays_between_one_and_two() -> None:
    layer = EntmaxAttention(12, 3, alpha=1.8, learn_alpha=True)
    assert isinstance(layer.alpha, Tensor)
    torch.testing.assert_close(layer.alpha, torch.full((3,), 1.8))
    optimizer = torch.optim.SGD([layer.a], lr=30)
    for _ in range(3):
        optimizer.zero_grad()
        x = torch.randn(2, 17, 12)
        (layer(x) * torch.randn(12)).sum().backward()
        optimizer.step()
    assert ((layer.alpha >= 1) & (layer.alpha <= 2)).all()
    assert layer.alpha.unique().numel() == 3
    assert torch.isfinite(layer(torch.randn(2, 17, 12))).all()


@pytest.mark.parametrize("alpha", [1.0, 2.0, 2.5])
def test_a_learned_alpha_that_starts_outside_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="stays between 1 and 2"):
        EntmaxAttention(12, 3, alpha=alpha, learn_alpha=True)


def test_alphas_below_one_are_refused() -> None:
    inputs, given = made(0.5)
    with pytest.raises(ValueError, match=r"alpha should be at least 1, got 0\.5"):
        naive(*inputs, **given)
    with pytest.raises(ValueError, match=r"alpha should be at least 1, got 0\.5"):
        attnlab.build("entmax", dim=12, heads=3, alpha=0.5)
    with pytest.raises(ValueError, match=r"alpha of a head should be at least 1, got 0\.5"):
        naive(*inputs, alpha=torch.tensor([1.5, 0.5, 2.0]))
    with pytest.raises(ValueError, match=r"with that of each head, got floats of shape \(2,\)"):
        naive(*inputs, alpha=torch.tensor([1.5, 2.0]))


def test_sparsemax_is_an_option_of_it() -> None:
    assert attnlab.card("sparsemax") is attnlab.card("entmax")
    layer = attnlab.build("entmax", dim=12, heads=3, alpha=2.0)
    with record() as notes:
        layer(10 * torch.randn(2, 17, 12))
    assert notes["support"][0].float().mean() < 10
    assert (notes["support"][0] == (notes["weights"][0] > 0).sum(-1)).all()
