"""Claims of precision for what is no mechanism: feed-forward layers, joins, depths, objectives and
compressions.

They are asked what ``tests/test_precision_claims.py`` asks of mechanisms: under autocast, in half
precisions and under either default dtype each runs, forward and backward, gives the dtype of its
inputs, and is ``naive`` in float64 up to a few units of rounding. A loss is in float32 or wider,
as it is a sum over a batch.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.fixed_point import NoFixedPointError
from attnlab.core.options import takes_padding
from attnlab.core.probe import record
from attnlab.core.shapes import regrouped
from attnlab.models.tiny import TinyTransformer
from attnlab.testing import architecture, compression, objectives
from attnlab.testing.mechanisms import Sizes, gradients, inputs, required, variants
from tests.test_precision_claims import (
    EXACT,
    PRECISIONS,
    UNITS,
    UNITS_OF_GRADIENTS,
    Precision,
    equal,
    leaf,
    same_choices,
)

AUTOCAST = PRECISIONS[0]
DIM, SUBLAYERS = architecture.DIM, 6


def of(shelf: str, *roles: str) -> pytest.MarkDecorator:
    each = [
        pytest.param(card, variant, p, id=f"{card.name}-{variant}-{p.name}")
        for card in catalog.shelf(shelf)
        if card.role in roles
        for variant in range(len(variants(card)))
        for p in PRECISIONS
    ]
    return pytest.mark.parametrize(("card", "variant", "precision"), each)


def moved(module: nn.Module) -> nn.Module:
    """Its weights a little from where they start, which may be an edge."""
    for parameter in module.parameters():
        parameter.data *= 1 + torch.randn_like(parameter) / 20
    return module


def finite(tensors: tuple[Tensor, ...]) -> bool:
    return all(bool(x.isfinite().all()) for x in tensors)


# ---- feed-forward layers


@of("architecture", "feed")
def test_forms_of_a_feed(card: Card, variant: int, precision: Precision) -> None:
    naive, given = card.forms["naive"], variants(card)[variant]
    made = inputs(naive, Sizes(b=2, n=7, dim=5, f=11), precision.dtype)
    made = [leaf(x / 2) for x in made]
    expected = called(card, "naive", given, made)
    exact = gradients(expected, made)
    for form in card.forms:
        mine = [leaf(x, precision) for x in made]
        with precision.here():
            out = called(card, form, given, mine)
        assert out.dtype in precision.dtypes(out), form
        precision.near([out], [expected], UNITS)
        precision.near(gradients(out, mine), exact, UNITS_OF_GRADIENTS)


def called(card: Card, form: str, given: Mapping[str, Any], tensors: list[Tensor]) -> Tensor:
    function = card.forms[form]
    made = regrouped(function, dict(zip(required(function), tensors, strict=True)))
    out: Tensor = function(**made, **card.arguments(function, given))
    return out


FEEDS = [card for card in catalog.shelf("architecture") if card.role == "feed"]


@pytest.mark.parametrize("card", FEEDS, ids=lambda card: card.name)
def test_autocast_changes_no_choice_of_a_feed(card: Card) -> None:
    """Of many tokens, experts and keys, that rounded scores would order otherwise."""
    many = Sizes(b=2, n=211, dim=13, f=11, E=7, K=17, q=2, d=7)
    made = inputs(card.forms["naive"], many, torch.float32)
    for form in card.forms:
        with record() as exact:
            called(card, form, {}, made)
        with AUTOCAST.here(), record() as notes:
            called(card, form, {}, made)
        assert same_choices(exact, notes), form


@of("architecture", "feed")
def test_layers_of_a_feed(card: Card, variant: int, precision: Precision) -> None:
    with EXACT.here():
        exact = moved(architecture.built(card, variant))
    with precision.here():
        layer = made_feed(card, variant).to(precision.dtype).eval()
    equal(layer, exact)
    x = torch.randn(2, 7, DIM).to(precision.dtype)
    mine, theirs = leaf(x, precision), leaf(x)
    padding = torch.arange(7) < torch.tensor([[7], [5]])
    given = {"padding": padding} if takes_padding(layer) and variant % 2 else {}
    real = given.get("padding", slice(None))
    with record() as notes:
        expected = exact(theirs, **given)
    with precision.here(), record() as mine_notes:
        out = layer(mine, **given)
    assert out.dtype in precision.dtypes(out)
    found = gradients(out[real], [mine, *layer.parameters()])
    if same_choices(notes, mine_notes):
        precision.near([out[real]], [expected[real]], UNITS)
        wanted = gradients(expected[real], [theirs, *exact.parameters()])
        precision.near(found, wanted, UNITS_OF_GRADIENTS)
    assert finite((out, *found))
    layer.train()
    with precision.here():
        out = layer(mine, **given)
        found = gradients(layer(mine, **given), [mine, *layer.parameters()])
    assert finite((*found, *gradients(out, [mine, *layer.parameters()])))


def made_feed(card: Card, variant: int) -> nn.Module:
    takes = card.option_names()
    given = {name: value for name, value in variants(card)[variant].items() if name in takes}
    return catalog.build(card.name, dim=DIM, **given)


# ---- joins


@of("architecture", "join")
def test_joins(card: Card, variant: int, precision: Precision) -> None:
    """A stack of sublayers, each of which rounds."""
    with EXACT.here():
        joins, sublayers = architecture.joined(card, DIM, SUBLAYERS, variant)
    exact = moved(nn.ModuleList([*joins, *sublayers]))
    rounded = copy.deepcopy(exact).to(precision.dtype)
    equal(rounded, exact)
    x = torch.randn(2, 7, DIM).to(precision.dtype)
    mine, theirs = leaf(x, precision), leaf(x)
    expected = through(exact, theirs)
    with precision.here():
        out = through(rounded, mine)
    assert out.dtype in precision.dtypes(out)
    precision.near([out], [expected], SUBLAYERS * UNITS)
    found, wanted = (
        gradients(y, [z, *stack.parameters()])
        for y, z, stack in ((out, mine, rounded), (expected, theirs, exact))
    )
    precision.near(found, wanted, UNITS_OF_GRADIENTS)


def through(stack: Any, x: Tensor) -> Tensor:
    for join, sublayer in zip(stack[:SUBLAYERS], stack[SUBLAYERS:], strict=True):
        x = join(x, sublayer)
    return x


# ---- depths


@of("architecture", "depth")
def test_depths(card: Card, variant: int, precision: Precision) -> None:
    """A small model of this depth; a tolerance below the rounding is refused."""
    with EXACT.here():
        exact = deep(card, variant).double().eval()
    with precision.here():
        model = deep(card, variant).to(precision.dtype).eval()
    others = (*exact.named_parameters(), *exact.named_buffers())
    assert not [name for name, x in others if x.is_floating_point() and x.dtype != torch.float64]
    equal(model, exact)
    tokens = torch.randint(11, (2, 7))
    if variants(card)[variant].get("tolerance", 1) < torch.finfo(precision.dtype).eps:
        with precision.here(), pytest.raises(NoFixedPointError, match="the relative residual is"):
            model(tokens)
        return
    padding = torch.arange(7) < torch.tensor([[7], [5]])
    parameters, theirs = ([p for p in m.parameters() if p.requires_grad] for m in (model, exact))
    for given in (None, padding):
        real = slice(None) if given is None else given
        expected = exact(tokens, padding=given)[real]
        with precision.here():
            out = model(tokens, padding=given)[real]
        assert out.dtype in precision.dtypes(out)
        precision.near([out], [expected], UNITS)
        found, wanted = gradients(out, parameters), gradients(expected, theirs)
        precision.near(found, wanted, UNITS_OF_GRADIENTS)
    model.train()
    with precision.here():
        out = model(tokens, padding=padding)[padding]
        found = gradients(model(tokens, padding=padding)[padding], parameters)
    assert finite((*found, *gradients(out, parameters)))


def deep(card: Card, variant: int) -> TinyTransformer:
    torch.manual_seed(2)
    join = "pre_norm" if catalog.goes_with("pre_norm", card.name) else "sub_ln"
    sizes = {"dim": DIM, "heads": 2, "layers": 3, "max_len": 9}
    own = dict(variants(card)[variant])
    answers: Any = {"kind": "token_classifier", "classes": 5}
    return TinyTransformer(11, **sizes, **answers, join=join, depth=card.name, depth_options=own)


# ---- objectives


@of("objectives", "objective")
def test_objectives(card: Card, variant: int, precision: Precision) -> None:
    """The loss of a table of logits, and its gradients: of every form."""
    given = variants(card)[variant]
    net = objectives.model(card, **given)
    exact = objectives.built(card, net, **given)
    mine = copy.deepcopy(net).to(precision.dtype)
    objective = copy.deepcopy(exact).to(precision.dtype)
    equal(mine, net)
    equal(objective, exact)
    expected, count = exact(net, objectives.text(card), objectives.draws())
    wanted = gradients(expected, [net.table])
    for loss, scored in losses(card, objective, mine, given, precision):
        assert scored == count
        assert loss.dtype in (torch.float32, torch.float64)
        precision.near([loss], [expected], UNITS)
        precision.near(gradients(loss, [mine.table]), wanted, UNITS_OF_GRADIENTS)
    batch: Any = objective.prepare(objectives.text(card), objectives.draws())
    with precision.here():
        assert 0 <= int(objective.right(objective.answers(mine, batch), batch)) <= count


def losses(
    card: Card, objective: Any, net: nn.Module, given: Mapping[str, Any], precision: Precision
) -> Iterator[tuple[Tensor, int]]:
    for form in card.forms.values():
        own = {"vocab": objectives.VOCAB, "objective": objective, **given}
        with precision.here():
            yield form(net, objectives.text(card), objectives.draws(), **card.arguments(form, own))
    with precision.here():
        yield objective(net, objectives.text(card), objectives.draws())


# ---- compressions


@of("compression", "compress")
def test_compressions(card: Card, variant: int, precision: Precision) -> None:
    """The same weights are left, whatever they are stored in."""
    given = variants(card)[variant]
    W = torch.randn(13, 7).to(precision.dtype)
    expected = card.forms["naive"](leaf(W), **card.arguments(card.forms["naive"], given))
    for form in card.forms.values():
        with precision.here():
            out = form(leaf(W, precision), **card.arguments(form, given))
        assert out.dtype == precision.dtype
        precision.near([out], [expected], UNITS)
    module, x = compression.network().to(precision.dtype), torch.randn(5, compression.DIM)
    with precision.here():
        made = compression.compressed(card, variant, module)
        out = made(leaf(x, precision))
    assert out.dtype in precision.dtypes(out)
    assert finite(gradients(out, [p for p in made.parameters() if p.requires_grad]))
