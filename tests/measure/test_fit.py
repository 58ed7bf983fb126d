"""Fits: slopes with Student's interval, crossovers from resampled rounds, training costs."""

import math

import numpy as np
import pytest

from attnlab.measure.fit import (
    KG_PER_POUND,
    PUBLISHED,
    crossover,
    extrapolate,
    fit,
    student,
    training_cost,
)

SIZES = [2.0**k for k in range(10, 15)]


def test_a_power_is_found_exactly():
    found = fit(SIZES, [3 * n**1.5 for n in SIZES])
    assert found.slope == pytest.approx(1.5)
    assert found.high - found.low < 1e-6
    assert found.at(5000) == pytest.approx(3 * 5000**1.5)
    assert found.agrees(1.5)
    assert not found.agrees(1.7)


def test_n_log_n_has_a_fit_of_its_own():
    values = [7 * n * math.log2(n) for n in SIZES]
    assert fit(SIZES, values, log=True).slope == pytest.approx(1)
    assert fit(SIZES, values, log=True).at(999) == pytest.approx(7 * 999 * math.log2(999))
    assert fit(SIZES, values).slope > 1.05
    with pytest.raises(ValueError, match="n log n needs lengths greater than 1"):
        fit([1, 2], [1, 2], log=True)


@pytest.mark.parametrize(
    ("level", "freedom", "t"),
    [(0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 3, 3.182), (0.99, 5, 4.032), (0.9, 30, 1.697)],
)
def test_students_t_is_that_of_the_tables(level, freedom, t):
    assert student(level, freedom) == pytest.approx(t, abs=6e-4)


def test_the_interval_holds_the_slope_as_often_as_it_says():
    chance = np.random.default_rng(3)
    x = np.log(SIZES)
    held = [
        (found := fit(SIZES, np.exp(1.2 * x + 0.1 * chance.standard_normal(5)), level=0.8)).low
        <= 1.2 <= found.high
        for _ in range(400)
    ]  # fmt: skip
    assert 0.74 < np.mean(held) < 0.86


def test_extrapolation_holds_a_new_point_as_often_as_it_says():
    chance, held = np.random.default_rng(4), []
    for _ in range(400):
        noise = np.exp(0.1 * chance.standard_normal(6))
        values = [2 * n * e for n, e in zip(SIZES, noise[:5], strict=True)]
        there = extrapolate(SIZES, values, 5000, level=0.8)
        held.append(there.low <= 2 * 5000 * noise[5] <= there.high)
    assert 0.74 < np.mean(held) < 0.86


def test_two_points_have_no_interval():
    found = fit([1, 2], [1, 2])
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.band(4) == (0.0, math.inf)


def rounds(ratio, chance, number=11):
    base = np.exp(0.3 * chance.standard_normal(number))  # a drift that both share
    return base * ratio * np.exp(0.05 * chance.standard_normal(number)), base


def test_a_crossover_lies_where_the_curves_meet():
    chance = np.random.default_rng(5)
    lengths = [256, 512, 1024, 2048, 4096]
    drawn = {n: rounds(1500 / n, chance) for n in lengths}
    found = crossover({n: a for n, (a, _) in drawn.items()}, {n: b for n, (_, b) in drawn.items()})
    assert found.n == pytest.approx(1500, rel=0.06)
    assert found.low <= 1500 <= found.high
    assert 1 < found.high / found.low < 1.3
    assert "faster from n = 1," in found.sentence


@pytest.mark.parametrize(
    ("ratio", "words"), [(0.5, "faster at every length"), (2.0, "not faster at n = 2,048")]
)
def test_no_crossover_is_said_in_words(ratio, words):
    chance = np.random.default_rng(6)
    drawn = {n: rounds(ratio, chance) for n in (1024, 2048)}
    found = crossover({n: a for n, (a, _) in drawn.items()}, {n: b for n, (_, b) in drawn.items()})
    assert found.n is None
    assert words in found.sentence
    assert (found.low, found.high) == ((0.0, 0.0) if ratio < 1 else (math.inf, math.inf))


def test_rounds_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="rounds go in pairs: 2 and 1 at n = 8"):
        crossover({8: [1, 2], 16: [1]}, {8: [1], 16: [1]})
    with pytest.raises(ValueError, match="at least two lengths"):
        crossover({8: [1]}, {8: [1]})


def test_energy_and_co2_follow_from_the_stated_assumptions():
    cost = training_cost(0.5, 1000, tokens=3.6e9, watts=100, overhead=2, kg_per_kwh=0.5)
    assert cost.seconds_per_token == 0.0005
    assert cost.hours == pytest.approx(500)
    assert cost.kwh == pytest.approx(100)
    assert cost.kg_co2 == pytest.approx(50)
    assert "100 W" in cost.assumptions
    with pytest.raises(ValueError, match="watts should be a positive number"):
        training_cost(1, 1, tokens=1, watts=0)


def test_the_default_conversion_is_that_of_the_published_table():
    """Its rows of energy and CO₂ agree with its own 0.954 pounds a kilowatt-hour."""
    for row in PUBLISHED:
        if row.kwh is not None:
            assert row.pounds_co2 == pytest.approx(0.954 * row.kwh, rel=0.02)
    cost = training_cost(1, 1, tokens=3600 * 1000, watts=1, overhead=1)
    assert cost.kg_co2 == pytest.approx(0.954 * KG_PER_POUND)
