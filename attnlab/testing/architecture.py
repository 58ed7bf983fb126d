"""Claims of feed-forward layers, joins and depth, each asked of every page of its role.

Cards of others are asked by ``attnlab.testing.claims`` like those of the shelf.
"""

import copy
import inspect
import math
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
from attnlab.core.claims import Depth, Feed, Join, Number
from attnlab.core.options import takes_padding
from attnlab.core.probe import record
from attnlab.core.shapes import regrouped
from attnlab.models.tiny import TinyTransformer
from attnlab.testing.mechanisms import (
    Cases,
    Sizes,
    gradients,
    inputs,
    named,
    required,
    variants,
)

DIM, N, ROWS = 12, 7, 2


def of_role(*roles: str) -> list[Card]:
    return [card for card in catalog.shelf("architecture") if card.role in roles]


def cases(role: str, of: Any) -> Cases:
    """The cases of every page of a role."""
    return Cases(lambda card: of(card) if card.role == role else [], of_role(role))


FEEDS = cases("feed", lambda card: [named(card, i) for i in range(len(variants(card)))])
FEED_FORMS = cases("feed", lambda card: [named(card, form) for form in list(card.forms)[1:]])
JOINS = cases("join", lambda card: [named(card)])
JOIN_VARIANTS = cases("join", lambda card: [named(card, i) for i in range(len(variants(card)))])
DEPTHS = cases("depth", lambda card: [named(card)])
DEPTH_VARIANTS = cases("depth", lambda card: [named(card, i) for i in range(len(variants(card)))])
DEPTH_FORMS = cases("depth", lambda card: [named(card, form) for form in list(card.forms)[1:]])


# ---- feed-forward layers


def built(card: Card, variant: int = 0) -> nn.Module:
    torch.manual_seed(2)
    takes = card.option_names()
    given = {name: value for name, value in variants(card)[variant].items() if name in takes}
    return catalog.build(card.name, dim=DIM, **given).double().eval()


def sizes_of(card: Card, layer: Any) -> dict[sympy.Symbol, int]:
    """The letters of a feed-forward layer's claims → their sizes; those that stand for options of
    the page are attributes of its layer."""
    own = {letters(name)[0]: getattr(layer, option) for name, option in card.letters.items()}
    n, dim, f, E, c = letters("n dim f E c")
    contract = last_modules(layer)[0]
    hidden = {f: contract.in_features} if hasattr(contract, "in_features") else {}
    experts = {E: contract.weight.shape[0]} if contract.weight.dim() == 3 else {}
    capacity = {c: sympy.nsimplify(getattr(layer, "capacity", 1))}
    return {n: N, dim: DIM, **hidden, **experts, **capacity, **own}


def last_modules(layer: nn.Module) -> list[Any]:
    """What holds the last matrices of a layer, whose products it adds to the stream."""
    return [part.contract for part in layer.modules() if hasattr(part, "contract")]


@pytest.mark.parametrize(("card", "form"), FEED_FORMS)
def test_each_form_of_a_feed_equals_naive(card: Card, form: str) -> None:
    naive, fast = card.forms["naive"], card.forms[form]
    made = inputs(naive, Sizes(b=ROWS, n=N, dim=5, f=11), torch.float64)
    made = [x.requires_grad_() for x in made]
    tensors = regrouped(naive, dict(zip(required(naive), made, strict=True)))
    for variant in variants(card):
        out = fast(**tensors, **card.arguments(fast, variant))
        expected = naive(**tensors, **card.arguments(naive, variant))
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
def test_a_feed_reads_later_tokens_only_where_it_says_so(card: Card, variant: int) -> None:
    claims, layer = card.claims, built(card, variant)
    assert isinstance(claims, Feed)
    x = torch.randn(16 * ROWS, N, DIM, dtype=torch.float64)
    changed = x.clone()
    changed[:, 4:] = torch.randn_like(changed[:, 4:])
    same = torch.allclose(layer(changed)[:, :4], layer(x)[:, :4])
    ahead = getattr(layer, "ahead", False)
    assert same == (not ahead)
    assert claims.ahead or not ahead


@pytest.mark.parametrize(("card", "variant"), FEEDS)
def test_padding_has_no_influence_on_a_feed_that_is_told_it(card: Card, variant: int) -> None:
    layer = built(card, variant)
    if not takes_padding(layer):
        pytest.skip(f"{card.name} treats each token alone")
    x = torch.randn(ROWS, N, DIM, dtype=torch.float64)
    for real in (torch.arange(N) < 4, torch.arange(N) % 3 > 0):
        hidden = x.masked_fill(~real[:, None], torch.nan)
        out = layer(hidden, padding=real.expand(ROWS, N))
        torch.testing.assert_close(out[:, real], layer(x, padding=real.expand(ROWS, N))[:, real])
        if real[:4].all():
            torch.testing.assert_close(out[:, :4], layer(x[:, :4]))


@pytest.mark.parametrize(("card", "variant"), FEEDS)
def test_a_feed_notes_what_its_card_promises(card: Card, variant: int) -> None:
    with record() as notes:
        built(card, variant)(torch.randn(ROWS, N, DIM, dtype=torch.float64))
    assert set(notes.names()) == {name for names in card.notes.values() for name in names}


@pytest.mark.parametrize(("card", "variant"), FEEDS)
def test_a_feed_has_the_parameters_and_the_flops_that_it_claims(card: Card, variant: int) -> None:
    claims, layer = card.claims, built(card, variant)
    assert isinstance(claims, Feed)
    sizes = sizes_of(card, layer)
    assert sum(p.numel() for p in layer.parameters()) == claims.parameters.subs(sizes)
    x = torch.randn(1, N, DIM, dtype=torch.float64)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), record() as notes:
        layer(x)
    dropped = notes.last("dropped", torch.zeros(()))
    assert counter.get_total_flops() <= claims.time.subs(sizes)
    assert dropped.any() or counter.get_total_flops() == claims.time.subs(sizes)
    used = 0
    active = claims.parameters if claims.active is None else claims.active
    tokens = torch.randn(1, 1 if active.subs(sizes) != claims.parameters.subs(sizes) else 64, DIM)
    out = layer(tokens.to(x.dtype))  # many tokens show the units that a ReLU closes for one
    for weight in torch.autograd.grad(out.square().sum(), list(layer.parameters())):
        used += int((weight != 0).sum())
    assert used <= active.subs(sizes)
    assert claims.active is not None or used == active.subs(sizes)


@pytest.mark.parametrize(("card", "variant"), FEEDS)
def test_a_feed_trains_one_step_and_its_last_matrices_are_contract(
    card: Card, variant: int
) -> None:
    layer = built(card, variant).train()
    x = torch.randn(ROWS, N, DIM, dtype=torch.float64)
    torch.manual_seed(3)
    loss = (layer(x) - x).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in layer.parameters():
            assert p.grad is not None
            p.sub_(0.01 * p.grad)
    torch.manual_seed(3)
    assert (layer(x) - x).square().mean() < loss
    assert last_modules(layer)
    assert all(DIM in last.weight.shape for last in last_modules(layer))
    with torch.no_grad():
        for p in (p for last in last_modules(layer) for p in last.parameters()):
            p.zero_()
    assert (layer(x) == 0).all()


# ---- joins


class Rotations(nn.Module):
    """A sublayer that keeps the variance of what it reads: two random orthogonal matrices."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.expand, self.contract = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        for each in (self.expand, self.contract):
            nn.init.orthogonal_(each.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.contract(self.expand(x))
        return out


def joined(
    card: Card, dim: int, branches: int, variant: int = 0
) -> tuple[list[Any], list[Rotations]]:
    """So many sublayers of one stack, as the join changes them, and the join of each."""
    torch.manual_seed(2)
    takes: dict[str, Any] = {"dim": dim, "layers": branches // 2, "shrink": False}
    given = {name: value for name, value in takes.items() if name in parameters_of_build(card)}
    given |= variants(card)[variant]
    joins: list[Any] = [catalog.build(card.name, **given).double().eval() for _ in range(branches)]
    sublayers = [Rotations(dim).double() for _ in range(branches)]
    for join, sublayer in zip(joins, sublayers, strict=True):
        if hasattr(join, "prepare"):
            join.prepare(sublayer)
        join.initialise(sublayer, branches)
    return joins, sublayers


def parameters_of_build(card: Card) -> set[str]:
    return set(inspect.signature(card.build).parameters)


@pytest.mark.parametrize("branches", [6, 64, 512])
@pytest.mark.parametrize("card", JOINS)
def test_variance_and_gradient_of_a_join_are_as_claimed(card: Card, branches: int) -> None:
    """Stacks of up to 256 layers. The claims hold in the mean of wide layers: about a tenth is
    left, and of the gradient more in deep stacks, where every sublayer multiplies it."""
    claims, dim = card.claims, 128
    assert isinstance(claims, Join)
    joins, sublayers = joined(card, dim, branches)
    embedded = torch.randn(2 * ROWS, N, dim, dtype=torch.float64)
    x, streams = embedded, []
    for join, f in zip(joins, sublayers, strict=True):
        x = join(x, f)
        streams.append(x)
    out = x.var(-1, correction=0).mean().item()
    assert out == pytest.approx(claimed(claims.variance, joins[0], branches), rel=0.1)
    first, last = (
        grad.norm().item()
        for grad in torch.autograd.grad((x * torch.randn_like(x)).sum(), (streams[0], x))
    )
    expected = math.log(claimed(claims.gradient, joins[0], branches))
    assert math.log(first / last) == pytest.approx(expected, abs=0.15 + branches / 640)

    x = streams[0] = joins[0](embedded, sublayers[0])
    for join, f in zip(joins[1:], sublayers[1:], strict=True):
        x = join(x, lambda read, f=f: f(read).detach())
    (first,) = torch.autograd.grad((x * torch.randn_like(x)).sum(), streams[0])
    around = first.norm().item() / math.sqrt(x.numel())
    expected = math.log(claimed(claims.around, joins[0], branches))
    assert math.log(around) == pytest.approx(expected, rel=0.05, abs=0.01 * branches)


def claimed(formula: Number, join: Any, branches: int) -> float:
    """Its value for so many sublayers; other letters are what the join holds."""
    formula = sympy.sympify(formula)
    held = {letter: getattr(join, letter.name, branches) for letter in formula.free_symbols}
    return float(formula.subs(held))


@pytest.mark.parametrize(("card", "variant"), JOIN_VARIANTS)
def test_a_join_says_whether_it_leaves_the_stream_normalised(card: Card, variant: int) -> None:
    joins, sublayers = joined(card, DIM, 4, variant)
    x = 3 * torch.randn(ROWS, N, DIM, dtype=torch.float64) + 1
    out = joins[0](x, sublayers[0])
    normal = torch.allclose(out.square().mean(-1), out.new_ones(()), atol=1e-3)
    assert joins[0].normalised == normal


@pytest.mark.parametrize(("card", "variant"), JOIN_VARIANTS)
def test_a_join_that_only_adds_has_its_branch(card: Card, variant: int) -> None:
    joins, sublayers = joined(card, DIM, 4, variant)
    x = torch.randn(ROWS, N, DIM, dtype=torch.float64)
    if not hasattr(joins[0], "branch"):
        pytest.skip(f"{card.name} does more than add")
    added = joins[0].branch(x, sublayers[0])
    torch.testing.assert_close(x + added, joins[0](x, sublayers[0]))


@pytest.mark.parametrize(("card", "variant"), JOIN_VARIANTS)
def test_a_join_trains_in_a_model_with_padding(card: Card, variant: int) -> None:
    """In an encoder-decoder, whose halves may have other constants; padded tokens change nothing
    for the real ones."""
    sizes = {"dim": DIM, "heads": 2, "layers": 2, "max_len": N, "kind": "encoder_decoder"}
    torch.manual_seed(2)
    own = dict(variants(card)[variant])
    model = TinyTransformer(11, **sizes, join=card.name, join_options=own).double()
    tokens, source = torch.randint(11, (2, ROWS, N))
    padding = torch.arange(N).expand(ROWS, N) < 5
    model(tokens, source=source, source_padding=padding).logsumexp(-1).sum().backward()
    decoder: Any = model.decoder
    joins = [join for block in decoder.blocks for join, _ in block.sublayers()]
    assert all(p.grad is not None for join in joins for p in join.parameters())
    assert joins[0] is not joins[1]
    model.eval()
    with torch.no_grad():
        for p in (p for join in joins for p in join.parameters()):
            p.add_(0.1)  # some begin at zero, and let nothing through
    given = model(tokens, source=source, source_padding=padding)
    other = source.where(padding, 3)
    torch.testing.assert_close(model(tokens, source=other, source_padding=padding), given)
    assert not torch.allclose(model(tokens, source=other), given)


# ---- depth


class Residual(nn.Module):
    """A layer of two branches, as a depth sees it: x + tanh of a product, twice."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        matrices = [0.05 * torch.randn(dim, dim, dtype=torch.float64) for _ in range(2)]
        self.matrices = nn.ParameterList([nn.Parameter(each) for each in matrices])
        self.padding: Tensor | None = None
        self.start: int | Tensor = 0

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


def way_of(card: Card, layers: int, variant: int = 0) -> Any:
    """The module of a depth page, for that many layers of width DIM."""
    torch.manual_seed(3)
    takes = {"dim": DIM, "layers": layers}
    given = {name: value for name, value in takes.items() if name in parameters_of_build(card)}
    return catalog.build(card.name, **given, **variants(card)[variant]).double().eval()  # type: ignore[arg-type]


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
    way, loop = way_of(card, len(layers)), x
    for layer in layers:
        loop = layer(loop)
    assert torch.allclose(way(x, layers), loop) == (claims.equals == "the loop over the layers")
    with torch.no_grad():
        torch.testing.assert_close(way.step(x, copy.copy(layers)), way(x, layers))


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


@pytest.mark.parametrize(("card", "variant"), DEPTH_VARIANTS)
def test_a_depth_keeps_rows_apart_and_steps_as_it_runs(card: Card, variant: int) -> None:
    x, layers = deep(5)
    way = way_of(card, len(layers), variant)
    with torch.no_grad():
        out = way(x, layers)
        torch.testing.assert_close(way.step(x, copy.copy(layers)), out)
        torch.testing.assert_close(torch.cat([way(row[None], layers) for row in x]), out)


@pytest.mark.parametrize("card", DEPTHS)
def test_a_depth_has_the_parameters_that_it_claims(card: Card) -> None:
    claims = card.claims
    assert isinstance(claims, Depth)
    L, p = letters("L p")
    sizes = {"vocab": 11, "dim": DIM, "heads": 2, "max_len": N}
    for layers in (2, 4):
        stack: Any = TinyTransformer(**sizes, layers=layers, depth=card.name).decoder
        one = sum(each.numel() for each in stack.blocks[0].parameters())
        claimed = sympy.sympify(claims.parameters).subs({L: layers, p: one})
        assert sum(each.numel() for each in stack.blocks.parameters()) == claimed


@pytest.mark.parametrize("card", DEPTHS)
def test_each_promised_note_of_a_depth_fires(card: Card) -> None:
    x, layers = deep(5)
    for variant in range(len(variants(card))):
        with record() as notes:
            way_of(card, len(layers), variant)(x, layers)
        assert {name for names in card.notes.values() for name in names} <= {*notes.names()}
