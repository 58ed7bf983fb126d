"""Claims of compressions, each asked of every page of the role."""

from typing import Any

import pytest
import sympy
import torch
from torch import nn

from attnlab import catalog
from attnlab.compression.matrices import mask_on
from attnlab.core.card import Card, letters
from attnlab.core.claims import Compression
from attnlab.testing.mechanisms import Cases, gradients, named, variants

DIM, WIDE = 24, 40


def cases(of: Any) -> Cases:
    every = [card for card in catalog.shelf("compression") if card.role == "compress"]
    return Cases(lambda card: of(card) if card.role == "compress" else [], every)


EACH = cases(lambda card: [named(card)])
ALL = cases(lambda card: [named(card, i) for i in range(len(variants(card)))])
FAST = cases(lambda card: [named(card, form) for form in list(card.forms)[1:]])


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(DIM, WIDE), nn.Tanh(), nn.Linear(WIDE, DIM))


def compressed(card: Card, variant: int, module: nn.Module) -> nn.Module:
    made: nn.Module = catalog.build(card.name, **variants(card)[variant])(module)
    return made


def sizes_of(card: Card, variant: int) -> dict[sympy.Symbol, float]:
    """N, f, S and the letters of options → their values."""
    made: Any = catalog.build(card.name, **variants(card)[variant])
    options = {**vars(made), **vars(getattr(made, "options", None) or object)}
    own = {letters(letter)[0]: float(options[name]) for letter, name in card.letters.items()}
    scales = DIM + WIDE if options.get("per") == "channel" else 2
    sizes = {"N": 2 * DIM * WIDE, "f": WIDE, "S": scales}
    return {letters(name)[0]: float(size) for name, size in sizes.items()} | own


@pytest.mark.parametrize(("card", "form"), FAST)
def test_each_form_of_a_compression_equals_naive(card: Card, form: str) -> None:
    torch.manual_seed(3)
    W = torch.randn(13, 7, dtype=torch.float64, requires_grad=True)
    for variant in variants(card):
        found = []
        for each in ("naive", form):
            out = card.forms[each](W, **card.arguments(card.forms[each], variant))
            found.append((out, *gradients(out, [W])))
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_a_compressed_module_is_called_as_before(card: Card, variant: int) -> None:
    module, x = network().eval(), torch.randn(5, DIM)
    before = {name: p.clone() for name, p in module.state_dict().items()}
    made = compressed(card, variant, module)
    assert made(x).shape == module(x).shape
    assert not made.training
    assert all(torch.equal(p, before[name]) for name, p in module.state_dict().items())


@pytest.mark.parametrize("card", EACH)
def test_keeping_all_is_the_identity(card: Card) -> None:
    """The last variant of a card keeps every weight, or every bit."""
    module, x = network(), torch.randn(5, DIM)
    assert torch.equal(compressed(card, len(card.variants), module)(x), module(x))


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_the_error_of_the_weights_is_below_its_bound(card: Card, variant: int) -> None:
    claims, module = card.claims, network()
    assert isinstance(claims, Compression)
    made: Any = compressed(card, variant, module)
    bound = float(claims.error.subs(sizes_of(card, variant)))
    both = [
        (layer.weight, smaller.weight)
        for layer, smaller in zip(module.children(), made, strict=True)
        if isinstance(layer, nn.Linear)
    ]
    error = sum(float((W - V).detach().square().sum()) for W, V in both)
    assert error <= (bound + 1e-6) * sum(float(W.detach().square().sum()) for W, _ in both)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_a_compressed_module_takes_the_claimed_bytes(card: Card, variant: int) -> None:
    claims, module = card.claims, network()
    assert isinstance(claims, Compression)
    if variant == len(card.variants):
        pytest.skip("where nothing is cut, nothing beside the weights is stored")
    compress: Any = catalog.build(card.name, **variants(card)[variant])
    claimed = float(claims.bytes.subs(sizes_of(card, variant)))
    assert compress.bytes(compress(module)) == pytest.approx(claimed, abs=8)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_a_compressed_module_trains_on_and_stays_compressed(card: Card, variant: int) -> None:
    made: Any = compressed(card, variant, network())
    masks = {layer: mask_on(layer) for layer in made}
    x = torch.randn(64, DIM)
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-2, weight_decay=0.1)
    losses = []
    for _ in range(5):
        loss = (made(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for layer, mask in masks.items():
        assert mask is None or (layer.weight[~mask.mask] == 0).all()


@pytest.mark.parametrize("card", EACH)
def test_what_cannot_be_compressed_is_refused(card: Card) -> None:
    with pytest.raises(ValueError, match="has no linear layer"):
        compressed(card, 0, nn.Tanh())
    broken: Any = network()
    broken[0].weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        compressed(card, 0, broken)
