"""Checks of lesson 71: a hidden square, the growth of a count, and a row of the survey's table."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from attnlab.core.growths import GROWTHS
from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import run
from attnlab.exercises.exercise import but
from attnlab.exercises.observed import ObservedExercise
from attnlab.exercises.verdict import Function, Mistake, type_name

# ---- a hidden square

check_hash_length = NumberExercise(
    "Is it where hashing into 2n / m buckets costs as much as the chunks, for m = d = e = 64?",
    right=(64 + 64 + 1) * 64 * 2,
    unit="tokens",
    tolerance=2e-3,
    mistakes={
        516: "That is the number of buckets at which both cost equally; the length is b m / 2.",
        33_024: "There are b = 2n / m buckets, twice as many as n / m.",
        258: "That is n / m. The length is asked for.",
        16_384: "Nearly: the bracket is d + e + 1 = 129, not 128.",
        1_056_768: "Divide by d: one bucket costs d FLOPs for each token, not one.",
    },
)


# ---- which growth

Costs = Sequence[float]


def _slope(lengths: Costs, costs: Costs) -> float:
    """The power of n that fits best: the least-squares slope between logarithms."""
    x, y = (torch.tensor(values, dtype=torch.float64).log() for values in (lengths, costs))
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / (x @ x))


def _best(spread: Callable[[list[float]], float]) -> Callable[[Costs, Costs], str]:
    """The growth g for which the costs divided by g vary least."""

    def growth(lengths: Costs, costs: Costs) -> str:
        def varies(name: str) -> float:
            g = GROWTHS[name]
            return spread([cost / g(n) for n, cost in zip(lengths, costs, strict=True)])

        return min(GROWTHS, key=varies)

    return growth


def _ratio(quotients: list[float]) -> float:
    return max(quotients) / min(quotients)


_growth = _best(_ratio)


def _without_factor(lengths: Costs, costs: Costs) -> str:
    def away(name: str) -> float:
        g = GROWTHS[name]
        return sum(abs(math.log(c / g(n))) for n, c in zip(lengths, costs, strict=True))

    return min(GROWTHS, key=away)


def _rounded(lengths: Costs, costs: Costs) -> str:
    slope = _slope(lengths, costs)
    return min(("n", "n√n", "n²"), key=lambda name: abs(slope - {"n": 1, "n√n": 1.5}.get(name, 2)))


def _by_hand(lengths: Costs, costs: Costs) -> str:
    slope, powers = _slope(lengths, costs), {"n": 1.0, "n log n": 1.12, "n√n": 1.5, "n²": 2.0}
    return min(powers, key=lambda name: abs(slope - powers[name]))


def _smallest(lengths: Costs, costs: Costs) -> str:
    return _best(lambda quotients: quotients[-1] - quotients[0])(lengths, costs)


_LENGTHS = (1024.0, 2048.0, 4096.0, 8192.0)
_LONG = (2.0**24, 2.0**28, 2.0**32, 2.0**36)  # where the slope of n log n is near that of n
_NOISE = (1.01, 0.99, 1.0, 1.01)


def _growth_case(factor: float, name: str, lengths: Costs = _LENGTHS) -> tuple[Costs, list[float]]:
    scattered = zip(lengths, _NOISE, strict=True)
    return lengths, [factor * GROWTHS[name](n) * noise for n, noise in scattered]


_GROWTH_CASES = [
    _growth_case(3e4, "n log n"),
    _growth_case(2.0, "n√n"),
    _growth_case(7e3, "n"),
    _growth_case(40.0, "n²"),
    _growth_case(0.5, "n log n"),
    _growth_case(60.0, "n log n", _LONG),
]


def _growths(function: Function) -> list[str]:
    found = []
    for lengths, costs in _GROWTH_CASES:
        answer = run(function, {"lengths": list(lengths), "costs": list(costs)})
        if answer.raised:
            raise Mistake(f"growth(lengths, costs) {answer.raised}. {answer.hint}".rstrip())
        if not isinstance(answer.value, str) or answer.value not in GROWTHS:
            raise Mistake(
                f"growth(lengths, costs) should give one of {', '.join(map(repr, GROWTHS))}; it "
                f"gave {answer.value!r}."
            )
        found.append(answer.value)
    return found


def _other_growth(found: list[str], wanted: list[str]) -> str:
    (lengths, costs), got, right = next(
        one for one in zip(_GROWTH_CASES, found, wanted, strict=True) if one[1] != one[2]
    )
    shown = ", ".join(f"{cost:,.0f}" for cost in costs)
    at = ", ".join(f"{n:,.0f}" for n in lengths)
    return f"Of the costs {shown} at the lengths {at} it gave {got!r}; it should be {right!r}."


check_growth = ObservedExercise(
    """Does it name the growth of costs? `growth(lengths, costs)` → "n", "n log n", "n√n" or "n²".

    `lengths` and `costs` are lists of numbers. The factor in front is unknown, and costs scatter by
    one per cent.
    """,
    right=_growth,
    observe=_growths,
    mistakes={
        _without_factor: (
            "The factor in front of the growth is taken for 1. Divide the costs by the growth; "
            "what counts is whether the quotients are equal, not how large they are."
        ),
        _best(lambda quotients: max(quotients) - min(quotients)): (
            "The quotients are compared by their difference, so the growth with the smallest "
            "quotients wins. Compare them by their ratio."
        ),
        _smallest: (
            "The quotients may fall as well as rise: the last minus the first is most negative for "
            "the growth that is far too fast."
        ),
        _by_hand: (
            "n log n has no fixed power: 1.12 is its slope between 1,024 and 16,384 tokens, and at "
            "longer sequences it comes near to 1. Divide the costs by each growth instead."
        ),
        _rounded: (
            "A rounded exponent is never n log n: its slope lies between that of n and of n√n."
        ),
    },
    explain=_other_growth,
    praise="The quotients are most nearly equal for the growth that the costs have.",
)


# ---- a row of the table


class _Attention(nn.Module):
    """Attention over the whole sequence, or in blocks; some of them look ahead."""

    def __init__(
        self, dim: int, heads: int, causal: bool, *,
        block: int | None = None, ahead: int = 0, mean: bool = False, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.causal, self.block, self.ahead, self.mean = (
            heads, causal, block, ahead, mean,
        )  # fmt: skip
        self.project, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        x = self.dropout(x)
        length = self.block or x.shape[1]
        short = -x.shape[1] % length
        q, k, v = (
            F.pad(part, (0, 0, 0, short)).unflatten(1, (-1, length))
            for part in self.project(x.roll(-self.ahead, dims=1)).chunk(3, dim=-1)
        )
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        mixed = mixed.transpose(-2, -3).flatten(-2).flatten(1, 2)[:, : x.shape[1]]
        return self.out(mixed) + (x.mean(dim=1, keepdim=True) if self.mean else 0)


Build = Callable[[int, int, bool], nn.Module]


def _build(**options: object) -> Build:
    def build(dim: int, heads: int, causal: bool) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return _Attention(dim, heads, causal, **options)  # type: ignore[arg-type]

    return build


_LAYERS: dict[str, Build] = {
    "full attention": _build(),
    "attention in blocks of 16, with dropout": _build(block=16, dropout=0.2),
    "attention that reads one token ahead": _build(ahead=1),
    "attention in blocks of 16, plus the mean of all tokens": _build(block=16, mean=True),
}
_ROW_LENGTHS = (128, 256, 512)
_TRIED, _KEPT = 40, 25
Row = tuple[float, bool]


def _row(
    build: Build, lengths: Sequence[int], *,
    linear: bool = False, causal: bool = True, first: int | None = None, train: bool = False,
) -> Row:  # fmt: skip
    """The exponent of the mixing's FLOPs, and whether the causal layer keeps to the past; the
    options are mistakes."""
    flops = []
    for n in lengths:
        layer = build(32, 4, False).eval()
        maps = sum(2 * n * m.weight.numel() for m in layer.modules() if isinstance(m, nn.Linear))
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            layer(torch.zeros(1, n, 32))
        flops.append(counter.get_total_flops() - (0 if linear else maps))
    layer = build(32, 4, causal).train(train)
    x, other = torch.randn(2, 1, _TRIED, 32, generator=torch.Generator().manual_seed(0))
    other[:, :_KEPT] = x[:, :_KEPT]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        kept = _KEPT if first is None else first
        apart = (layer(x)[:, :kept] - layer(other)[:, :kept]).abs().max().item()
    return _slope(lengths, flops), apart < 1e-4


def _inverted(build: Build, lengths: Sequence[int]) -> Row:
    slope, kept = _row(build, lengths)
    return slope, not kept


@dataclass(eq=False)
class _Found:
    """The exponent and whether causal; equal where the exponents are nearly so."""

    slope: float
    kept: bool

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Found)
        return abs(self.slope - other.slope) < 0.05 and self.kept == other.kept


def _answer(function: Function, build: Build) -> _Found:
    answer = run(function, {"build": build, "lengths": _ROW_LENGTHS})
    if answer.raised:
        raise Mistake(f"survey_row(build, lengths) {answer.raised}. {answer.hint}".rstrip())
    value = answer.value
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise Mistake(
            "survey_row(build, lengths) should give two things, the exponent and whether the layer "
            f"is causal; it gave {type_name(value)}."
        )
    try:
        slope = float(value[0])
    except (TypeError, ValueError):
        raise Mistake(f"The exponent should be a number; it is {type_name(value[0])}.") from None
    return _Found(slope, bool(value[1]))


def _other_row(found: list[_Found], wanted: list[_Found]) -> str:
    name, got, right = next(
        one for one in zip(_LAYERS, found, wanted, strict=True) if one[1] != one[2]
    )
    if abs(got.slope - right.slope) >= 0.05:
        return f"For {name} the exponent is {right.slope:.2f}; it gave {got.slope:.2f}."
    return f"For {name} the second answer is {right.kept}; it gave {got.kept}."


check_survey_row = ObservedExercise(
    """Does it check a layer? `survey_row(build, lengths)` → (exponent, whether causal).

    `build(dim, heads, causal)` gives a module from (b, n, dim) to (b, n, dim). The exponent is that
    of the FLOPs of the mixing, without the nn.Linear maps, over `lengths`, not causal, to 0.05. The
    second is whether the causal layer, in evaluation mode, keeps earlier outputs whatever follows.
    """,
    right=_row,
    observe=lambda function: [_answer(function, build) for build in _LAYERS.values()],
    mistakes={
        but(linear=True): (
            "The layer's projections are counted too; they grow with n and hide the growth of the "
            "mixing. Take off the FLOPs of every nn.Linear: two for each of its weights and "
            "tokens."
        ),
        but(causal=False): (
            "Every layer leaks in your test. Is it built with causal=True, are the tokens changed "
            "at the end, and are only the outputs before them compared?"
        ),
        but(train=True): (
            "The layer is in training mode, where dropout makes any two outputs differ: call "
            "eval()."
        ),
        but(first=1): (
            "A layer that reads one token ahead passes: only the outputs just before the changed "
            "tokens can differ there. Compare all outputs before them, up to the last."
        ),
        _inverted: "The second answer is the other way round: True where earlier outputs stay.",
    },
    explain=_other_row,
    praise="Counted and tried: what the table's button does.",
)
