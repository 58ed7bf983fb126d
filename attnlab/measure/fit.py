"""What measured points say: the exponent in n, where two curves cross, the time at another length.

Every answer comes with an interval. Those of a line through logarithms are Student's; they hold
the scatter about the line, not a curve that bends beyond the measured lengths. That of a crossover
is from resampled rounds (the bootstrap).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from attnlab.core.integers import check_integer
from attnlab.measure.count import exponent


@dataclass(frozen=True)
class Fit:
    """values ≈ constant · nᵃ, or constant · nᵃ log₂ n where `log`; a is `slope`.

    `low` and `high` bound the slope at `level`; both are infinite for two points, which leave
    nothing to judge the scatter by.
    """

    slope: float
    low: float
    high: float
    constant: float
    level: float
    log: bool
    sizes: tuple[float, ...]
    scatter: float

    def at(self, n: float) -> float:
        """The fitted value at length n."""
        return self.constant * n**self.slope * (math.log2(n) if self.log else 1.0)

    def band(self, n: float) -> tuple[float, float]:
        """The interval in which one more value measured at length n is expected."""
        x = np.log(np.asarray(self.sizes))
        away = (math.log(n) - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
        freedom = len(x) - 2
        if not freedom:
            return 0.0, math.inf
        reach = student(self.level, freedom) * self.scatter * math.sqrt(1 + 1 / len(x) + away)
        return self.at(n) * math.exp(-reach), self.at(n) * math.exp(reach)

    def agrees(self, claim: float, within: float = 0.15) -> bool:
        """Whether the slope is the claimed one, to `within`, or by its own interval."""
        return abs(self.slope - claim) <= within or self.low <= claim <= self.high

    def __str__(self) -> str:
        shape = "n^a log n, a" if self.log else "n^a, a"
        return f"{shape} = {self.slope:.2f} ({self.low:.2f} … {self.high:.2f}, {self.level:.0%})"


def fit(
    sizes: Sequence[float], values: Sequence[float], *, level: float = 0.95, log: bool = False
) -> Fit:
    """Least squares on the logarithms: the power of n with which `values` grow, with its interval.

    With `log`, values are divided by log₂ n first: for what claims n log n, whose power of n is 1
    then. Raises ValueError for fewer than two sizes and for what has no logarithm.
    """
    _check_level(level)
    divided = list(values)
    if log:
        if min(sizes, default=2) <= 1:
            raise ValueError("n log n needs lengths greater than 1: the logarithm of 1 is 0")
        divided = [value / math.log2(n) for n, value in zip(sizes, values, strict=True)]
    slope, error = exponent(sizes, divided)
    x, y = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(divided, dtype=float))
    middle = float(y.mean() - slope * x.mean())
    freedom = len(x) - 2
    residual = y - middle - slope * x
    scatter = math.sqrt(residual @ residual / freedom) if freedom else math.inf
    reach = student(level, freedom) * error if freedom else math.inf
    lengths = tuple(float(n) for n in sizes)
    return Fit(slope, slope - reach, slope + reach, math.exp(middle), level, log, lengths, scatter)


def student(level: float, freedom: int) -> float:
    """The t with which Student's distribution has the probability `level` between −t and t."""
    freedom = check_integer("freedom", freedom, at_least=1)
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| ≤ t) for whole degrees of freedom: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (step - 1) / step
        total += term
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level should lie between 0 and 1, such as 0.95, got {level!r}")


# ---- crossover


@dataclass(frozen=True)
class Crossover:
    """The length from which on one layer stays faster than another.

    `n` is None where there is none between the measured lengths; `low` and `high` bound it at
    `level` (0 and infinity: the layer is already faster at the shortest, or not yet at the
    longest). `sentence` says it in words.
    """

    n: float | None
    low: float
    high: float
    level: float
    sentence: str


def crossover(
    ours: Mapping[int, Sequence[float]],
    base: Mapping[int, Sequence[float]],
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Crossover:
    """Where `ours` last becomes faster than `base`, from length → seconds of paired rounds.

    Between two lengths the ratio is taken as a straight line between logarithms. For the interval
    rounds are drawn with replacement, `draws` times.
    """
    _check_level(level)
    lengths = sorted(set(ours) & set(base))
    if len(lengths) < 2:
        raise ValueError("a crossover needs at least two lengths that both were timed at")
    ratios = []
    for n in lengths:
        if len(ours[n]) != len(base[n]) or not len(ours[n]):
            raise ValueError(f"rounds go in pairs: {len(ours[n])} and {len(base[n])} at n = {n}")
        ratios.append(np.asarray(ours[n]) / np.asarray(base[n]))
    found = _crossing(lengths, [float(np.median(ratio)) for ratio in ratios])
    chance = np.random.default_rng(seed)
    drawn = [
        _crossing(lengths, [float(np.median(chance.choice(r, len(r)))) for r in ratios])
        for _ in range(check_integer("draws", draws, at_least=1))
    ]
    tail = (1 - level) / 2
    low, high = (float(np.quantile(drawn, at, method="nearest")) for at in (tail, 1 - tail))
    inside = None if found in (0.0, math.inf) else found
    return Crossover(inside, low, high, level, _sentence(found, low, high, level, lengths))


def _crossing(lengths: Sequence[int], ratios: Sequence[float]) -> float:
    """0 where every ratio is below one, infinity where the last one is not."""
    if ratios[-1] >= 1:
        return math.inf
    for (short, above), (long, below) in reversed(
        list(pairwise(zip(lengths, ratios, strict=True)))
    ):
        if above >= 1 > below:
            part = math.log(above) / math.log(above / below)
            return short * (long / short) ** part
    return 0.0


def _sentence(found: float, low: float, high: float, level: float, lengths: Sequence[int]) -> str:
    shortest, longest = f"{lengths[0]:,}", f"{lengths[-1]:,}"
    if found == math.inf:
        return f"not faster at n = {longest}, the longest measured"
    if found == 0:
        return f"faster at every length measured, from n = {shortest} on"
    bounds = [
        f"below {shortest}" if low == 0 else f"{low:,.0f}",
        f"beyond {longest}" if high == math.inf else f"{high:,.0f}",
    ]
    return f"faster from n = {found:,.0f} on ({' … '.join(bounds)}, {level:.0%})"


# ---- extrapolation


@dataclass(frozen=True)
class Extrapolation:
    """The value expected at a length that was not measured, and the interval it should lie in."""

    n: int
    value: float
    low: float
    high: float
    level: float


def extrapolate(
    sizes: Sequence[float], values: Sequence[float], n: int, *, level: float = 0.95,
    log: bool = False,
) -> Extrapolation:  # fmt: skip
    """The fitted line at length n, with the interval for one more measurement there.

    The interval supposes that the line goes on: beyond a cache or a kernel's limit it may not.
    """
    n = check_integer("n", n, at_least=2)
    line = fit(sizes, values, level=level, log=log)
    return Extrapolation(n, line.at(n), *line.band(n), level)


# ---- training

KG_PER_POUND = 0.45359237
STRUBELL = "Strubell et al., 2019, Energy and Policy Considerations for Deep Learning in NLP"


@dataclass(frozen=True)
class PublishedTraining:
    """One row of the published table of training costs; None where it has none. USD (low, high)."""

    model: str
    date: str
    kwh: float | None
    pounds_co2: float | None
    dollars: tuple[int, int]


PUBLISHED = (
    PublishedTraining("Transformer (65M parameters)", "June 2017", 27, 26, (41, 140)),
    PublishedTraining("Transformer (213M parameters)", "June 2017", 201, 192, (289, 981)),
    PublishedTraining("ELMo", "February 2018", 275, 262, (433, 1472)),
    PublishedTraining("BERT (110M parameters)", "October 2018", 1507, 1438, (3751, 12571)),
    PublishedTraining(
        "Transformer (213M parameters) with neural architecture search",
        "January 2019",
        656_347,
        626_155,
        (942_973, 3_201_722),
    ),
    PublishedTraining("GPT-2", "February 2019", None, None, (12_902, 43_008)),
)
"""Table 3 of Strubell et al., 2019, arXiv:1906.02243."""


@dataclass(frozen=True)
class TrainingCost:
    """What training would take; `assumptions` says in a sentence what this rests on."""

    seconds_per_token: float
    hours: float
    kwh: float
    kg_co2: float
    assumptions: str


def training_cost(
    seconds: float,
    tokens_a_pass: int,
    *,
    tokens: float,
    watts: float,
    overhead: float = 1.58,
    kg_per_kwh: float = 0.954 * KG_PER_POUND,
) -> TrainingCost:
    """Time, energy and CO₂ of training on `tokens` tokens, from the time of one pass over some.

    `seconds` is the time of forward and backward pass over `tokens_a_pass` tokens, `watts` what the
    machine draws meanwhile: look it up or measure it, it is not guessed here. `overhead` (power
    usage effectiveness of a data centre) and `kg_per_kwh` (0.954 pounds of CO₂, average of the
    United States) are those of Strubell et al. 2019, equations 1 and 2.
    """
    given = {"seconds": seconds, "tokens": tokens, "watts": watts, "overhead": overhead}
    for name, value in given.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} should be a positive number, got {value!r}")
    tokens_a_pass = check_integer("tokens_a_pass", tokens_a_pass, at_least=1)
    hours = seconds / tokens_a_pass * tokens / 3600
    kwh = overhead * hours * watts / 1000
    assumptions = (
        f"{watts:g} W drawn all the time, {overhead:g} times that for the data centre and "
        f"{kg_per_kwh:.3f} kg of CO₂ a kWh ({STRUBELL}); the time of a pass as measured, the "
        "optimizer's step not included"
    )
    return TrainingCost(seconds / tokens_a_pass, hours, kwh, kwh * kg_per_kwh, assumptions)
