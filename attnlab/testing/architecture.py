"""Claims of feed-forward layers, joins and depth, each asked of every page of its role.

Cards of others are asked by ``attnlab.testing.claims`` like those of the shelf.
"""

import copy
import inspect
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from attnlab import catalog
from attnlab.core.branches import Branch
from attnlab.core.card import Card, letters
from attnlab.core.claims import Depth, Feed, Join
from attnlab.testing.mechanisms import Cases, Sizes, gradients, inputs, named, variants

DIM, N, ROWS = 12, 7, 2
SUBLAYERS = 64


def of_role(*roles: str) -> list[Card]:
    return [card for card in catalog.shelf("architecture") if card.role in roles]


def cases(role: str, of: Any) -> Cases:
    """The cases of every page of a role."""
    return Cases(lambda card: of(card) if card.role == role else [], of_role(role))


FEEDS = cases("feed", lambda card: [named(card, i) for i in range(len(variants(card)))])
FEED_FORMS = cases("feed", lambda card: [named(card, form) for form in list(card.forms)[1:]])
JOINS = cases("join", lambda card: [named(card)])
DEPTHS = cases("depth", lambda card: [named(card)])
DEPTH_FORMS = cases("depth", lambda card: [named(card, form) for form in list(card.forms)[1:]])


# ---- feed-forward layers


def built(card: Card, variant: int = 0) -> nn.Module:
    torch.manual_seed(2)
    takes = card.option_names()
    given = {name: value for name, value in variants(card)[variant].items() if name in takes}
    return catalog.build(card.name, dim=DIM, **given).double().eval()


def sizes_of(layer: nn.Module) -> dict[sympy.Symbol, int]:
    """The letters of a feed-forward layer's claims → their sizes."""
    contract: Any = layer.contract
    n, dim, f = letters("n dim f")
    return {n: N, dim: DIM, f: contract.in_features}


@pytest.mark.parametrize(("card", "form"), FEED_FORMS)
def test_each_form_of_a_feed_equals_naive(card: Card, form: str) -> None:
    made = [
        x.requires_grad_()
        for x in inputs(card.forms["naive"], Sizes(b=ROWS, n=N, dim=5, f=11), torch.float64)
    ]
    for variant in variants(card):
        given = card.arguments(card.forms[form], variant)
        out, expected = card.forms[form](*made, **given), card.forms["naive"](*made)
        torch.testing.assert_close(out, expected)
        for mine, theirs in zip(gradients(out, made), gradients(expected, made), strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("card", "variant"), FEEDS)
def test_a_feed_treats_each_token_alone(card: Card, variant: int) -> None:
    claims, layer = card.claims, built(card, variant)
    assert isinstance(claims, Feed)
    if claims.together:
        pytest.skip(claims.together)
    x = torch.randn(ROWS, N, DIM, dtype=torch.float64)
    out, order = layer(x), torch.randperm(N)
    assert out.shape == x.shape
    torch.testing.assert_close(layer(x[:, order]), out[:, order])
    changed = x.clone()
    changed[:, 3] += 1
    same = torch.arange(N) != 3
    torch.testing.assert_close(layer(changed)[:, same], out[:, same])
    assert not torch.allclose(layer(changed)[:, 3], out[:, 3])


@pytest.mark.parametrize(("card", "variant"), FEEDS)
def test_a_feed_has_the_parameters_and_the_flops_that_it_claims(card: Card, variant: int) -> None:
    claims, layer = card.claims, built(card, variant)
    assert isinstance(claims, Feed)
    sizes = sizes_of(layer)
    assert sum(p.numel() for p in layer.parameters()) == claims.parameters.subs(sizes)
    x = torch.randn(1, N, DIM, dtype=torch.float64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(x)
    assert counter.get_total_flops() == claims.time.subs(sizes)
    used = 0
    for weight in torch.autograd.grad(layer(x[:, :1]).square().sum(), list(layer.parameters())):
        used += int((weight != 0).sum())
    active = claims.parameters if claims.active is None else claims.active
    assert used <= active.subs(sizes)
    assert claims.active is not None or used == active.subs(sizes)


@pytest.mark.parametrize(("card", "variant"), FEEDS)
def test_a_feed_trains_one_step_and_its_last_matrix_is_contract(card: Card, variant: int) -> None:
    layer = built(card, variant).train()
    x = torch.randn(ROWS, N, DIM, dtype=torch.float64)
    loss = (layer(x) - x).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in layer.parameters():
            assert p.grad is not None
            p.sub_(0.01 * p.grad)
    assert (layer(x) - x).square().mean() < loss
    contract: Any = layer.contract
    assert contract.weight.shape[0] == DIM
    with torch.no_grad():
        for p in (contract.weight, contract.bias):
            p.zero_()
    assert (layer(x) == 0).all()


# ---- joins


class Rotation(nn.Module):
    """A sublayer that keeps the variance of what it reads: a random orthogonal matrix."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, dim, dtype=torch.float64))
        nn.init.orthogonal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.mT


def joined(card: Card, dim: int) -> tuple[list[Any], list[Rotation]]:
    torch.manual_seed(2)
    takes: dict[str, Any] = {"dim": dim, "layers": SUBLAYERS // 2}
    given = {name: value for name, value in takes.items() if name in parameters_of_build(card)}
    joins = [catalog.build(card.name, **given).double().eval() for _ in range(SUBLAYERS)]
    return joins, [Rotation(dim) for _ in range(SUBLAYERS)]


def parameters_of_build(card: Card) -> set[str]:
    return set(inspect.signature(card.build).parameters)


@pytest.mark.parametrize("card", JOINS)
def test_variance_and_gradient_of_a_join_are_as_claimed(card: Card) -> None:
    """After 64 sublayers. The claims hold in the mean of wide layers, so about a tenth is left."""
    claims, dim = card.claims, 256
    assert isinstance(claims, Join)
    joins, sublayers = joined(card, dim)
    x = torch.randn(4 * ROWS, N, dim, dtype=torch.float64)
    for join, f in zip(joins, sublayers, strict=True):
        x = join(x, f)
    (L,) = letters("L")
    variance, gradient = (
        float(sympy.sympify(claimed).subs(L, SUBLAYERS))
        for claimed in (claims.variance, claims.gradient)
    )
    assert x.var(-1, correction=0).mean().item() == pytest.approx(variance, rel=0.1)
    (x * torch.randn_like(x)).sum().backward()
    first, last = (f.weight.grad.norm().item() for f in (sublayers[0], sublayers[-1]))  # type: ignore[union-attr]
    assert first / last == pytest.approx(gradient, rel=0.2)


@pytest.mark.parametrize("card", JOINS)
def test_a_join_says_whether_it_leaves_the_stream_normalised(card: Card) -> None:
    joins, sublayers = joined(card, DIM)
    x = 3 * torch.randn(ROWS, N, DIM, dtype=torch.float64) + 1
    out = joins[0](x, sublayers[0])
    normal = torch.allclose(out.var(-1, correction=0), out.new_ones(()), atol=1e-3)
    assert joins[0].normalised == normal


@pytest.mark.parametrize("card", JOINS)
def test_a_join_that_only_adds_has_its_branch(card: Card) -> None:
    joins, sublayers = joined(card, DIM)
    x = torch.randn(ROWS, N, DIM, dtype=torch.float64)
    if not hasattr(joins[0], "branch"):
        pytest.skip(f"{card.name} does more than add")
    added = joins[0].branch(x, sublayers[0])
    torch.testing.assert_close(x + added, joins[0](x, sublayers[0]))


# ---- depth


class Residual(nn.Module):
    """A layer of two branches, as a depth sees it: x + tanh of a product, twice."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        matrices = [0.05 * torch.randn(dim, dim, dtype=torch.float64) for _ in range(2)]
        self.matrices = nn.ParameterList([nn.Parameter(each) for each in matrices])
        self.padding: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        for branch in self.branches:
            x = x + branch.run(x)
        return x

    @property
    def branches(self) -> tuple[Branch, ...]:
        return tuple(Branch(lambda x, m=m: torch.tanh(x @ m), (m,)) for m in self.matrices)  # type: ignore[misc]


def deep(layers: int) -> tuple[Tensor, list[Residual]]:
    torch.manual_seed(2)
    made = [Residual(DIM) for _ in range(layers)]
    return torch.randn(ROWS, N, DIM, dtype=torch.float64, requires_grad=True), made


def way_of(card: Card, layers: int) -> nn.Module:
    takes: dict[str, Any] = {"dim": DIM, "layers": layers}
    given = {name: value for name, value in takes.items() if name in parameters_of_build(card)}
    return catalog.build(card.name, **given).double()


@pytest.mark.parametrize(("card", "form"), DEPTH_FORMS)
def test_each_form_of_a_depth_equals_naive(card: Card, form: str) -> None:
    x, layers = deep(5)
    wanted = [x, *(p for layer in layers for p in layer.parameters())]
    out, expected = (
        card.forms[each](x, layers, **card.arguments(card.forms[each], variants(card)[-1]))
        for each in (form, "naive")
    )
    torch.testing.assert_close(out, expected)
    for mine, theirs in zip(gradients(out, wanted), gradients(expected, wanted), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("card", DEPTHS)
def test_a_depth_is_the_loop_where_it_says_so(card: Card) -> None:
    claims = card.claims
    assert isinstance(claims, Depth)
    x, layers = deep(5)
    way, loop = way_of(card, 5), x
    for layer in layers:
        loop = layer(loop)
    assert torch.allclose(way(x, layers), loop) == (claims.equals == "the loop over the layers")
    with torch.no_grad():
        torch.testing.assert_close(way.step(x, copy.copy(layers)), way(x, layers))  # type: ignore[operator]


def kept(card: Card, layers: int) -> int:
    """Elements that the forward pass keeps, parameters apart; no tensor is counted twice."""
    x, made = deep(layers)
    way, found = way_of(card, layers), {}

    def book(saved: Tensor) -> Tensor:
        if not isinstance(saved, nn.Parameter):
            found[saved.untyped_storage().data_ptr()] = saved
        return saved

    with saved_tensors_hooks(book, lambda saved: saved):
        out = way(x, made)
    assert out.requires_grad
    return sum(each.numel() for each in found.values() if each.is_floating_point())


@pytest.mark.parametrize("card", DEPTHS)
def test_a_depth_keeps_what_it_claims(card: Card) -> None:
    claims = card.claims
    assert isinstance(claims, Depth)
    L, a, x = letters("L a x")
    stream = ROWS * N * DIM
    one = kept(catalog.card("plain"), 3) - kept(catalog.card("plain"), 2)
    for layers in (2, 5, 11):
        claimed = sympy.sympify(claims.kept).subs({L: layers, a: one, x: stream})
        assert kept(card, layers) == pytest.approx(int(claimed), abs=stream), layers
