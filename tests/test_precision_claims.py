"""Claims of precision, for every form and layer of a mechanism or position scheme.

Under autocast, in half precisions and under either default dtype they run, forward and backward.
An output has the dtype of the inputs; under autocast, where PyTorch's operators choose between that
and bfloat16, one of the two. It is that of ``naive`` in float64, for the same inputs and weights,
up to a few units of rounding, relative to its largest number.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from attnlab.core.card import Card
from attnlab.core.positions import DistanceBias
from attnlab.core.precision import wide_dtype
from attnlab.core.probe import Notes, record
from tests import scheme_inputs, test_position_claims
from tests.scheme_inputs import NOT_MIXING, drawn, form_inputs, form_options, layer_inputs
from tests.test_claims import (
    CARDS,
    COMPLEX,
    SIZES,
    call,
    causalities,
    exactly,
    gradients,
    inputs,
    masks,
    module,
    module_forms,
    variants,
)

UNITS = 16
"""Of rounding: a sum of some ten products, each of two rounded numbers, and a softmax of it."""
UNITS_OF_GRADIENTS = 128
"""Gradients repeat the rounding of the forward pass, and lose what cancels in a softmax's."""
DIM = 36
"""Six heads of width 6: where two numbers are normalised, rounding turns one sign into another."""


class Precision(NamedTuple):
    """What is computed in: the dtype of inputs and weights, PyTorch's default, and autocast."""

    name: str
    dtype: torch.dtype
    default: torch.dtype = torch.float32
    autocast: bool = False

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.default)
        try:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                yield
        finally:
            torch.set_default_dtype(before)

    def dtypes(self, out: Tensor) -> set[torch.dtype]:
        """Those that an output may have."""
        if out.is_complex():
            return {COMPLEX[self.dtype]}
        return {self.dtype, torch.bfloat16} if self.autocast else {self.dtype}

    def near(self, found: Sequence[Tensor], exact: Sequence[Tensor], units: int) -> None:
        """Assert that all are finite, and near to the exact ones, relative to their largest."""
        eps = torch.finfo(torch.bfloat16 if self.autocast else self.dtype).eps
        largest = max((x.abs().max().item() for x in exact if x.numel()), default=0.0)
        for one, other in zip(found, exact, strict=True):
            torch.testing.assert_close(exactly(one), other, rtol=0, atol=units * eps * largest)


PRECISIONS = [
    Precision("autocast", torch.float32, autocast=True),
    Precision("float16", torch.float16),
    Precision("bfloat16", torch.bfloat16),
    Precision("float64 under float32", torch.float64),
    Precision("float32 under float64", torch.float32, default=torch.float64),
]
EXACT = Precision("exact", torch.float64, default=torch.float64)


def of(cards: list[Card]) -> pytest.MarkDecorator:
    each = [pytest.param(c, p, id=f"{c.name}-{p.name}") for c in cards for p in PRECISIONS]
    return pytest.mark.parametrize(("card", "precision"), each)


def leaf(x: Any, precision: Precision = EXACT) -> Any:
    """In that precision, to be differentiated; whole numbers and structures as they are."""
    if not isinstance(x, Tensor) or not (x.is_floating_point() or x.is_complex()):
        return x
    kinds = COMPLEX | {torch.float64: torch.complex128}
    dtype = kinds[precision.dtype] if x.is_complex() else precision.dtype
    return x.detach().to(dtype).requires_grad_()


# ---- mechanisms


@of(CARDS)
def test_forms(card: Card, precision: Precision) -> None:
    for variant in range(len(variants(card))):
        ways = list(masks(card.forms["naive"], SIZES[0]))
        for mask in (ways[0], ways[-1]) if variant == 0 else (ways[variant % len(ways)],):
            made = [leaf(x / 2) for x in inputs(card.forms["naive"], SIZES[0], precision.dtype)]
            expected = call(card, "naive", variant, made, mask)
            exact = gradients(expected, made)
            for form in card.forms:
                mine = [leaf(x, precision) for x in made]
                with precision.here():
                    out = call(card, form, variant, mine, mask)
                assert out.dtype in precision.dtypes(out), form
                precision.near([out], [expected], UNITS)
                precision.near(gradients(out, mine), exact, UNITS_OF_GRADIENTS)


@of(CARDS)
def test_layers(card: Card, precision: Precision) -> None:
    for variant in range(len(variants(card)) if precision in PRECISIONS[::2] else 1):
        for causal in causalities(card) if variant == 0 else causalities(card)[-1:]:
            exact = exact_layer(card, variant, causal)
            for form in module_forms(card) if variant == 0 else [{}]:
                with precision.here():
                    layer = module(card, variant, causal, dim=DIM, **form).to(precision.dtype)
                check_layer(layer, exact, precision, variant)


def exact_layer(card: Card, variant: int, causal: bool) -> nn.Module:
    """In float64, its weights moved a little from where they start, which may be an edge."""
    form = {"form": "naive"} if "form" in card.option_names() else {}
    with EXACT.here():
        exact = module(card, variant, causal, dim=DIM, **form)
    for parameter in exact.parameters():
        parameter.data *= 1 + torch.randn_like(parameter) / 20
    return exact


def check_layer(layer: nn.Module, exact: nn.Module, precision: Precision, variant: int) -> None:
    layer.load_state_dict(exact.state_dict())
    exact.load_state_dict(layer.state_dict())  # as rounded
    if hasattr(layer, "found"):  # an example of a structure
        exact.found = layer.found
    x = torch.randn(2, 7, DIM).to(precision.dtype)
    mine, theirs = leaf(x, precision), leaf(x)
    padding = torch.arange(7) < torch.tensor([[7], [5]]) if variant % 2 else None
    with record() as notes:
        expected = exact(theirs, padding)
    with precision.here(), record() as mine_notes:
        out = layer(mine, padding)
    assert out.dtype in precision.dtypes(out)
    real = slice(None) if padding is None else padding
    found = gradients(out[real], [mine, *layer.parameters()])
    if same_choices(notes, mine_notes):
        precision.near([out[real]], [expected[real]], UNITS)
        wanted = gradients(expected[real], [theirs, *exact.parameters()])
        precision.near(found, wanted, UNITS_OF_GRADIENTS)
    assert all(torch.isfinite(each).all() for each in (out[real], *found))
    if variant == 0:
        trains(layer, mine, precision)


def same_choices(one: Notes, other: Notes) -> bool:
    """Whether hashes, clusters and neighbours are the same: rounded queries may choose others."""
    mine, theirs = (
        {name: x for name, x in notes if isinstance(x, Tensor) and not x.is_floating_point()}
        for notes in (one, other)
    )
    return all(torch.equal(mine[name], theirs[name]) for name in mine.keys() & theirs.keys())


def trains(layer: nn.Module, x: Tensor, precision: Precision) -> None:
    """In training mode, with gradients taken where autocast has ended and where it has not."""
    layer.train()
    with precision.here():
        out = layer(x)
        found = gradients(layer(x), [x, *layer.parameters()])
    for each in (*found, *gradients(out, [x, *layer.parameters()])):
        assert torch.isfinite(each).all()


@of([card for card in CARDS if card.causal != "never"])
def test_steps(card: Card, precision: Precision) -> None:
    """Decoding gives what the layer gives at once, in the same dtype."""
    exact = exact_layer(card, 0, True)
    with precision.here():
        layer = module(card, 0, True, dim=DIM).to(precision.dtype)
    if not hasattr(layer, "step"):
        pytest.skip(f"{card.name} has no incremental path")
    layer.load_state_dict(exact.state_dict())
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(2, 7, DIM).to(precision.dtype)
    with precision.here(), torch.no_grad():
        first, state = layer.step(x[:, :4])
        second, _ = layer.step(x[:, 4:], state)
    assert {first.dtype, second.dtype} <= precision.dtypes(first)
    precision.near([torch.cat([first, second], 1)], [exact(exactly(x))], UNITS)


