"""Claims are tests: what the cards say is proved for every mechanism on the shelf, once for all.

Inputs are made from the forms' own signatures (their jaxtyping letters), with a different prime
for every letter that is free, so that two axes are never mixed up unnoticed. Every claim is asked
under the default options and under each of the card's variants. A mechanism added to the shelf is
tested here without a line being written, one of somebody else by ``attnlab.testing.claims``.
"""

import ast
import contextlib
import copy
import functools
import inspect
import itertools
import os
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attnlab import catalog
from attnlab.core import patterns
from attnlab.core.card import Card, letters
from attnlab.core.options import Options, annotations_of, parameters_of
from attnlab.core.patterns import Pattern
from attnlab.core.probe import record
from attnlab.core.shapes import Contract, letters_of, regrouped
from attnlab.core.sparse.attention import PatternOptions
from attnlab.core.sparse.layout import ROWS
from attnlab.core.story import Story
from attnlab.core.tracing import as_on_an_accelerator
from attnlab.measure.count import count_uncompiled, exponent
from attnlab.measure.gpu_command import LSTM

CARDS = [card for card in catalog.shelf() if card.mixes]
DIM, HEADS = 12, 6  # kv_heads = 1, 2, 3 all divide
LIBRARY = str(Path(catalog.__file__).parent)
DTYPES = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}
COMPLEX = {
    torch.float64: torch.complex128,
    torch.float32: torch.complex64,
    torch.bfloat16: torch.complex64,  # PyTorch has no complex numbers of half precisions
    torch.float16: torch.complex64,
}
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43)


class Sizes(dict[str, int]):
    """A size for every letter: as given, or the next unused prime."""

    def __missing__(self, letter: str) -> int:
        if letter.isdigit():
            return int(letter)
        self[letter] = next(p for p in PRIMES if p not in self.values())
        return self[letter]

    def copy(self) -> "Sizes":
        return Sizes(self)


# The group letter g must divide h; all other letters draw primes of their own.
SIZES = [
    Sizes(b=2, h=6, g=3, n=7, m=7, d=5, e=11),
    Sizes(b=2, h=3, g=1, n=5, m=17, d=7, e=11),
    Sizes(b=1, h=2, g=2, n=1, m=1, d=3, e=5),
]


def variants(card: Card) -> tuple[Mapping[str, Any], ...]:
    """The default options first."""
    return ({}, *card.variants)


def named(card: Card, *rest: Any) -> Any:
    return pytest.param(card, *rest, id="-".join([card.name, *(str(r) for r in rest)]))


class Cases(list[Any]):
    """What a claim is asked for: ``of`` one card, and in the list of every card there is, by
    default of those that mix."""

    def __init__(
        self, of: Callable[[Card], list[Any]], cards: Iterable[Card] | None = None
    ) -> None:
        super().__init__(case for card in (CARDS if cards is None else cards) for case in of(card))
        self.of = of


def forms_here(card: Card) -> list[str]:
    """The forms that a CPU computes; those in Triton among them in a process of its interpreter."""
    if "triton" in card.kernels and os.environ.get("TRITON_INTERPRET") == "1":
        return [*card.forms, "triton"]
    return list(card.forms)


def taken_by(card: Card, form: str) -> list[int]:
    """The variants under which a form is tried; a kernel without options under the default."""
    alike = form in card.kernels and "options" not in parameters_of(card.kernels[form])
    return [0] if alike else list(range(len(variants(card))))


EACH = Cases(lambda card: [named(card)])
ALL = Cases(lambda card: [named(card, i) for i in range(len(variants(card)))])
FAST = Cases(
    lambda card: [
        named(card, form, i) for form in forms_here(card)[1:] for i in taken_by(card, form)
    ]
)
FORMS = Cases(lambda card: [named(card, form) for form in forms_here(card)])
CAUSAL = Cases(lambda card: ALL.of(card) if card.causal != "never" else [])


def chosen(card: Card, variant: int) -> Options:
    """The variant's options of the mechanism."""
    own = annotations_of(card.options)
    return card.options(**{k: v for k, v in variants(card)[variant].items() if k in own})


def call(
    card: Card, form: str, variant: int, made: list[Tensor], mask: Mapping[str, Any] | None = None
) -> Tensor:
    """A form under a variant; the pattern of a mechanism that is one goes into its mask."""
    function, given = card.every_form[form], dict(mask or {})
    given |= {name: x.to(made[0].dtype) for name, x in given.items() if name == "bias"}
    options = chosen(card, variant)
    if "structure" in parameters_of(function):
        axes = next(iter(letters_of(function).values()))[0].axes
        b, n = (made[0].shape[axes.index(letter)] for letter in "bn")
        given |= extra_inputs(card, made[0].new_ones(b, n, dtype=torch.bool))
    if isinstance(options, PatternOptions) and "mask" in parameters_of(function):
        pattern = options.pattern(heads=made[0].shape[1])
        given["mask"] = patterns.both(pattern, given.get("mask", patterns.full()))
    tensors = regrouped(function, dict(zip(required(function), made, strict=True)))
    out: Tensor = function(
        *tensors.values(), **card.arguments(function, variants(card)[variant]), **given
    )
    return out


def required(form: Callable[..., Any]) -> Mapping[str, tuple[Contract, ...]]:
    """The tensors that a form needs; those of a named tuple one by one."""
    parameters = inspect.signature(form).parameters
    return {
        name: contracts
        for name, contracts in letters_of(form).items()
        if parameters[name.split(".")[0]].default is inspect.Parameter.empty
    }


def extra_inputs(card: Card, real: Tensor, example: str = "example") -> dict[str, Any]:
    """What a form or layer is given beside sequences whose tokens are ``real`` (b, n): an example
    of its structure, if it is told one."""
    if card.structure is None:
        return {}
    return {"structure": getattr(card.structure, example)(real.cpu()).to(real.device)}


def inputs(form: Callable[..., Any], sizes: Sizes, dtype: torch.dtype) -> list[Tensor]:
    """Random tensors for the required tensor arguments of a form, made from its own letters."""
    sizes, made = sizes.copy(), []
    for contracts in required(form).values():
        axes = contracts[0].axes
        kind = COMPLEX[dtype] if contracts[0].kind == "Complex" else dtype
        wide = torch.complex128 if kind.is_complex else torch.float64
        drawn = torch.randn([sizes[letter] for letter in axes], dtype=wide)
        for letter in {letter for letter in axes if axes.count(letter) > 1}:
            drawn *= sizes[letter] ** -0.5  # a matrix from a width to itself: keeps sizes
        made.append(drawn.to(kind))
    assert made, "a form takes at least one tensor"
    return made


def exactly(x: Tensor) -> Tensor:
    """In float64, or in the complex numbers made of it."""
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def masks(form: Callable[..., Any], sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Keyword arguments that mask in every way a form accepts."""
    yield {}
    takes = parameters_of(form)
    b, h, n, m = (sizes[letter] for letter in "bhnm")
    if "padding" in takes:
        keys = sizes[letters_of(form)["padding"][0].axes[-1]]
        yield {"padding": torch.arange(keys) < torch.randint(1, keys + 1, (b, 1))}
        yield {"padding": torch.rand(b, keys) > 0.5}
    if "causal" in takes:
        yield {"causal": True}
    if "padding" in takes and "causal" in takes:
        yield {"causal": True, "padding": torch.rand(b, keys) > 0.5}
    if "mask" in takes:
        valid = torch.arange(m) < torch.randint(1, m + 1, (b, 1))
        yield {"mask": patterns.causal()}
        yield {"mask": patterns.causal() & patterns.padding(valid)}
        yield {"mask": ~patterns.full()}
    if "bias" in takes:
        yield {"bias": torch.randn(h, n + m - 1)}
        yield {"bias": torch.randn(h, n + m - 1), "mask": patterns.causal()}
        yield {"bias": torch.randn(b, h, n, m), "mask": patterns.causal()}
    if "mask" in letters_of(form):
        holes = torch.rand(b, h, n, m) > 0.4
        holes[0, 0, 0] = False  # a row without keys
        yield {"mask": holes}
        yield {"mask": holes[0, 0]}


def gradients(outputs: Tensor, made: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of a function of the output that treats every entry differently."""
    torch.manual_seed(1)
    outputs = torch.view_as_real(outputs) if outputs.is_complex() else outputs
    drawn = torch.randn(outputs.shape, dtype=torch.float64)
    direction = drawn.to(torch.bfloat16).to(outputs.dtype)  # the same in every precision
    total = (outputs * direction).sum()
    return torch.autograd.grad(total, made, materialize_grads=True)


def module(card: Card, variant: int, causal: bool | None = None, **more: Any) -> Any:
    torch.manual_seed(2)
    causal = card.causal == "always" if causal is None else causal
    given = {k: v for k, v in variants(card)[variant].items() if k in card.option_names()}
    sizes = {"dim": DIM, "heads": HEADS, "causal": causal}
    layer = catalog.build(card.name, **(sizes | given | more)).double().eval()
    return layer if card.structure is None else OnExample(layer, card)


class OnExample(nn.Module):
    """A layer that is told an example of its structure for whatever sequences it is given."""

    def __init__(self, layer: nn.Module, card: Card, example: str = "example") -> None:
        super().__init__()
        self.layer, self.card, self.found = layer, card, dict[Any, Any]()
        self.example = example
        for n in (7, 37):  # found before anything is compiled
            self._example(torch.ones(2, n, dtype=torch.bool))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Any:
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if padding is not None and padding.dtype == torch.bool and padding.shape == real.shape:
            return self.layer(x, padding, **extra_inputs(self.card, padding))
        return self.layer(x, padding, **self._example(real))

    def _example(self, real: Tensor) -> dict[str, Any]:
        key = (tuple(real.shape), str(real.device))
        if key not in self.found:
            cpu = torch.ones(real.shape, dtype=torch.bool)
            found = extra_inputs(self.card, cpu, self.example)
            self.found[key] = {name: each.to(real.device) for name, each in found.items()}
        return self.found[key]


def module_forms(card: Card) -> list[dict[str, Any]]:
    """One set of options per form that the module can be built with."""
    return [{"form": form} for form in card.forms] if "form" in card.option_names() else [{}]


def the_accelerator() -> torch.device | None:
    """The GPU, where there is one."""
    there = torch.accelerator.is_available()
    return torch.accelerator.current_accelerator() if there else None


def causalities(card: Card) -> list[bool]:
    return {"never": [False], "optional": [False, True], "always": [True]}[card.causal]


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_every_option_of_a_variant_is_somebodys(card: Card, variant: int) -> None:
    taken = set(card.option_names()).union(*map(parameters_of, card.forms.values()))
    assert set(variants(card)[variant]) <= taken


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_a_form_ignores_no_argument(card: Card, form: str) -> None:
    """Every parameter is read in the body: an option that does not act is not taken."""
    function = inspect.unwrap(card.every_form[form])
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    nodes = (node for statement in definition.body for node in ast.walk(statement))
    read = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert not set(inspect.signature(function).parameters) - read


@pytest.mark.parametrize("sizes", SIZES, ids=["self", "cached", "one"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize(("card", "form", "variant"), FAST)
def test_form_equals_naive(
    card: Card, form: str, variant: int, dtype: torch.dtype, sizes: Sizes
) -> None:
    for mask, exact, expected, wanted in _equations(card, variant, SIZES.index(sizes)):
        made = [x.to(COMPLEX[dtype] if x.is_complex() else dtype).requires_grad_() for x in exact]
        out = call(card, form, variant, made, mask)
        assert out.dtype == (COMPLEX[dtype] if out.is_complex() else dtype)
        tolerance = DTYPES[dtype] * max(1.0, expected.abs().max().item())
        torch.testing.assert_close(exactly(out), expected, rtol=DTYPES[dtype], atol=tolerance)
        for mine, theirs in zip(gradients(out, made), wanted, strict=True):
            tolerance = DTYPES[dtype] * max(1.0, theirs.abs().max().item())
            torch.testing.assert_close(exactly(mine), theirs, rtol=DTYPES[dtype], atol=tolerance)


class _Equation(NamedTuple):
    """What the equation gives, of numbers that every precision holds."""

    mask: dict[str, Any]
    made: list[Tensor]
    expected: Tensor
    gradients: tuple[Tensor, ...]


@functools.lru_cache(maxsize=128)  # the variants of a card at all sizes, for each of its forms
def _equations(card: Card, variant: int, at: int) -> list[_Equation]:
    """By ``naive``, under every mask, once for all forms and precisions that are compared."""
    form, found = card.forms["naive"], list[_Equation]()
    torch.manual_seed(0)
    for mask in masks(form, SIZES[at]):
        made = inputs(form, SIZES[at], torch.bfloat16)
        exact = [exactly(x).requires_grad_() for x in made]
        expected = call(card, "naive", variant, exact, mask)
        grads = gradients(expected, exact)
        found.append(_Equation(mask, [x.detach() for x in exact], expected.detach(), grads))
    return found


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_half_precision_does_not_overflow(card: Card, form: str) -> None:
    """Scores beyond 65,504, the largest number of float16, are computed in float32."""
    drawn = inputs(card.every_form[form], SIZES[0], torch.float16)
    named_inputs = zip(drawn, letters_of(card.every_form[form]), strict=False)
    made = [x * 200 if i < 2 and name != "v" else x for i, (x, name) in enumerate(named_inputs)]
    for variant in range(len(variants(card))):
        out = call(card, form, variant, made)
        if not torch.isfinite(out).all():  # where products are not normalised, the result itself
            exact = call(card, form, variant, [exactly(x) for x in made])
            held = exact.abs() < torch.finfo(out.dtype).max
            assert torch.isfinite(out[held]).all()
            assert held.any()


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_row_with_nothing_to_see_is_zero(card: Card, form: str) -> None:
    function, sizes = card.every_form[form], SIZES[0]
    if "mask" not in parameters_of(function):
        pytest.skip(f"{card.name} takes no mask")
    for variant in range(len(variants(card))):
        made = [x.requires_grad_() for x in inputs(function, sizes, torch.float64)]
        mask = ~patterns.places([3], of="row")
        with record() as notes:
            out = call(card, form, variant, made, {"mask": mask})
        assert (out[..., 3, :] == 0).all()
        assert (out[..., 4, :] != 0).any()
        assert all(torch.isfinite(g).all() for g in gradients(out, made))
        for weights in [value for name, value in notes if name == "weights"]:
            assert (weights[..., 3, :] == 0).all()
            nothing = weights[..., :0]
            beside = notes.last("sink", nothing)  # what goes to no key
            taken = notes.last("subtracted", nothing)  # by a second softmax
            sums = weights.sum(-1) + beside.sum(-1) + taken.sum(-1)
            torch.testing.assert_close(sums, (sums > 0.5).double())


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_sequence_of_padding_alone_is_zero(card: Card, form: str) -> None:
    function, sizes = card.every_form[form], SIZES[0]
    takes = parameters_of(function)
    if not {"padding", "mask"} & set(takes):
        pytest.skip(f"{card.name} takes no padding")
    made = [x.requires_grad_() for x in inputs(function, sizes, torch.float64)]
    padding = torch.ones(sizes["b"], sizes["m"], dtype=torch.bool)
    padding[1] = False
    mask = {"padding": padding} if "padding" in takes else {"mask": patterns.padding(padding)}
    out = call(card, form, 0, made, mask)
    assert (out[1] == 0).all()
    assert (out[0] != 0).any()
    assert all(torch.isfinite(g).all() for g in gradients(out, made))


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_promised_notes_fire_and_nothing_is_left(card: Card, form: str) -> None:
    made = inputs(card.every_form[form], SIZES[0], torch.float64)
    with record() as notes:
        looked_at = call(card, form, 0, made)
    assert set(card.notes.get(form, ())) == set(notes.names())
    assert torch.equal(looked_at, call(card, form, 0, made))


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_module_keeps_nothing(card: Card, variant: int) -> None:
    layer = module(card, variant)
    before = {name: set(vars(part)) for name, part in layer.named_modules()}
    with record() as notes:
        layer(torch.randn(2, 7, DIM, dtype=torch.float64))
    assert len(notes)
    assert before == {name: set(vars(part)) for name, part in layer.named_modules()}


@pytest.mark.parametrize(("card", "variant"), CAUSAL)
def test_nothing_leaks_from_the_future(card: Card, variant: int) -> None:
    for form in module_forms(card):
        layer, fourier = module(card, variant, causal=True, **form), form == {"form": "fft"}
        x = torch.randn(2, 13, DIM, dtype=torch.float64, requires_grad=True)
        out = layer(x)
        for t in (1, 6, 12):
            other = x.detach().clone()
            other[:, t:] = torch.randn_like(other[:, t:]) * 10
            assert_same(layer(other)[:, :t], out[:, :t], fourier or card.family == "learned")
            (grad,) = torch.autograd.grad(out[:, t - 1].sum(), x, retain_graph=True)
            assert_same(grad[:, t:], torch.zeros_like(grad[:, t:]), fourier)
            sees_nothing = t == 1 and (out[:, 0] == 0).all()
            assert (grad[:, :t] != 0).any() or sees_nothing


def assert_same(found: Tensor, wanted: Tensor, rounded: bool) -> None:
    """Bit by bit; up to rounding where a Fourier transform rounds all positions together, and where
    tokens are grouped by their content: in another place some processors round otherwise."""
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12 if rounded else 0.0)


def depends_on_length(layer: nn.Module) -> bool:
    """Whether the first 7 of 11 tokens see each other otherwise than 7 tokens alone do."""
    pattern = getattr(layer, "pattern", None)
    if not isinstance(pattern, Pattern):
        return False
    return not torch.equal(pattern.dense(11)[..., :7, :7], pattern.dense(7))


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_padding_changes_nothing_for_real_tokens(card: Card, variant: int) -> None:
    for causal in causalities(card):
        for form in module_forms(card):
            layer = module(card, variant, causal=causal, **form)
            x = torch.randn(2, 11, DIM, dtype=torch.float64)
            lengths = (11, 7)
            padding = torch.arange(11) < torch.tensor(lengths)[:, None]
            out = layer(x, padding)
            noisy = torch.where(padding[..., None], x, torch.randn_like(x) * 10)
            noisy_out = layer(noisy, padding)
            for row, length in enumerate(lengths):
                torch.testing.assert_close(
                    noisy_out[row, :length], out[row, :length], rtol=1e-9, atol=1e-9
                )
                if not depends_on_length(layer):
                    alone = layer(x[row : row + 1, :length])[0]
                    torch.testing.assert_close(out[row, :length], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_nothing_in_padded_tokens_reaches_the_others(card: Card, variant: int) -> None:
    """Not even NaN, an infinity or what overflows, in values and in gradients: one sequence is
    whole, and each of the others is padded with one of these."""
    values = torch.tensor([0.0, torch.nan, torch.inf, -torch.inf, 1e300], dtype=torch.float64)
    padding = torch.arange(11) < torch.tensor([[11], [7], [7], [7], [7]])
    for form in module_forms(card):
        layer = module(card, variant, **form)
        x = torch.randn(5, 11, DIM, dtype=torch.float64)
        filled = torch.where(padding[..., None], x, values[:, None, None])
        clean = layer(x, padding)
        out = layer(filled, padding)
        for mine, wanted, real in zip(out, clean, padding, strict=True):
            torch.testing.assert_close(mine[real], wanted[real], rtol=1e-9, atol=1e-9)
        if parameters := list(layer.parameters()):
            for grad in torch.autograd.grad(out[padding].square().sum(), parameters):
                assert torch.isfinite(grad).all()


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_nothing_is_read_before_it_is_written(card: Card, variant: int) -> None:
    """Where new memory holds NaN, outputs and gradients are finite."""
    for form in module_forms(card):
        layer = module(card, variant, **form)
        x = torch.randn(2, 11, DIM, dtype=torch.float64, requires_grad=True)
        padding = torch.arange(11) < torch.tensor([[11], [7]])
        with _poisoned():
            assert torch.empty(3).isnan().all()
            out = layer(x, padding)[padding]
            grads = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
        assert all(torch.isfinite(each).all() for each in (out, *grads))


@contextlib.contextmanager
def _poisoned() -> Iterator[None]:
    """New memory holds NaN until it is written."""
    fill: Any = torch.utils.deterministic  # whose attributes are set by its own properties
    before = torch.are_deterministic_algorithms_enabled(), fill.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    fill.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        fill.fill_uninitialized_memory = before[1]


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_any_length_in_any_form(card: Card, variant: int) -> None:
    """Primes, powers of two, what no block divides, and one token alone."""
    for n in (1, 2, 3, 31, 64, 97):
        x = torch.randn(2, n, DIM, dtype=torch.float64)
        assert module(card, variant)(x).shape == x.shape
        sizes = Sizes(SIZES[0] | {"n": n, "m": n, "N": n})
        made = inputs(card.forms["naive"], sizes, torch.float64)
        outs = [call(card, form, variant, made) for form in card.forms]
        assert torch.isfinite(outs[0]).all()
        for out in outs[1:]:
            torch.testing.assert_close(out, outs[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_a_batch_of_no_sequences(card: Card, variant: int) -> None:
    for causal in causalities(card):
        for form in module_forms(card):
            layer = module(card, variant, causal, **form)
            x = torch.randn(0, 7, DIM, dtype=torch.float64)
            assert layer(x).shape == x.shape
            assert layer(x, torch.ones(0, 7, dtype=torch.bool)).shape == x.shape
            if causal and hasattr(layer, "step"):
                out, state = layer.step(x)
                assert layer.step(x[:, :1], state)[0].shape == (0, 1, DIM)
                assert out.shape == x.shape


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_module_is_the_same_by_any_form(card: Card, variant: int) -> None:
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    for causal in causalities(card):
        outs = [module(card, variant, causal, **form)(x) for form in module_forms(card)]
        for out in outs[1:]:
            torch.testing.assert_close(out, outs[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_batch_rows_do_not_talk(card: Card, variant: int) -> None:
    layer = module(card, variant)
    x = torch.randn(3, 7, DIM, dtype=torch.float64, requires_grad=True)
    out = layer(x)
    (grad,) = torch.autograd.grad(out[1].square().sum(), x)
    assert (grad[[0, 2]] == 0).all()
    assert (grad[1] != 0).any()
    torch.testing.assert_close(layer(x[1:2])[0], out[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), CAUSAL)
def test_step_by_step_equals_all_at_once(card: Card, variant: int) -> None:
    for form in module_forms(card):
        layer = module(card, variant, causal=True, **form)
        if not hasattr(layer, "step"):
            pytest.skip(f"{card.name} has no incremental path")
        x = torch.randn(2, 11, DIM, dtype=torch.float64)
        parts, state = [], None
        for piece in x.split([3, 1, 1, 2, 1, 1, 1, 1], dim=1):  # a prompt, then token by token
            out, state = layer.step(piece, state)
            parts.append(out)
        torch.testing.assert_close(torch.cat(parts, dim=1), layer(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), CAUSAL)
def test_states_of_other_layers_are_refused(card: Card, variant: int) -> None:
    layer = module(card, variant, causal=True)
    if not hasattr(layer, "step"):
        pytest.skip(f"{card.name} has no incremental path")
    x = torch.randn(2, 5, DIM, dtype=torch.float64)
    _, state = layer.step(x)
    for wrong in ([], 3, "state", {}, object()):
        with pytest.raises(TypeError, match=r"`?state`? should be"):
            layer.step(x, wrong)
    with pytest.raises(ValueError, match="start a new batch with state=None"):
        layer.step(x[:1], state)
    wider: Any = catalog.build(
        card.name, dim=2 * DIM, heads=HEADS, causal=True,
        **{k: v for k, v in variants(card)[variant].items() if k in card.option_names()},
    ).double()  # fmt: skip
    with pytest.raises(ValueError, match="state"):
        wider.step(torch.cat([x, x], dim=-1), state)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_module_trains(card: Card, variant: int) -> None:
    layer = module(card, variant)
    if not list(layer.parameters()):
        pytest.skip(f"{card.name} has nothing to learn")
    x, target = torch.randn(2, 3, 37, DIM, dtype=torch.float64)  # longer than default blocks
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    before = (layer(x) - target).square().mean()
    before.backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert (parameter.grad != 0).any(), name
    optimizer.step()
    assert (layer(x) - target).square().mean() < before


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_recomputing_changes_no_gradient(card: Card, variant: int) -> None:
    """Under gradient checkpointing the forward pass runs twice, and backward reads once."""
    for form in module_forms(card):
        layer = module(card, variant, **form)
        x = torch.randn(2, 7, DIM, dtype=torch.float64, requires_grad=True)
        kept = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
        out = checkpoint(layer, x, use_reentrant=False)
        recomputed = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
        for mine, theirs in zip(recomputed, kept, strict=True):
            torch.testing.assert_close(mine, theirs)


# PyTorch's own tracer makes an object of an autograd function, and warns of it.
@pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("card", EACH)
def test_module_compiles_whole(card: Card) -> None:
    """The default options, and each variant that runs code which those before it do not run: a
    line of attnlab. The compiler follows each token of a loop, so tokens are few if a few run the
    same lines."""
    done = Executed()
    for variant in range(len(variants(card))):
        layer = module(card, variant)
        few, x = (torch.randn(2, n, DIM, dtype=torch.float64) for n in (3, 7))
        layer(few), layer(x)  # what is made once is made before the lines are noted
        lines = lines_executed(layer, x)
        if done.adds(lines):
            x = few if lines_executed(layer, few) == lines else x
            torch.compiler.reset()  # each variant recompiles one forward, and PyTorch counts them
            compiled = torch.compile(layer, fullgraph=True, backend="eager")
            torch.testing.assert_close(compiled(x), layer(x))


class Executed:
    """The lines of those variants of a card that were asked what costs more than a call: whether
    they compile, run on a second device, or grow as claimed. What a variant brings without a line
    of its own, other numbers or another function of PyTorch, is not asked again."""

    def __init__(self) -> None:
        self.lines = set[tuple[str, int]]()

    def adds(self, lines: set[tuple[str, int]]) -> bool:
        """Whether a variant has a line that none before it had; it is added."""
        is_new = not lines <= self.lines
        self.lines |= lines
        return is_new


def lines_executed(function: Callable[..., Any], *args: Any) -> set[tuple[str, int]]:
    """The lines of attnlab's files that a call executes."""
    lines, before = set[tuple[str, int]](), sys.gettrace()

    def note(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return note

    def enter(frame: FrameType, *_: Any) -> Any:
        return note if frame.f_code.co_filename.startswith(LIBRARY) else None

    sys.settrace(enter)
    try:
        function(*args)
    finally:
        sys.settrace(before)
    return lines


# ---- costs

SHORT, FEW, BLOCKS, SOME, MANY, MOST = ((n // 4, n) for n in (127, 509, 2039, 4093, 8191, 16_381))
LOOP = 4  # operations per token from which on a layer counts as a loop
ENOUGH = 300  # pairs of tiles, in which growth shows beside what is called once
STEPS = ((5, 9, 19), (7, 15, 67))  # lengths at which a loop over tokens shows that its steps are
# alike, the last of which is longer than the chunks of a layer: 64 is the most unless told another
SMALL = 1 << 16  # elements of the largest tensor up to which the CPU computes a call sooner than
# the meta device, which computes nothing, follows it
LARGE = 1 << 20  # elements from which on a tensor takes longer to compute than to follow


def of_its_own(card: Card, form: str, variant: int) -> bool:
    """Whether a variant runs a line, or has a claim but for its numbers, that none before it had:
    otherwise its costs grow as theirs do."""
    return variant in _of_their_own(card, form)


@functools.cache
def _of_their_own(card: Card, form: str) -> set[int]:
    done, claims, found = Executed(), set[Any](), set[int]()
    made: dict[str, Any] = {"form": form} if "form" in card.option_names() else {}
    for variant in range(len(variants(card))):
        layer, x = module(card, variant, **made), torch.randn(1, 37, DIM, dtype=torch.float64)
        layer(x)  # what is made once is made before the lines are noted
        options = _with(card, variant, {"max_len": 37} if _needs_capacity(card, variant) else {})
        claimed = tuple(card.cost(what, form, options) for what in ("time", "memory", "launches"))
        if done.adds(lines_executed(layer, x)) or claimed not in claims:
            found.add(variant)
            claims.add(claimed)
    return found


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_cost_grows_as_claimed(card: Card, variant: int) -> None:
    """FLOPs and the largest tensor of the layer as it is built, n alone growing."""
    for form in (form for form in card.forms if of_its_own(card, form, variant)):
        lengths = _lengths(card, variant, form)
        made: dict[str, Any] = {"form": form} if "form" in card.option_names() else {}
        capacity: dict[str, Any] = (
            {"max_len": lengths[-1]} if _needs_capacity(card, variant) else {}
        )
        layer = module(card, variant, **made, **capacity).float()
        options = _with(card, variant, capacity)
        claims = {what: _in_n_alone(card, what, form, options) for what in ("time", "memory")}
        if lengths == FEW and _loops(layer) and all(map(_grows_early, claims.values())):
            lengths = SHORT
        counts = zip(*_counts(layer, lengths), strict=True)
        for (what, claim), values in zip(claims.items(), counts, strict=True):
            claimed = _at(claim, lengths)
            if what == "memory" and form == "blocked":
                # A bound where there are many blocks, up to the masked pairs that they hold.
                assert values[-1] <= 2 * claimed[-1], values
                continue
            grows, expected = (exponent(lengths, x).slope for x in (values, claimed))
            assert grows <= expected + 0.1, (form, what, values)
            if form != "blocked":  # whose blocks hold pairs that are masked
                assert what == "memory" or grows >= expected - 0.1, (form, what, values)


@pytest.mark.parametrize("card", EACH)
def test_launches_grow_as_claimed(card: Card) -> None:
    """How many operations a forward and a backward pass call on an accelerator, for which another
    device stands. What is said to grow does, in one variant at least."""
    for form in card.forms:
        grow, own = list[bool](), _of_their_own(card, form)
        for variant in sorted(range(len(variants(card))), key=lambda each: each not in own):
            if variant not in own and any(grow):
                break
            claim, lengths, called = _launches(card, variant, form)
            _check_launches(form, claim, lengths, called)
            grow.append(claim == 1 or called[-1] > called[0])
        assert any(grow), f"{form} is said to call operations that grow in number, and none do"


def _check_launches(
    form: str, claim: sympy.Expr, lengths: Sequence[int], called: Sequence[int]
) -> None:
    """The operations that a layer calls grow at most as claimed, up to the ends of its chunks."""
    *shorter, (longest, most) = zip(_at(claim, lengths), called, strict=True)
    bound = max(few * longest / claimed for claimed, few in shorter)
    assert most <= 1.3 * bound + 4, (
        f"{form} calls {called} operations at {lengths} tokens, and its card claims that they "
        f"grow as {claim}: `launches` should say how, as {{{form!r}: n}} for a loop over tokens"
    )


def _launches(card: Card, variant: int, form: str) -> tuple[sympy.Expr, tuple[int, ...], list[int]]:
    """The claim, some lengths, and how many operations both passes call there."""
    lengths = _lengths(card, variant, form)
    made: dict[str, Any] = {"form": form} if "form" in card.option_names() else {}
    capacity: dict[str, Any] = {"max_len": lengths[-1]} if _needs_capacity(card, variant) else {}
    options = _with(card, variant, capacity)
    claim = _in_n_alone(card, "launches", form, options)
    if claim.free_symbols:  # what grows takes long to count
        lengths = SHORT if lengths == FEW else lengths
        if form == "tiled":  # each pair of tiles calls some
            lengths = _few_pairs(claim, lengths, vars(chosen(card, variant))["tile"])
    layer = module(card, variant, **made, **capacity).float()
    largest = _at(_in_n_alone(card, "memory", form, options), lengths)[-1]
    # Structures are read, and PyTorch's LSTM is one kernel on every device but the meta one.
    computed = card.family == "structure" or (card.name, form) == LSTM
    computed |= bool(claim.free_symbols) and form != "blocked" and largest <= SMALL
    device = "cpu" if computed else "meta"

    def called(at: tuple[int, ...]) -> list[int]:
        place = "cpu" if at in STEPS else device
        return _called(layer.to(place), at, place)

    with as_on_an_accelerator():
        if claim in letters("n") and form != "blocked":
            return claim, *_of_a_loop(lengths, called, _largest_option(card, variant))
        counted = called(lengths)
        if not claim.free_symbols and counted[-1] > counted[0]:  # perhaps from some length on
            half = (lengths[-1] // 2,)
            return claim, (*half, *lengths), [*called(half), *counted]
        return claim, lengths, counted


def _of_a_loop(
    lengths: tuple[int, ...], called: Callable[[tuple[int, ...]], list[int]], largest: int
) -> tuple[tuple[int, ...], list[int]]:
    """What is called at ``STEPS``, where the tokens are alike and no chunk is longer, as none is
    than the ``largest`` option; otherwise at ``lengths``, which take long to count."""
    known = STEPS if largest else STEPS[-1:]  # no option tells how long a chunk is
    for steps in [each for each in known if largest < each[-1]][:1]:
        if _alike(steps, counted := called(steps)):
            return steps, counted
    return lengths, called(lengths)


def _called(layer: nn.Module, lengths: Sequence[int], device: str) -> list[int]:
    """How many operations both passes call at each length."""
    counted = []
    for n in lengths:
        x = torch.randn(1, n, DIM, device=device, requires_grad=True)
        if lengths not in STEPS:
            layer(x)  # a layout is made once for each length and pattern, and kept
        counted.append(count_uncompiled(layer, x, backward=True).operations)
    return counted


def _alike(steps: tuple[int, ...], called: Sequence[int]) -> bool:
    """Whether each of the later tokens of ``STEPS`` adds as many operations as each of the earlier
    ones: then more of them, which take long to count, would say no more."""
    counted = itertools.pairwise(zip(steps, called, strict=True))
    each = {(b - a) / (m - n) for (n, a), (m, b) in counted}
    return len(each) == 1 and min(each) > 0


def _few_pairs(claim: sympy.Expr, lengths: tuple[int, ...], tile: int) -> tuple[int, ...]:
    """The lengths, halved until the longest has no more pairs of tiles than are ``ENOUGH``, or the
    shortest would be less than a tile."""
    while _at(claim, lengths)[-1] > ENOUGH and lengths[0] >= 2 * tile:
        lengths = tuple(n // 2 for n in lengths)
    return lengths


def _at(claim: sympy.Expr, lengths: Sequence[int]) -> list[float]:
    return [float(claim.subs(dict.fromkeys(claim.free_symbols, n))) for n in lengths]


def _grows_early(claim: sympy.Expr) -> bool:
    """Whether a claim grows at short lengths as it does at longer ones."""
    short, long = (exponent(lengths, _at(claim, lengths)).slope for lengths in (SHORT, FEW))
    return short > long - 0.05


def _loops(layer: nn.Module) -> bool:
    """Whether the layer is a loop over tokens, each of which adds operations: at long lengths
    they would take too long."""
    few, more = 7, 17
    layer(torch.randn(1, few, DIM)), layer(torch.randn(1, more, DIM))  # finds what is kept
    counts = [count_uncompiled(layer, torch.randn(1, n, DIM)).operations for n in (few, more)]
    return counts[1] - counts[0] >= LOOP * (more - few)


FACTOR = 3
"""Between a claim and what is counted: the ends of blocks, short spans, other rounding."""
SHORTEST, LONGEST = 61, 255


@pytest.mark.parametrize("card", EACH)
def test_costs_hold_for_small_and_large_options(card: Card) -> None:
    """Widths, length and options, each small and large: a letter that a claim lacks shows."""
    wrong = []
    for form, causal in itertools.product(card.forms, causalities(card)):
        for sizes, given in _draws(card, form, causal):
            layer = _built(card, form, causal, sizes, given)
            asked = functools.partial(_misclaims, layer, card, form, causal, sizes, given)
            # A call that makes what it keeps, as layouts of patterns, computes more.
            keeps = issubclass(card.options, PatternOptions)
            wrong += asked(again=True) if keeps or asked(again=False) else []
    assert not wrong, "\n".join(wrong)


def _misclaims(
    layer: nn.Module, card: Card, form: str, causal: bool,
    sizes: Mapping[str, int], given: Mapping[str, Any], again: bool,
) -> list[str]:  # fmt: skip
    """Where what a call of a layer costs is far from what is claimed; of a second call if again."""
    flops, written, largest = _seen(layer, sizes["n"], sizes["dim"], again)
    wrong = []
    for what, value in (("time", flops or written), ("memory", largest)):
        claimed = _claimed(card, what, form, causal, sizes, given)
        if what == "time" and form == "blocked":  # the queries of a block share their keys
            if issubclass(card.options, PatternOptions):
                continue  # test_claimed_pairs_are_those_of_the_pattern counts them
            claimed += 2 * ROWS * sizes["n"] * 2 * sizes["dim"]
        low = what == "time" and FACTOR * max(flops, written) < claimed
        if value > FACTOR * claimed or (low and sizes["n"] > SHORTEST):
            wrong.append(f"{form} {what} {causal=} {sizes} {given}: {value / claimed:.2f}")
    return wrong


def _draws(card: Card, form: str, causal: bool) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
    """Sizes of a layer and its options: those of each variant, then one at a time far larger; few
    of a layer that is not causal, if the claims are those of the causal one."""
    usual = {
        "dim": 48,
        "heads": 6,
        "n": {"blocked": 1021, "recurrent": 61, "tiled": 61}.get(form, 127),
    }
    own = annotations_of(card.options)  # of which alone a claim is told
    small = [{k: v for k, v in each.items() if k in own} for each in variants(card)[1:] or ({},)]
    often = causal == causalities(card)[-1]
    if not often and _claims_alike(card, form, small[0]):
        yield (
            usual | {"n": given["max_len"]} if (given := small[0]).get("max_len") else usual,
            given,
        )
        return
    drawn: list[tuple[dict[str, int], dict[str, Any]]] = [({}, given) for given in small]
    short = {"n": SHORTEST}
    drawn += [(more, small[0]) for more in ({"dim": 96}, {"dim": 16, "heads": 2}, short)]
    if hasattr(card.structure, "deep"):
        drawn.append(({"deep": 1, "n": LONGEST, "dim": 96, "heads": 12}, small[0]))
    for name, annotation in annotations_of(card.options).items():
        if (
            often
            and name != "max_len"
            and "AtLeast" in str(annotation)
            and "tuple" not in str(annotation)
        ):
            drawn += _larger(card, form, causal, name, small)
    for more, given in drawn:
        longest = {"n": given["max_len"]} if "max_len" in given else {}
        yield usual | longest | more, given


def _claims_alike(card: Card, form: str, given: Mapping[str, Any]) -> bool:
    """Whether the costs of a form are said to be the same, causal or not."""
    own = annotations_of(card.options)
    capacity = {"max_len": LONGEST} if "max_len" in own else {}
    options = card.options(**capacity | dict(given))
    return all(
        card.cost(what, form, options, False) == card.cost(what, form, options, True)
        for what in ("time", "memory")
    )


def _larger(
    card: Card, form: str, causal: bool, name: str, small: list[dict[str, Any]]
) -> list[tuple[dict[str, int], dict[str, Any]]]:
    """The first of some options that may be given a larger number of that name."""
    for given, size in itertools.product(small, (33, 32, 3)):
        larger = given | {name: size}
        with contextlib.suppress(ValueError):
            layer = _built(card, form, causal, {"dim": 48, "heads": 6, "n": SHORTEST}, larger)
            layer(torch.randn(1, SHORTEST, 48))
            return [({}, larger)]
    return []


def _built(
    card: Card, form: str, causal: bool, sizes: Mapping[str, int], given: Mapping[str, Any]
) -> nn.Module:
    made = {name: value for name, value in given.items() if name in card.option_names()}
    if "max_len" in card.option_names() and not {"max_len", "factors"} & set(given):
        made["max_len"] = LONGEST
    if "form" in card.option_names():
        made["form"] = form
    torch.manual_seed(2)
    widths = {name: sizes[name] for name in ("dim", "heads")}
    layer = catalog.build(card.name, **(widths | {"causal": causal} | made)).eval()
    example = "deep" if sizes.get("deep") else "example"
    return layer if card.structure is None else OnExample(layer, card, example)


def _claimed(
    card: Card, what: str, form: str, causal: bool,
    sizes: Mapping[str, int], given: Mapping[str, Any],
) -> float:  # fmt: skip
    own = annotations_of(card.options)
    capacity = {"max_len": LONGEST} if "max_len" in own else {}
    options = card.options(**{k: v for k, v in (capacity | dict(given)).items() if k in own})
    pairs = any(each[0].kind == "Complex" for each in letters_of(card.every_form[form]).values())
    width = sizes["dim"] // sizes["heads"] // (2 if pairs else 1)
    known = dict(sizes) | {"h": sizes["heads"], "d": width, "e": width}
    known |= {"m": sizes["n"], "n_E": 5 * sizes["n"] // 2}  # a path and back, and half as many
    known |= {letter: getattr(options, name) for letter, name in card.letters.items()}
    claim = card.cost(what, form, options, causal)
    beside = sizes["n"] * sizes["dim"] if what == "memory" else 0  # the input itself
    return float(claim.subs({x: known[x.name] for x in claim.free_symbols})) + beside


def _lengths(card: Card, variant: int, form: str) -> tuple[int, ...]:
    """Long sequences for blocks, and for what has tiles or chunks of many tokens.

    Loops, dense masks and stored tables would take too long there.
    """
    largest = _largest_option(card, variant)
    if "max_len" in variants(card)[variant]:
        longest = variants(card)[variant]["max_len"]
        return longest // 4, longest
    if form == "recurrent" or (form == "tiled" and largest < 16):
        return SHORT
    if form == "blocked" and largest > 256:
        # The first queries have fewer blocks to choose than later ones.
        return MOST if "chosen" in vars(chosen(card, variant)) else MANY
    if form == "blocked":
        return SOME if largest > 16 else BLOCKS
    return SOME if largest > 64 and form in ("tiled", "chunked") else FEW


def _largest_option(card: Card, variant: int) -> int:
    """The largest of its whole numbers: tiles and chunks are at most as long."""
    return max((v for v in vars(chosen(card, variant)).values() if type(v) is int), default=0)


def _needs_capacity(card: Card, variant: int) -> bool:
    """Whether a layer of this variant has a length that it was built for."""
    given = variants(card)[variant]
    return "max_len" in card.option_names() and not {"max_len", "factors"} & set(given)


def _with(card: Card, variant: int, capacity: Mapping[str, Any]) -> Options:
    own = annotations_of(card.options)
    given = dict(variants(card)[variant]) | dict(capacity)
    return card.options(**{k: v for k, v in given.items() if k in own})


def _counts(layer: nn.Module, lengths: tuple[int, ...]) -> list[tuple[int, int]]:
    """``_mixing`` at each length. Large tensors are counted on the meta device, which computes
    nothing, if it counts the shortest length as the processor does: without the kernels that never
    hold the scores."""
    shortest, counted = _mixing(layer, lengths[0]), layer
    if shortest[1] > LARGE:
        on_meta = copy.deepcopy(layer).to("meta")
        if (on_its_device := _mixing(on_meta, lengths[0])) == shortest:
            counted, shortest = on_meta, on_its_device
    return [shortest, *(_mixing(counted, n) for n in lengths[1:])]


def _mixing(layer: nn.Module, n: int) -> tuple[int, int]:
    """FLOPs of a layer without its linear maps, and the elements of its largest tensor."""
    flops, written, largest = _seen(layer, n, DIM)
    # A mechanism that mixes element by element has no FLOPs of products: then, what it writes.
    return flops or written, largest


def _seen(layer: nn.Module, n: int, dim: int, again: bool = True) -> tuple[int, int, int]:
    """FLOPs without linear maps, the elements written, and those of the largest tensor; if it is
    called again, without a layout, which is made once for each length and pattern, and kept."""
    linear = 0

    def book(part: Any, args: tuple[Tensor, ...], _: Tensor) -> None:
        nonlocal linear
        linear += 2 * args[0].numel() * part.out_features

    device = next((each.device for each in layer.parameters()), torch.device("cpu"))
    x = torch.randn(1, n, dim, device=device)
    if again:
        layer(x)
    hooks = [
        part.register_forward_hook(book) for part in layer.modules() if isinstance(part, nn.Linear)
    ]
    counted = count_uncompiled(layer, x)
    for hook in hooks:
        hook.remove()
    largest = counted.largest_tensor.elements
    return counted.flops - linear, counted.elements_written, largest


def _in_n_alone(card: Card, what: str, form: str, options: Options) -> sympy.Expr:
    """The claim with everything but n as the layer was built; for memory with the input itself."""
    n, m, n_E = letters("n m n_E")
    claim = card.cost(what, form, options).subs({m: n, n_E: n})  # as many as in examples, nearly
    widths = {"h": HEADS, "d": DIM // HEADS, "e": DIM // HEADS, "dim": DIM}
    known = widths | {letter: getattr(options, name) for letter, name in card.letters.items()}
    claim = claim.subs({x: known[x.name] for x in claim.free_symbols if x.name in known})
    return claim + n * DIM if what == "memory" else claim


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_costs_are_stated_in_n_and_options(card: Card, variant: int) -> None:
    allowed = {"n", "m", "n_E", "d", "e", "h", "dim", *card.letters}
    for form in card.forms:
        for what in ("time", "memory", "launches"):
            claim = card.cost(what, form, chosen(card, variant))
            assert {x.name for x in claim.free_symbols} <= allowed
    assert set(card.letters.values()) <= set(annotations_of(card.options))


PATTERNED = Cases(lambda card: ALL.of(card) if issubclass(card.options, PatternOptions) else [])


@pytest.mark.parametrize(("card", "variant"), PATTERNED)
def test_claimed_pairs_are_those_of_the_pattern(card: Card, variant: int) -> None:
    """Up to terms that grow more slowly, and to what the ends of lines and blocks lack."""
    options = chosen(card, variant)
    n = _lengths(card, variant, "blocked")[-1]  # at which random patterns have been drawn
    counted, claimed = _pairs(card, options, n)
    assert 0.4 * claimed <= counted <= 1.1 * claimed


@pytest.mark.parametrize(
    "card", Cases(lambda card: EACH.of(card) if issubclass(card.options, PatternOptions) else [])
)
def test_claimed_pairs_hold_for_small_and_large_options(card: Card) -> None:
    own = annotations_of(card.options)
    drawn = [given for _, given in _draws(card, "blocked", causal=causalities(card)[-1])]
    for given in drawn:
        options = card.options(**{name: value for name, value in given.items() if name in own})
        counted, claimed = _pairs(card, options, 2039)
        assert claimed / FACTOR <= counted <= 1.5 * claimed, given


def _pairs(card: Card, options: Any, n: int) -> tuple[float, float]:
    """The mean over heads of the allowed pairs, as the pattern counts them and as claimed."""
    pattern = options.pattern(heads=HEADS, causal=card.causal == "always")
    of_heads = [pattern.of_head(head) for head in range(pattern.heads() or 1)]
    counted = sum(each.count(n) for each in of_heads) / len(of_heads)
    h, d, e = letters("h d e")
    claim = (card.cost("time", "blocked", options) / (2 * h * (d + e))).simplify()
    known = {letter: getattr(options, name) for letter, name in card.letters.items()} | {"n": n}
    return counted, float(claim.subs({x: known[x.name] for x in claim.free_symbols}))


# ---- wrong calls


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_wrong_calls_are_answered_in_sentences(card: Card, variant: int) -> None:
    layer = module(card, variant)
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"`x` should be Float\[b n dim\]"):
        layer(x[0])
    with pytest.raises(ValueError, match="dim=12"):
        layer(x[..., :5])
    with pytest.raises(ValueError, match="nothing to attend to"):
        layer(x[:, :0])
    with pytest.raises(ValueError, match="not a float"):
        layer(x.long())
    with pytest.raises(ValueError, match=r"n is 5, expected 7 as in `x`"):
        layer(x, torch.ones(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="mask == 0"):
        layer(x, torch.zeros(2, 7))
    if list(layer.parameters()):
        with pytest.raises(ValueError, match="dtype"):
            layer(x.float())
    with pytest.raises(TypeError, match=f"{card.name} has no option 'colour'"):
        catalog.build(card.name, dim=DIM, heads=HEADS, colour="red")
    if "heads" not in parameters_of(card.build):
        return
    given = {k: v for k, v in variants(card)[variant].items() if k in card.option_names()}
    with pytest.raises(ValueError, match="heads=5 does not divide dim=12"):
        catalog.build(card.name, dim=DIM, heads=5, causal=card.causal == "always", **given)


@pytest.mark.parametrize("card", EACH)
def test_the_story_is_read(card: Card) -> None:
    """Title, citation, departures and what is given up are where the card looks for them."""
    if not card.story:
        pytest.skip("the card was given its texts; Card(__doc__, …) reads them from the story")
    assert Story(card.story).faults() == []
    assert card.gives_up, "a paragraph of the story should begin with 'Gives up.'"


@pytest.mark.parametrize("card", EACH)
def test_the_layer_is_built_with_each_form_of_the_card_and_shows_it(card: Card) -> None:
    """``form`` of the layer is annotated with the names of the card's forms, if with any; "auto"
    is no form, it chooses among them."""
    annotation = parameters_of(card.build).get("form")
    names = typing.get_args(annotation)
    assert not names or [each for each in names if each != "auto"] == list(card.every_form)
    for form in names:
        causal = card.causal == "always"
        layer = catalog.build(card.name, dim=DIM, heads=HEADS, causal=causal, form=form)
        assert f"form={form!r}" in repr(layer)


@pytest.mark.parametrize("card", EACH)
def test_causality_is_refused_with_its_reason(card: Card) -> None:
    if card.causal == "optional":
        assert not card.causal_reason
        return
    assert card.causal_reason
    with pytest.raises(ValueError, match=r"cannot be causal: |is always causal"):
        catalog.build(card.name, dim=DIM, heads=HEADS, causal=card.causal == "never")


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_module_moves_to_the_gpu(card: Card, variant: int) -> None:
    if (accelerator := the_accelerator()) is None:
        pytest.skip("no accelerator on this machine")
    layer = module(card, variant)
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    expected = layer(x)
    torch.testing.assert_close(layer.to(accelerator)(x.to(accelerator)).cpu(), expected)


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_what_does_not_fit_is_refused_in_a_sentence(card: Card, form: str) -> None:
    function, sizes = card.every_form[form], SIZES[1]
    made = inputs(function, sizes, torch.float32)
    for index in range(1, len(made)):
        mixed = [exactly(x) if i == index else x for i, x in enumerate(made)]
        wrong = r"is (float64|complex128) but .* is (float32|complex64); give them one dtype"
        with pytest.raises(ValueError, match=wrong):
            call(card, form, 0, mixed)
    if "mask" not in parameters_of(function):
        return
    b, m = sizes["b"], sizes["m"]
    for shape, what in [((b, m + 2), "keys"), ((b, m - 2), "keys"), ((b + 1, m), "sequences")]:
        pattern = patterns.causal() & patterns.padding(torch.ones(shape, dtype=torch.bool))
        with pytest.raises(ValueError, match=f"padding is for .* {what}, but there are"):
            function(*made, mask=pattern)
    with pytest.raises(TypeError, match=r"`?mask`? should be .*, got"):
        function(*made, mask="causal")
