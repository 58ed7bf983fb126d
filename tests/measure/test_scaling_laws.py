"""Laws with a floor: planted ones are found again, published ones give the published numbers."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from attnlab.measure.scaling_laws import HOFFMANN, KAPLAN, Law, fit_law

PLANTED = Law(1.2, (30.0, 120.0), (0.35, 0.4))
SIZES, TOKENS = (6e3, 14e3, 25e3, 55e3, 98e3), (1e5, 2e5, 4e5)
SETTINGS = [each for each in itertools.product(SIZES, TOKENS) for _ in range(3)]
N, D = ([each[i] for each in SETTINGS] for i in (0, 1))


def drawn(law: Law, noise: float, seed: int = 0) -> list[float]:
    chance = np.random.default_rng(seed)
    each = chance.normal(0, noise, len(SETTINGS)) if noise else np.zeros(len(SETTINGS))
    return [law.loss(*one) * math.exp(e) for one, e in zip(SETTINGS, each, strict=True)]


def test_without_noise_the_planted_law_is_found() -> None:
    found = fit_law((N, D), drawn(PLANTED, 0), draws=1).law
    assert found.floor == pytest.approx(PLANTED.floor, rel=1e-3)
    assert found.exponents == pytest.approx(PLANTED.exponents, rel=1e-3)
    assert found.factors == pytest.approx(PLANTED.factors, rel=1e-2)


def test_with_one_term_too() -> None:
    planted, compute = Law(2.0, (50.0,), (0.3,)), np.logspace(3, 8, 9)
    losses = [planted.loss(float(c)) for c in compute]
    found = fit_law([compute.tolist()], losses, draws=1).law
    assert (found.floor, *found.exponents) == pytest.approx((2.0, 0.3), rel=1e-3)


def test_the_planted_law_lies_within_most_intervals_and_predicts() -> None:
    """Of 10 planted data sets, each with the noise of its own seed, at 95 %: by chance fewer than
    7 intervals would hold once in 10,000 times, if each held with that probability."""
    held = np.zeros(4, dtype=int)
    for seed in range(10):
        fit = fit_law((N, D), drawn(PLANTED, 0.005, seed), draws=100, delta=0.01)
        far = PLANTED.loss(4e5, 8e5)
        pairs = (
            (fit.interval("floor"), PLANTED.floor),
            (fit.interval("exponent", 0), PLANTED.exponents[0]),
            (fit.interval("exponent", 1), PLANTED.exponents[1]),
            (fit.band(4e5, 8e5), far),
        )
        held += [low <= true <= high for (low, high), true in pairs]
        assert 0.003 < fit.scatter < 0.008
        low, high = fit.band(4e5, 8e5)
        assert high / low < 1.15
    assert held.min() >= 7, held


def test_a_band_holds_the_noise_of_one_more_training() -> None:
    """In the middle of the data the law itself is known far better than that."""
    fit = fit_law((N, D), drawn(PLANTED, 0.02), draws=100, delta=0.01)
    low, high = fit.band(25e3, 2e5)
    laws = [law.loss(25e3, 2e5) for law in fit.drawn]
    assert math.log(high / low) > 2 * 1.2 * 0.02
    assert math.log(max(laws) / min(laws)) < math.log(high / low)


def test_one_failed_training_moves_the_law_little() -> None:
    losses = drawn(PLANTED, 0.002)
    losses[-1] *= 3
    found = fit_law((N, D), losses, draws=1)
    assert found.law.loss(4e5, 8e5) == pytest.approx(PLANTED.loss(4e5, 8e5), rel=0.03)
    squares = fit_law((N, D), losses, draws=1, delta=1e3)  # Huber's loss without its robust part
    assert abs(squares.law.loss(4e5, 8e5) / PLANTED.loss(4e5, 8e5) - 1) > 0.05


def test_a_line_through_logarithms_would_find_a_power_that_is_too_small() -> None:
    """What the floor is for: with E = 1.2 the loss falls by far less than its power."""
    planted, compute = Law(1.2, (20.0,), (0.3,)), np.logspace(3, 6, 7)
    losses = [planted.loss(float(c)) for c in compute]
    line = -np.polyfit(np.log(compute), np.log(losses), 1)[0]
    assert line < 0.6 * fit_law([compute.tolist()], losses, draws=1).law.exponents[0]


def test_equal_seeds_give_equal_intervals() -> None:
    losses = drawn(PLANTED, 0.005)
    one, two, other = (fit_law((N, D), losses, draws=20, seed=s) for s in (0, 0, 1))
    assert one.drawn == two.drawn != other.drawn


# ---- published


def test_hoffmann_gives_chinchillas_loss_and_a_best_size_that_is_best() -> None:
    assert HOFFMANN.loss(70e9, 1.4e12) == pytest.approx(1.937, abs=2e-3)
    parameters, tokens = HOFFMANN.best(5.76e23)
    assert 6 * parameters * tokens == pytest.approx(5.76e23)
    best = HOFFMANN.loss(parameters, tokens)
    for factor in (0.9, 1.1):
        assert HOFFMANN.loss(parameters * factor, tokens / factor) > best
    double = HOFFMANN.best(2 * 5.76e23)[0] / parameters
    assert math.log2(double) == pytest.approx(0.28 / 0.62)


def test_kaplan_gives_his_powers() -> None:
    many = 1e40
    of_size = KAPLAN.loss(1e9, many) / KAPLAN.loss(2e9, many)
    of_text = KAPLAN.loss(many, 1e9) / KAPLAN.loss(many, 2e9)
    assert math.log2(of_size) == pytest.approx(0.076, rel=1e-3)
    assert math.log2(of_text) == pytest.approx(0.103, rel=1e-3)
    assert KAPLAN.loss(6.4e13, many) == pytest.approx(1, rel=1e-3)
    assert KAPLAN.best(1e15 * 86400) == pytest.approx((1.3e9, 2e10))
    assert KAPLAN.best(1e16 * 86400)[0] == pytest.approx(1.3e9 * 10**0.73)


# ---- bad input

FIT: dict[str, Any] = {"inputs": (N, D), "losses": drawn(PLANTED, 0.005), "draws": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": (N[:4], D[:4]), "losses": [3.0, 2.0, 1.9, 1.8]},
         "2 terms has 5 parameters, and 2 different sizes cannot tell them; train at least 5"),
        ({"inputs": (N, [1e5] * 44 + [2e5])}, "input 1 has 2 different values; a power and"),
        ({"losses": [1 / each for each in drawn(PLANTED, 0)]}, "do not fall with input 0"),
        ({"losses": [2.0] * 45}, "the losses do not fall with input 0: 2 in the mean"),
        ({"losses": [0.0] * 45}, "finite numbers above 0"),
        ({"losses": [math.nan] * 45}, "finite numbers above 0"),
        ({"inputs": (N, [-each for each in D])}, "finite numbers above 0"),
        ({"losses": [2.0] * 44}, "each input needs one value for each loss, got inputs of shape"),
        ({"inputs": (N, D[:-1])}, "lists of numbers of one length"),
        ({"inputs": "many"}, "lists of numbers of one length"),
        ({"level": 1.0}, "level should lie between 0 and 1, such as 0.95, got 1.0"),
        ({"draws": 0}, "draws should be at least 1"),
        ({"delta": 0.0}, "delta should be above 0, got 0.0"),
    ],
)  # fmt: skip
def test_a_fit_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        fit_law(**{**FIT, **changes})


def test_bad_values_of_a_law_are_refused() -> None:
    with pytest.raises(ValueError, match="this law takes 2 values, got 1"):
        HOFFMANN.loss(1e9)
    with pytest.raises(ValueError, match="each value of a law should be above 0, got 0"):
        KAPLAN.loss(0, 1e9)
    with pytest.raises(TypeError, match="each value of a law should be a number"):
        HOFFMANN.loss("1e9", 1e9)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="this law has 1 term in the place of two"):
        Law(1.0, (2.0,), (0.5,)).best(1e20)
    fit = fit_law(**FIT)
    with pytest.raises(ValueError, match="part should be 'floor', 'factor' or 'exponent', got"):
        fit.interval("slope")
    with pytest.raises(ValueError, match="term should be below 2, got 2"):
        fit.interval("factor", 2)
    with pytest.raises(ValueError, match="each value of a law should be above 0"):
        fit.band(1e9, -1.0)
