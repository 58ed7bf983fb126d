"""Checks of lesson 70: where times cross, a fitted exponent, a share, and a fair stop-watch."""

import numbers
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, run
from attnlab.exercises.exercise import Exercise
from attnlab.exercises.observed import ObservedExercise
from attnlab.exercises.verdict import Function, Mistake, type_name

# ---- numbers

check_time_crossing = NumberExercise(
    "Is it where 4n²d FLOPs at 80 a nanosecond and 4nrd at 10 take equally long, for r = 64?",
    right=8 * 64,
    unit="tokens",
    mistakes={
        64: (
            "There the counts are equal. The features' FLOPs take 8 times as long each, so at this "
            "length they lose."
        ),
        8: (
            "The other way round: the slower FLOPs are those of the features, so the times cross "
            "at a larger length than the counts."
        ),
        4096: "One r too many: divide 4n²d / 80 = 4nrd / 10 by 4nd first.",
    },
)


check_training_gain = NumberExercise(
    "Is it how many times faster a step is if 20 % of its time gets 10 times faster?",
    right=1 / (0.8 + 0.2 / 10),
    tolerance=2e-3,
    unit="times",
    mistakes={
        10: "Only attention gets 10 times faster; the other 80 % of the step take as long as ever.",
        2: "20 % of the factor is not the answer: add up the times, 0.8 and 0.2 / 10.",
        0.8 + 0.2 / 10: (
            "That is the new time as a share of the old one; how many times faster is its inverse."
        ),
        1 / 0.8: "That is the limit, when attention takes no time at all.",
        1.18: "That is 1 + 0.18, what is saved. The step is 1 / 0.82 times as fast.",
    },
)


# ---- an exponent


def _slope(x: Tensor, y: Tensor) -> Tensor:
    x, y = x - x.mean(), y - y.mean()
    return (x * y).sum() / x.square().sum()


def _exponent(sizes: Tensor, costs: Tensor) -> Tensor:
    return _slope(sizes.log(), costs.log())


def _exponent_cases() -> Iterator[Arguments]:
    cases = (
        ([128.0, 256, 512, 2048, 4096], [3.1, 5.2, 14.0, 170.0, 644.0]),
        ([64.0, 96, 512, 1000], [7.0, 7.5, 21.0, 33.0]),
    )
    for sizes, costs in cases:
        given = {
            "sizes": torch.tensor(sizes, dtype=torch.float64),
            "costs": torch.tensor(costs, dtype=torch.float64),
        }
        yield given


check_exponent = Exercise(
    """Is it the least-squares slope of log costs against log sizes? `exponent(sizes, costs)`.

    `sizes` and `costs` are float64 (n,), all positive. Called with five and with four points.
    """,
    right=_exponent,
    cases=_exponent_cases,
    axes="",
    mistakes={
        _slope: "The logarithms are missing: a power is a straight line only against logarithms.",
        (lambda sizes, costs: _slope(sizes, costs.log())): (
            "Only the costs are logarithms; the sizes need one too."
        ),
        (lambda sizes, costs: _slope(sizes.log(), costs)): (
            "Only the sizes are logarithms; the costs need one too."
        ),
        (lambda sizes, costs: (costs[-1] / costs[0]).log() / (sizes[-1] / sizes[0]).log()): (
            "It is the slope from the first point to the last; the points between count as well."
        ),
        (lambda sizes, costs: (sizes.log() * costs.log()).sum() / sizes.log().square().sum()): (
            "The line goes through the origin: subtract the means first, so that a constant factor "
            "in front of the power changes nothing."
        ),
        (lambda sizes, costs: _exponent(costs, sizes)): (
            "Sizes and costs are exchanged: the covariance is divided by the square of the "
            "logarithms of the sizes."
        ),
        (lambda sizes, costs: (_exponent(sizes, costs) * _exponent(costs, sizes)).sqrt()): (
            "That is the correlation, at most 1: divide by the squares of the sizes alone."
        ),
    },
    praise="A factor in front of the power moves the line and leaves the slope.",
)


# ---- a stop-watch


class _Call:
    """A call on the pretended machine: it takes its time, and the machine's clock goes on."""

    def __init__(self, machine: "_Machine", name: str, seconds: float) -> None:
        self.machine, self.name, self.seconds, self.calls = machine, name, seconds, 0

    def __call__(self) -> None:
        first = 40.0 if self.calls == 0 else 0.0
        self.machine.now += self.seconds * self.machine.slowness() + first
        self.machine.calls += 1
        self.calls += 1


class _Machine:
    """A machine whose times are known: first calls take 40 s longer, and it slows down."""

    def __init__(self, busy: Sequence[int]) -> None:
        self.now, self.calls, self.busy = 1000.0, 0, busy
        self.ours, self.base = _Call(self, "ours", 3.0), _Call(self, "base", 2.0)

    def slowness(self) -> float:
        """Each call slower than the one before; some calls four times as slow besides."""
        return (1 + 0.05 * self.calls) * (4 if self.calls in self.busy else 1)

    def clock(self) -> float:
        return self.now


def _rounds(ours: Any, base: Any, rounds: int, clock: Any) -> list[tuple[float, float]]:
    def seconds(call: Any) -> float:
        start = clock()
        call()
        return float(clock() - start)

    return [(seconds(ours), seconds(base)) for _ in range(rounds)]


def _warm(ours: Any, base: Any, rounds: int, clock: Any) -> list[tuple[float, float]]:
    ours(), base()
    return _rounds(ours, base, rounds, clock)


def _fair(ours: Any, base: Any, rounds: int, clock: Any) -> float:
    return statistics.median(a / b for a, b in _warm(ours, base, rounds, clock))


def _of_medians(*given: Any) -> float:
    a, b = zip(*_warm(*given), strict=True)
    return statistics.median(a) / statistics.median(b)


def _of_totals(*given: Any) -> float:
    a, b = zip(*_warm(*given), strict=True)
    return float(sum(a) / sum(b))


def _one_after_the_other(
    ours: Any, base: Any, rounds: int, clock: Any, *, medians: bool = False
) -> float:
    ours(), base()
    first = [pair[0] for pair in _rounds(ours, lambda: None, rounds, clock)]
    then = [pair[0] for pair in _rounds(base, lambda: None, rounds, clock)]
    if medians:
        return statistics.median(first) / statistics.median(then)
    return statistics.median(a / b for a, b in zip(first, then, strict=True))


_IN_BLOCKS = (
    "All rounds of the one come before all rounds of the other: the machine got slower in between, "
    "and the second pays for it. Call them in turn."
)


def _timed(function: Function, rounds: int, busy: Sequence[int]) -> Any:
    machine = _Machine(busy)
    given = {"ours": machine.ours, "base": machine.base, "rounds": rounds, "clock": machine.clock}
    answer = run(function, given)
    if answer.raised:
        raise Mistake(f"ratio(ours, base, {rounds}, clock) {answer.raised}. {answer.hint}".rstrip())
    for call in (machine.ours, machine.base):
        if call.calls < rounds:
            raise Mistake(
                f"With {rounds} rounds, {call.name}() was called {call.calls} times: each round "
                "calls both."
            )
    return answer.value


_ROUNDS: dict[int, tuple[int, int]] = {7: (5, 10), 6: (4, 9)}  # and which calls are disturbed


def _ratios(function: Function) -> list[float]:
    """What it gives for each number of rounds, to the six digits that a float32 holds."""
    found = []
    for rounds, busy in _ROUNDS.items():
        value = _timed(function, rounds, busy)
        number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        if not isinstance(number, numbers.Real):
            raise Mistake(f"ratio(…) should give one number; it gave {type_name(value)}.")
        found.append(float(f"{number:.6g}"))
    return found


def _other_ratio(found: list[float], wanted: list[float]) -> str:
    rounds, got, right = next(
        one for one in zip(_ROUNDS, found, wanted, strict=True) if one[1] != one[2]
    )
    return f"With {rounds} rounds it gave {got:.4g}; it should be {right:.4g}."


check_stopwatch = ObservedExercise(
    """Is it a fair comparison? `ratio(ours, base, rounds, clock)` → own time over the base's.

    `ours()` and `base()` take time, `clock()` gives seconds. Each is called once before anything is
    measured, then in turn, ours before base; the result is the median of the ratios of the rounds.
    Called on a pretended machine whose first calls take long, which gets slower all the time, and
    which is disturbed twice.
    """,
    right=_fair,
    observe=_ratios,
    mistakes={
        (lambda *given: statistics.median(a / b for a, b in _rounds(*given))): (
            "The first call of each is measured: it includes what happens only once. Call both "
            "once before the clock starts."
        ),
        (lambda *given: statistics.fmean(a / b for a, b in _warm(*given))): (
            "It is the mean of the ratios: one call that was disturbed moves it. Take the median."
        ),
        _of_medians: "It is the ratio of the two medians: they may come from different rounds, and "
        "the machine got slower in between. Take the ratio in each round, then the median of the "
        "ratios.",
        _one_after_the_other: _IN_BLOCKS,
        partial(_one_after_the_other, medians=True): _IN_BLOCKS,
        (lambda *given: statistics.median(b / a for a, b in _warm(*given))): (
            "The ratio is upside down: own time over the time of the base."
        ),
        _of_totals: "It is one total over the other: a single call that was disturbed decides it. "
        "Take the median of the ratios.",
        (lambda *given: min(a / b for a, b in _warm(*given))): (
            "It is the smallest ratio: a call of the base that was disturbed makes it small. Take "
            "the median."
        ),
    },
    explain=_other_ratio,
    praise="A first call, a slow machine and a disturbed round: none of them changes the ratio.",
)
