"""Claims of precision, for every form and layer of a mechanism or position scheme.

Under autocast, in half precisions and under either default dtype they run, forward and backward.
An output has the dtype of the inputs; under autocast, where PyTorch's operators choose between that
and bfloat16, one of the two. It is that of ``naive`` in float64, for the same inputs and weights,
up to a few units of rounding, relative to its largest number.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.core.card import Card
from attnlab.core.precision import HALVES, upcast_dtype
from attnlab.core.probe import Notes, record
from tests import scheme_inputs, test_position_claims
from tests.scheme_inputs import NOT_MIXING, form_inputs, form_options, layer_inputs
from tests.test_claims import (
    CARDS,
    COMPLEX,
    SIZES,
    Sizes,
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
OFTEN = 4
"""Times as many where every step rounds: half precisions are rounded before and after alone."""
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

    @property
    def rounds(self) -> bool:
        """Whether queries, keys and values are in half precision."""
        return self.autocast or self.dtype in HALVES

    def dtypes(self, out: Tensor) -> set[torch.dtype]:
        """Those that an output may have."""
        if out.is_complex():
            return {COMPLEX[self.dtype]}
        return {self.dtype, torch.bfloat16} if self.autocast else {self.dtype}

    def near(
        self, found: Sequence[Tensor], exact: Sequence[Tensor], units: int, *, own: bool = False
    ) -> None:
        """Assert that all are finite, and near to the exact ones, relative to their largest.

        ``own``: in units of the dtype that each has.
        """
        largest = max((x.abs().max().item() for x in exact if x.numel()), default=0.0)
        for one, other in zip(found, exact, strict=True):
            dtype = one.dtype if own else torch.bfloat16 if self.autocast else self.dtype
            eps = torch.finfo(dtype).eps * (1 if dtype in HALVES else OFTEN)
            torch.testing.assert_close(exactly(one), other, rtol=0, atol=units * eps * largest)


PRECISIONS = [
    Precision("autocast", torch.float32, autocast=True),
    Precision("float16", torch.float16),
    Precision("bfloat16", torch.bfloat16),
    Precision("float64 under float32", torch.float64),
    Precision("float32 under float64", torch.float32, default=torch.float64),
]
FAR = 1000  # a distance that bfloat16 rounds
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


def equal(layer: nn.Module, exact: nn.Module) -> None:
    """Give both the weights of ``exact``, rounded to the dtype of ``layer``."""
    layer.load_state_dict(exact.state_dict())
    exact.load_state_dict(layer.state_dict())


# ---- mechanisms


def chosen_variants(card: Card, precision: Precision) -> range:
    """The default options; the others in one precision of each kind."""
    return range(len(variants(card)) if precision in PRECISIONS[::2] else 1)


@of(CARDS)
def test_forms(card: Card, precision: Precision) -> None:
    for variant in chosen_variants(card, precision):
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


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_autocast_changes_no_choice(card: Card) -> None:
    """Hashes, clusters and neighbours are those of queries and keys that are not rounded."""
    made = inputs(card.forms["naive"], Sizes(SIZES[0] | {"n": 61, "m": 61, "N": 61}), torch.float32)
    for form in card.forms:
        with record() as exact:
            call(card, form, 0, made)
        with PRECISIONS[0].here(), record() as notes:
            call(card, form, 0, made)
        assert same_choices(exact, notes)


@of(CARDS)
def test_layers(card: Card, precision: Precision) -> None:
    for variant in chosen_variants(card, precision):
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
    equal(layer, exact)
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
    smooth = variant == 0 or not precision.rounds  # some variants jump, as features with a ReLU do
    if smooth and same_choices(notes, mine_notes):
        precision.near([out[real]], [expected[real]], UNITS)
        wanted = gradients(expected[real], [theirs, *exact.parameters()])
        precision.near(found, wanted, UNITS_OF_GRADIENTS)
    assert all(torch.isfinite(each).all() for each in (out[real], *found))
    if variant == 0 and precision.rounds:
        trains(layer, mine, precision)


def same_choices(one: Notes, other: Notes) -> bool:
    """Whether hashes, clusters and neighbours are the same: rounded queries may choose others.

    How many weights are above zero is no choice, but a result.
    """
    mine, theirs = (
        {name: x for name, x in notes if isinstance(x, Tensor) and not x.is_floating_point()}
        for notes in (one, other)
    )
    shared = mine.keys() & theirs.keys() - {"support"}
    return all(torch.equal(mine[name], theirs[name]) for name in shared)


def trains(layer: nn.Module, x: Tensor, precision: Precision) -> None:
    """In training mode, with gradients taken where autocast has ended and where it has not."""
    layer.train()
    with precision.here():
        out = layer(x)
        found = gradients(layer(x), [x, *layer.parameters()])
    for each in (*found, *gradients(out, [x, *layer.parameters()])):
        assert torch.isfinite(each).all()


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_weights_are_read_under_autocast(card: Card) -> None:
    """Those that no kernel formed are computed from the recorded queries and keys."""
    layer = module(card, 0, dim=DIM).float()
    with PRECISIONS[0].here(), attnlab.watch(layer) as seen:
        layer(torch.randn(2, 7, DIM))
        for each in seen:
            try:
                assert torch.isfinite(each.weights).all()
            except ValueError as error:
                if "noted no weights" not in str(error):
                    raise


@pytest.mark.parametrize("card", [*CARDS, *NOT_MIXING], ids=lambda card: card.name)
def test_built_in_the_default_dtype(card: Card) -> None:
    with EXACT.here():
        layer = scheme_inputs.build(card, DIM, 6, {})
    others = (*layer.named_parameters(), *layer.named_buffers())
    assert not [name for name, x in others if x.is_floating_point() and x.dtype != torch.float64]


@of([card for card in CARDS if card.causal != "never"])
def test_steps(card: Card, precision: Precision) -> None:
    """Decoding gives what the layer gives at once, in the same dtype."""
    exact = exact_layer(card, 0, True)
    with precision.here():
        layer = module(card, 0, True, dim=DIM).to(precision.dtype)
    if not hasattr(layer, "step"):
        pytest.skip(f"{card.name} has no incremental path")
    equal(layer, exact)
    x = torch.randn(2, 7, DIM).to(precision.dtype)
    with precision.here(), torch.no_grad():
        first, state = layer.step(x[:, :4])
        second, _ = layer.step(x[:, 4:], state)
    assert {first.dtype, second.dtype} <= precision.dtypes(first)
    precision.near([torch.cat([first, second], 1)], [exact(exactly(x))], UNITS)


# ---- position schemes


@of(NOT_MIXING)
def test_schemes(card: Card, precision: Precision) -> None:
    for given in variants(card):
        options = form_options(card, "naive", given)
        naive = functools.partial(card.forms["naive"], **options)
        for form, function in card.forms.items():
            made = form_inputs(card, form, given, precision.dtype)
            check_scheme(card, functools.partial(function, **options), naive, made, precision)
        with EXACT.here():
            exact = scheme_inputs.build(card, 24, 12, given).double().eval()
        with precision.here():
            layer = scheme_inputs.build(card, 24, 12, given).to(precision.dtype).eval()
        equal(layer, exact)
        made = layer_inputs(layer, 24, 12, precision.dtype)
        check_scheme(card, layer, exact, made, precision)


def check_scheme(
    card: Card, function: Callable[..., Any], exact: Callable[..., Any], made: Mapping[str, Any],
    precision: Precision,
) -> None:  # fmt: skip
    """Outputs and gradients of both. Queries stand far after their keys, where biases are large:
    these may be float32, and are where no parameter is in half precision."""
    far = {name: x + FAR if name == "i" else x for name, x in made.items()}
    mine, theirs = ({name: leaf(x, p) for name, x in far.items()} for p in (precision, EXACT))
    with precision.here():
        found = floats(function(**mine))
    of_mine, of_exact = (
        [*floats([*x.values()]), *(f.parameters() if isinstance(f, nn.Module) else [])]
        for f, x in ((function, mine), (exact, theirs))
    )
    expected, is_bias = floats(exact(**theirs)), card.role == "bias"
    is_fixed = is_bias and isinstance(function, nn.Module) and not of_mine
    for x in found:
        allowed = {upcast_dtype(x)} if is_fixed else precision.dtypes(x)
        assert x.dtype in allowed or (is_bias and x.dtype == torch.float32)
    precision.near(found, expected, UNITS, own=is_bias)
    for one, other in zip(found, expected, strict=True):
        if other.requires_grad:
            wanted = gradients(other, of_exact)
            precision.near(gradients(one, of_mine), wanted, UNITS_OF_GRADIENTS)


def floats(found: Any) -> list[Tensor]:
    """The tensors of real or complex numbers among one or several things."""
    each = found if isinstance(found, tuple | list) else [found]
    return [x for x in each if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())]


# ---- models


@of(test_position_claims.SCHEMES)
def test_models(card: Card, precision: Precision) -> None:
    """A small model with each scheme: its scores, their gradients, and decoding."""
    with EXACT.here():
        exact = test_position_claims.model(card, {})
    with precision.here():
        model = test_position_claims.model(card, {}).to(precision.dtype)
    equal(model, exact)
    tokens = torch.randint(test_position_claims.VOCAB, (2, 9))
    expected = exact(tokens)
    with precision.here():
        found = model(tokens)
        last, _ = model.step(tokens[:, 8:], model.step(tokens[:, :8])[1])
    precision.near([found, last], [expected, expected[:, -1]], UNITS)
    of_both = (gradients(x, [*m.parameters()]) for x, m in ((found, model), (expected, exact)))
    precision.near(*of_both, UNITS_OF_GRADIENTS)
