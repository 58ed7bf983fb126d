"""The checks of lesson 71 name each mistake, and accept every way of writing the right answer."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from attnlab.core.growths import GROWTHS
from attnlab.exercises import check_growth, check_survey_row
from attnlab.measure.count import count
from attnlab.measure.fit import fit

# ---- which growth


def by_scatter(lengths: Any, costs: Any) -> str:
    """By the standard deviation of logarithms, in place of the ratio of quotients."""

    def scatter(name: str) -> float:
        logs = [math.log(c / GROWTHS[name](n)) for n, c in zip(lengths, costs, strict=True)]
        return torch.tensor(logs).std().item()

    return min(GROWTHS, key=scatter)


def by_power(lengths: Any, costs: Any) -> str:
    """The growth whose own fitted power is nearest to that of the costs."""
    own = {name: fit(lengths, [g(n) for n in lengths]).slope for name, g in GROWTHS.items()}
    return min(own, key=lambda name: abs(own[name] - fit(lengths, costs).slope))


@pytest.mark.parametrize("right", [by_scatter, by_power])
def test_written_differently_is_right(right: Callable) -> None:
    verdict = check_growth(right)
    assert verdict.right, verdict.message


def least(unequal: Callable) -> Callable:
    return lambda lengths, costs: min(
        GROWTHS,
        key=lambda name: unequal(
            [c / GROWTHS[name](n) for n, c in zip(lengths, costs, strict=True)]
        ),
    )


GROWTH_WRONG = {
    "factor": ("taken for 1", least(lambda found: sum(abs(math.log(q)) for q in found))),
    "difference": ("by their difference", least(lambda found: max(found) - min(found))),
    "falls": ("fall as well as rise", least(lambda found: found[-1] - found[0])),
    "rounded": (
        "never n log n",
        lambda lengths, costs: {2: "n", 3: "n√n", 4: "n²"}[round(2 * fit(lengths, costs).slope)],
    ),
    "always": ("it should be", lambda lengths, costs: "n²"),
    "number": ("should give one of", lambda lengths, costs: 1.5),
    "raises": ("ZeroDivisionError", lambda lengths, costs: 1 / 0),
    "none": ("it gave None", lambda lengths, costs: None),
}


@pytest.mark.parametrize(("words", "wrong"), GROWTH_WRONG.values(), ids=GROWTH_WRONG)
def test_mistaken_growths_by_name(words: str, wrong: Callable, refuses: Callable) -> None:
    refuses(check_growth(wrong), words)


# ---- a row of the table


def slope(lengths: Any, costs: Any) -> float:
    return fit(lengths, costs).slope


def mixing(build: Callable, n: int) -> int:
    layer = build(32, 4, False).eval()
    maps = sum(2 * n * m.weight.numel() for m in layer.modules() if isinstance(m, nn.Linear))
    return count(layer, torch.randn(1, n, 32)).flops - maps


def outputs(layer: nn.Module, kept: int = 25) -> tuple[torch.Tensor, torch.Tensor]:
    """Of two sequences with the same first tokens."""
    first, second = torch.randn(2, 1, 40, 32)
    second[:, :kept] = first[:, :kept]
    with torch.no_grad():
        return layer(first), layer(second)


def row(build: Any, lengths: Any, layer: Callable | None = None, part: Any = slice(25)) -> Any:
    made = build(32, 4, True).eval() if layer is None else layer(build)
    first, second = outputs(made)
    kept = (first - second)[:, part].abs().max() < 1e-4
    return slope(lengths, [mixing(build, n) for n in lengths]), kept


def by_gradient(build: Any, lengths: Any) -> Any:
    """Whether any output depends on a later token, by derivatives; the last two lengths."""
    layer = build(32, 4, True).eval()
    x = torch.randn(1, 20, 32, requires_grad=True)
    kept = True
    for i in range(19):
        (grad,) = torch.autograd.grad(layer(x)[0, i].square().sum(), x)
        kept = kept and not grad[0, i + 1 :].abs().max() > 1e-6
    low, high = (mixing(build, n) for n in lengths[1:])
    return [math.log2(high / low), kept]


@pytest.mark.parametrize("right", [row, by_gradient])
def test_rows_written_differently_are_right(right: Callable) -> None:
    verdict = check_survey_row(right)
    assert verdict.right, verdict.message


def whole(build: Any, lengths: Any) -> Any:
    flops = [count(build(32, 4, False).eval(), torch.randn(1, n, 32)).flops for n in lengths]
    return slope(lengths, flops), row(build, lengths)[1]


def inverted(build: Any, lengths: Any) -> Any:
    found = row(build, lengths)
    return found[0], not found[1]


ROW_WRONG = {
    "projections": ("projections are counted too", whole),
    "not causal": (
        "Every layer leaks in your test",
        lambda build, lengths: row(build, lengths, lambda build: build(32, 4, False).eval()),
    ),
    "all outputs": (
        "Every layer leaks in your test",
        lambda build, lengths: row(build, lengths, part=slice(None)),
    ),
    "training": (
        "in training mode",
        lambda build, lengths: row(build, lengths, lambda build: build(32, 4, True)),
    ),
    "first": ("one token ahead passes", lambda build, lengths: row(build, lengths, part=0)),
    "inverted": ("other way round", inverted),
    "square": ("the exponent is 1.00", lambda build, lengths: (2.0, row(build, lengths)[1])),
    "trusting": ("the second answer is", lambda build, lengths: (row(build, lengths)[0], True)),
    "one": ("should give two things", lambda build, lengths: 2.0),
    "text": ("should be a number", lambda build, lengths: ("n²", True)),
    "none": ("it gave None", lambda build, lengths: None),
    "raises": ("ValueError: no", lambda build, lengths: (_ for _ in ()).throw(ValueError("no"))),
}


@pytest.mark.parametrize(("words", "wrong"), ROW_WRONG.values(), ids=ROW_WRONG)
def test_mistaken_rows_by_name(words: str, wrong: Callable, refuses: Callable) -> None:
    refuses(check_survey_row(wrong), words)


def test_a_check_leaves_the_generator_as_it_was() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    check_survey_row(lambda build, lengths: (1.0, True))
    assert torch.equal(torch.rand(3), expected)
