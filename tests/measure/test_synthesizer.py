"""The topic `synthesizer`, small: every cell, one budget, nothing of the caller's disturbed."""

import json
from pathlib import Path

import pytest
import torch

from attnlab.measure.topics import synthesizer
from attnlab.measure.topics.synthesizer import NAMES, SEEDS, TASKS, build, grid
from attnlab.tasks import task

STORED = Path(__file__).parents[2] / "notebooks/assets/20_synthesizer.json"
MOST = 50_000


def test_one_cell_is_a_function_of_its_seed_and_disturbs_nothing():
    before = torch.get_rng_state()
    first, again, other = (
        next(grid(("copying",), ("random",), (seed,), steps=1)) for seed in (3, 3, 5)
    )
    assert first == again
    assert first.loss != other.loss
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_name_task_variant_and_seed(monkeypatch):
    monkeypatch.setattr(synthesizer, "TASKS", {"copying": TASKS["copying"]})
    threads = torch.get_num_threads()
    monkeypatch.setattr(synthesizer, "grid", lambda **o: grid(("copying",), ("dense",), **o))
    (row,) = synthesizer.rows(quick=True, threads=1)
    assert row.figure == "copying, dense, seed 0"
    assert row.unit == "%"
    assert 0 <= row.measured <= 100
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("name", NAMES)
def test_models_of_one_task_differ_in_their_attention_alone(name):
    problem = task("copying", **TASKS["copying"])
    model, vanilla = build(problem, name, 0), build(problem, "vanilla", 0)
    mixing = ("heads.query", "heads.key", "synthesize", "mixture")
    shapes = [
        {k: v.shape for k, v in m.state_dict().items() if not any(part in k for part in mixing)}
        for m in (model, vanilla)
    ]
    assert shapes[0] == shapes[1]
    assert build(problem, "vanilla", 0, positions="none").config["positions"] == "none"


def test_what_is_stored_for_the_lesson_is_a_whole_run():
    assert STORED.stat().st_size < MOST
    run = json.loads(STORED.read_text())
    assert run["quick"] is False
    figures = [row["figure"] for row in run["topics"]["synthesizer"]]
    assert figures == [
        f"{name}, {variant}, seed {seed}" for name in TASKS for variant in NAMES for seed in SEEDS
    ]
