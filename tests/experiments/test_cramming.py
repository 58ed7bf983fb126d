"""Cramming: the same seconds for each width, in models that are otherwise those of `scaling`."""

import pytest
import torch

from attnlab.experiments import cramming, scaling, stored
from attnlab.experiments.grid import SEEDS

ROWS = "72_cramming.json", "cramming"


def of(rows: dict[str, float], what: str) -> dict[int, list[float]]:
    return {
        width: [rows[f"width {width}, {what}, seed {seed}"] for seed in SEEDS]
        for width in cramming.WIDTHS
    }


def test_a_quick_run_trains_each_width_for_its_seconds() -> None:
    rows = {row.figure: row for row in cramming.rows(quick=True, threads=1)}
    assert len(rows) == 4 * len(cramming.WIDTHS)
    for width in cramming.WIDTHS:
        taken = rows[f"width {width}, by the clock, seed 0"]
        assert taken.unit == "s"
        assert taken.measured is not None
        assert taken.measured >= cramming.QUICK - 0.01


def test_rows_that_are_kept_are_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {row.figure: row for row in cramming.rows(quick=True, threads=1)}
    monkeypatch.setattr(cramming, "measured", None)
    assert list(cramming.batches(quick=True, threads=1, kept=kept)) == [list(kept.values())]


def test_the_models_are_those_of_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def fit_for(seconds, models, task, *, options, **common):  # type: ignore[no-untyped-def]
        seen.update(models=models, options=options, task=task, common=common)
        return {}

    monkeypatch.setattr(cramming, "fit_for", fit_for)
    cramming.measured(2, 1.0)
    assert seen["common"] == {"batch_size": scaling.BATCH, "seed": 2}
    assert seen["task"] is scaling.text()
    for width in cramming.WIDTHS:
        arm = f"width {width}, 200"
        wanted, found = scaling.build(arm, 2).state_dict(), seen["models"][str(width)].state_dict()
        assert all(torch.equal(own, wanted[name]) for name, own in found.items())
        assert seen["options"][str(width)] == scaling.ARMS[arm].training


def test_what_is_stored_was_trained_for_equal_seconds() -> None:
    rows = stored(*ROWS)
    for seconds in of(rows, "by the clock").values():
        assert all(cramming.SECONDS <= each < 1.1 * cramming.SECONDS for each in seconds)
    updates = of(rows, "updates")
    for seed in SEEDS:
        had = [each[seed] for each in of(rows, "of the processor").values()]
        assert max(had) < 1.2 * min(had), "noise hits all alike"
        taken = [each[seed] for each in updates.values()]
        assert taken == sorted(taken, reverse=True), "a wider model takes fewer updates"
