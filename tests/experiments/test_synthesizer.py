"""The experiment `synthesizer`, small: every cell, one budget, no global state changed."""

import json
from pathlib import Path

import pytest
import torch

from attnlab.experiments import synthesizer
from attnlab.experiments.synthesizer import NAMES, PATIENT, SEEDS, TASKS, build, grid
from attnlab.tasks import task

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/20_synthesizer.json"
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
    """Of the grid a single cell, and of those that are trained longer one."""
    asked = []

    def one(tasks=("copying",), variants=("dense",), seeds=(0,), *, steps=400):
        asked.append((tasks, seeds, steps))
        yield from grid(tasks, variants[:1], (0,), steps=1)

    monkeypatch.setattr(synthesizer, "grid", one)
    threads = torch.get_num_threads()
    rows = list(synthesizer.rows(quick=True, threads=1))
    figures = ["copying, dense, seed 0", "induction 1200 steps, vanilla, seed 0"]
    assert [row.figure for row in rows] == figures
    assert all(row.unit == "%" and 0 <= row.measured <= 100 for row in rows)
    assert torch.get_num_threads() == threads
    list(synthesizer.rows(quick=False, threads=1))
    assert asked == [
        (("copying",), (0,), 2),
        (("induction",), (0,), 2),
        (("copying",), (0,), 400),
        (("induction",), (0, 1, 2), 1200),
    ]


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
    figures = [row["figure"] for row in run["experiments"]["synthesizer"]]
    cells = [(name, variant) for name in TASKS for variant in NAMES]
    cells += [("induction 1200 steps", variant) for variant in PATIENT]
    assert figures == [f"{name}, {variant}, seed {s}" for name, variant in cells for s in SEEDS]
