"""The checks of lesson 71 name each mistake, and accept every way of writing the right answer."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from attnlab.core.growths import GROWTHS
from attnlab.exercises import check_growth, check_survey_row
from attnlab.measure.count import count
from attnlab.measure.fit import fit
from tests.exercises.frame import answers_to

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


GROWTH_WRONG = {
    "always": ("it should be", lambda lengths, costs: "n²"),
    "number": ("should give one of", lambda lengths, costs: 1.5),
    "raises": ("ZeroDivisionError", lambda lengths, costs: 1 / 0),
}
TestGrowth = answers_to(
    [(check_growth, by_scatter), (check_growth, by_power)], [(check_growth, GROWTH_WRONG)]
)


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


def row(build: Any, lengths: Any, part: Any = slice(25)) -> Any:
    first, second = outputs(build(32, 4, True).eval())
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


ROW_WRONG = {
    "square": ("the exponent is 1.00", lambda build, lengths: (2.0, row(build, lengths)[1])),
    "trusting": ("the second answer is", lambda build, lengths: (row(build, lengths)[0], True)),
    "one": ("should give two things", lambda build, lengths: 2.0),
    "text": ("should be a number", lambda build, lengths: ("n²", True)),
    "raises": ("ValueError: no", lambda build, lengths: (_ for _ in ()).throw(ValueError("no"))),
}
TestRow = answers_to(
    [(check_survey_row, row), (check_survey_row, by_gradient)], [(check_survey_row, ROW_WRONG)]
)


def test_a_check_leaves_the_generator_as_it_was() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    check_survey_row(lambda build, lengths: (1.0, True))
    assert torch.equal(torch.rand(3), expected)
