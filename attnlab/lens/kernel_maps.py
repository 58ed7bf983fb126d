"""The attention map that a feature map implies, its error, and its speed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.arguments import check_flag, check_number
from attnlab.core.integers import check_integer
from attnlab.core.probe import record
from attnlab.core.softmax import masked_softmax
from attnlab.core.suggest import choose
from attnlab.mechanisms.kernelized import linear, performer
from attnlab.mechanisms.kernelized.linear import recurrence as linear_recurrence

KINDS = {
    "softmax": "softmax, exact",
    "elu": "elu + 1",
    "relu": "relu",
    "dpfp": "DPFP",
    "positive": "random: positive",
    "hyperbolic": "random: hyperbolic",
    "relu random": "random: relu",
    "trigonometric": "random: cos and sin",
}
RANDOM = ("positive", "hyperbolic", "relu random", "trigonometric")
MOST = 16_384  # features
HEADS = 4  # that are timed


@dataclass(frozen=True)
class Choice:
    """A feature map and its options; ``temperature`` divides the logits."""

    feature: str = "positive"
    features: int = 64
    orthogonal: bool = True
    seed: int = 0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        choose("feature map", self.feature, KINDS)
        check_integer("`features`", self.features)
        check_integer("`seed`", self.seed)
        check_flag("orthogonal", self.orthogonal)
        check_number("temperature", self.temperature)
        if not 1 <= self.features <= MOST:
            raise ValueError(f"`features` should be between 1 and {MOST:,}, got {self.features}")
        if self.seed < 0:
            raise ValueError(f"`seed` should not be negative, got {self.seed}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"`temperature` should be above 0 and finite, got {self.temperature}")

    @property
    def random(self) -> bool:
        return self.feature in RANDOM

    def nu(self, width: int) -> int:
        """DPFP's ν whose number of features, a multiple of 2d, is nearest to `features`."""
        return max(1, min(round(self.features / (2 * width)), 2 * width - 1))

    def count(self, width: int) -> int | None:
        """Features per token; None for the softmax, which has infinitely many."""
        sizes = {
            "softmax": None,
            "elu": width,
            "relu": width,
            "dpfp": 2 * width * self.nu(width),
            "hyperbolic": 2 * self.features,
            "trigonometric": 2 * self.features,
        }
        return sizes.get(self.feature, self.features)

    def rows(self, width: int) -> Tensor:
        draw = performer.orthogonal_rows if self.orthogonal else performer.gaussian_rows
        return draw(self.features, width, torch.Generator().manual_seed(self.seed))


@dataclass(frozen=True)
class Approximation:
    """An implied map beside the exact one, both (n, m).

    ``misplaced``   of each row, half the sum of the differences: 0 is the same row
    ``negative``    rows that were divided by a number below zero
    ``empty``       rows whose weights are all zero
    """

    exact: Tensor
    map: Tensor
    misplaced: Tensor
    negative: int
    empty: int

    @property
    def error(self) -> float:
        return self.misplaced.mean().item()


def approximate(q: Tensor, k: Tensor, choice: Choice, *, causal: bool) -> Approximation:
    """The map that `choice` implies for one head's queries (n, d) and keys (m, d), in float64."""
    q, k = (x.double() * choice.temperature**-0.5 for x in (q, k))
    seen = (patterns.causal() if causal else patterns.full()).dense(len(q), len(k))
    exact = masked_softmax(q @ k.mT * q.shape[-1] ** -0.5, seen)
    weights, totals = _weights(q, k, choice, seen, causal)
    misplaced = (weights - exact).abs().sum(dim=-1) / 2
    empty = (weights == 0).all(dim=-1) & seen.any(dim=-1)
    return Approximation(exact, weights, misplaced, int((totals < 0).sum()), int(empty.sum()))


def _weights(
    q: Tensor, k: Tensor, choice: Choice, seen: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """The map, and what its rows were divided by (positive but for the trigonometric one)."""
    one = q.new_ones(len(q))
    if choice.feature == "softmax":
        return masked_softmax(q @ k.mT * q.shape[-1] ** -0.5, seen), one
    if choice.feature == "trigonometric":
        return _trigonometric(q, k, choice.rows(q.shape[-1]), seen)
    with record() as notes:
        one_q, one_k = q[None, None], k[None, None]
        if choice.random:
            rows = choice.rows(q.shape[-1])[None]
            drawn = _random_features(choice)
            performer.rescaled(one_q, one_k, one_k, rows, causal=causal, options=drawn)
        else:
            linear.naive(one_q, one_k, one_k, causal=causal, options=_features(choice, q))
    return notes["weights"][0][0, 0], one


def _random_features(choice: Choice) -> performer.PerformerOptions:
    return performer.PerformerOptions(kernel=choice.feature.split()[0])  # type: ignore[arg-type]


def _features(choice: Choice, q: Tensor) -> linear.LinearOptions:
    nu = choice.nu(q.shape[-1]) if choice.feature == "dpfp" else None
    return linear.LinearOptions(feature=choice.feature, nu=nu)  # type: ignore[arg-type]


def _trigonometric(q: Tensor, k: Tensor, rows: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Weights from cosines and sines. The factor common to a row is left out: it cancels."""
    x, y = (z * z.shape[-1] ** -0.25 for z in (q, k))
    waves = [torch.cat((a.cos(), a.sin()), dim=-1) for a in (x @ rows.mT, y @ rows.mT)]
    half_norms = y.square().sum(dim=-1) / 2
    scores = waves[0] @ waves[1].mT / len(rows) * torch.exp(half_norms - half_norms.amax())
    scores = scores.masked_fill(~seen, 0)
    totals = scores.sum(dim=-1)
    return scores * linear_recurrence.reciprocal(totals[:, None]), totals


@dataclass(frozen=True)
class Speed:
    """Medians in seconds of the chosen form and of exact softmax, and the median of ratios."""

    own: float
    exact: float
    ratio: float


def speed(choice: Choice, width: int, n: int, *, causal: bool, runs: int = 5) -> Speed:
    """A forward pass of the linear form beside PyTorch's exact one, ``HEADS`` heads, in turns."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, n, width, generator=generator)
    calls: Mapping[str, Callable[[], Tensor]] = {
        "exact": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        "own": _form(choice, q, k, v, causal),
    }
    with torch.no_grad():
        _rounds(calls, 1)  # the first calls are slower
        exact, own = zip(*_rounds(calls, runs), strict=True)
    ratio = median(b / a for a, b in zip(exact, own, strict=True))
    return Speed(median(own), median(exact), ratio)


def _rounds(calls: Mapping[str, Callable[[], Tensor]], count: int) -> list[list[float]]:
    """Seconds of each call, `count` times in turn, so that a slow moment slows all alike."""
    return [[_seconds(call) for call in calls.values()] for _ in range(count)]


def _seconds(call: Callable[[], Tensor]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _form(choice: Choice, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Callable[[], Tensor]:
    if not choice.random:
        features = _features(choice, q)
        return lambda: linear.chunked(q, k, v, causal=causal, options=features)
    rows = choice.rows(q.shape[-1]).float().expand(HEADS, -1, -1)
    if choice.feature == "trigonometric":
        return lambda: linear_recurrence.chunked(_waves(q, rows), _waves(k, rows), v, causal=causal)
    drawn = _random_features(choice)
    return lambda: performer.chunked(q, k, v, rows, causal=causal, options=drawn)


def _waves(x: Tensor, rows: Tensor) -> Tensor:
    return performer.trigonometric_features(x * x.shape[-1] ** -0.25, rows)
