"""What rows say: exponents, overhead, crossovers, and what two runs differ in."""

import numpy as np
import pytest

from attnlab.measure.summary import changes, changes_table, summaries, table, verdict

LENGTHS = (1024, 2048, 4096, 8192)


def row(n, of, seconds=None, *, mechanism="linear", baseline=None, reason=None, **more):
    seconds = None if seconds is None else list(seconds)
    return {
        "mechanism": mechanism, "peer": None, "family": "kernelized", "form": "chunked", "dim": 8,
        "heads": 2, "causal": False, "options": {}, "n": n, "pass": of, "device": "cpu",
        "dtype": "float32", "threads": 1, "seed": 0, "machine": {"processor": "P"},
        "seconds": seconds, "median": seconds and float(np.median(seconds)), "reason": reason,
        "baseline_seconds": None if baseline is None else list(baseline),
    } | more  # fmt: skip


def rows(power=1.0, factor=1.0, seed=0):
    """n^power seconds beside a quadratic baseline that meets it at n = 3,000."""
    chance, made = np.random.default_rng(seed), [row(16, "forward", [1e-9] * 3)]
    for n in LENGTHS:
        drift = np.exp(0.2 * chance.standard_normal(5))
        own, base = (np.exp(0.02 * chance.standard_normal(5)) * drift for _ in range(2))
        made.append(row(n, "forward", factor * own * n**power, baseline=base * n**power * n / 3000))
        made.append(row(n, "counted", claimed_flops=5.0 * n, mixing_flops=6 * n, flops=10 * n))
    return made


def test_exponents_stand_beside_the_claims():
    (found,) = summaries(rows())
    assert found.name == "linear (chunked)"
    assert found.claimed == pytest.approx(1)
    assert found.counted == pytest.approx(1)
    assert found.layer == pytest.approx(1)
    assert found.measured.slope == pytest.approx(1, abs=0.15)
    assert found.agrees
    assert not summaries(rows(power=1.4))[0].agrees
    assert found.crossover.n == pytest.approx(3000, rel=0.1)
    assert "linear (chunked)  forward" in table([found])
    assert "counted exponents within 0.15 of the claim: 1 of 1" in verdict([found])


def test_times_are_fitted_as_n_log_n_where_the_card_claims_a_logarithm_of_n():
    def of(mechanism, form):
        made = [row(16, "forward", [1e-9] * 3, mechanism=mechanism, form=form)]
        for n in LENGTHS:
            made.append(
                row(n, "forward", [1e-9 * n * np.log2(n)] * 3, mechanism=mechanism, form=form)
            )
        return summaries(made)[0]

    found = of("fnet", "fft")
    assert found.with_log.slope == pytest.approx(1)
    assert found.measured.slope == pytest.approx(1.12, abs=0.02)
    assert "1.13, or n^1.00 log n" in table([found])
    assert of("fnet", "naive").with_log is None
    performer = of("performer", "chunked")  # its log d is not one of n
    assert performer.with_log is None
    assert "log n" not in table([performer])


def test_overhead_bound_lengths_bear_no_exponent_and_are_named():
    made = [each for each in rows() if each["n"] != 16]
    made.insert(0, row(16, "forward", [900.0] * 3))
    (found,) = summaries(made)
    assert found.overhead == (1024, 2048)
    assert found.measured.sizes == (4096.0, 8192.0)
    assert "1,024, 2,048" in table([found])


def test_a_row_with_figures_replaces_one_without():
    made = [row(1024, "forward", reason="no time"), *rows()]
    assert summaries(made)[0].reasons == ()
    made = [each for each in rows() if each["n"] < 8192]
    made += [row(8192, "forward", reason="left out")]
    assert summaries(made)[0].reasons == ("left out",)


def test_two_runs_agree_within_their_intervals_and_a_change_stands_out():
    found = changes(rows(seed=1), rows(seed=2))
    assert len(found) == 5
    timed = [one for one in found if one.relative]
    assert not any(one.beyond for one in timed)
    slower = changes(rows(seed=1), rows(seed=2, factor=1.5))
    assert all(one.beyond and 1.3 < one.ratio < 1.7 for one in slower if one.relative)
    assert "YES" in changes_table(slower)


def test_another_machine_may_be_compared_and_other_widths_may_not():
    other = [{**each, "machine": {"processor": "Q"}} for each in rows()]
    assert len(changes(rows(), other)) == 5
    assert not changes(rows(), [{**each, "dim": 9} for each in rows()])
