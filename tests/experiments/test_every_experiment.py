"""Every experiment: a quick run of it, and the rows that are stored."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from attnlab import experiments
from attnlab.experiments.grid import SEEDS, Arm, Grid
from attnlab.measure import command

NAMES = command.names(experiments)
GRIDS = [name for name in NAMES if hasattr(command.module(experiments, name), "GRID")]
BY_FIGURE = [name for name in NAMES if hasattr(command.module(experiments, name), "row")]
FEW = 40
SMALL = 300_000  # bytes; all lessons load what is stored


@cache
def stored(name: str) -> dict[str, dict[str, Any]]:
    """The rows of the experiment, by name, from the only file that holds some."""
    files = [json.loads(path.read_text()) for path in experiments.ASSETS.glob("[0-9]*.json")]
    (run,) = [one for one in files if name in one.get("experiments", {})]
    assert not run["quick"]
    rows = {row["figure"]: row for row in run["experiments"][name]}
    assert len(rows) == len(run["experiments"][name])
    return rows


def grids(name: str) -> tuple[Grid, ...]:
    found = command.module(experiments, name).GRID
    return (found,) if isinstance(found, Grid) else tuple(found)


def quick_rows(name: str) -> list[Any]:
    """Of a grid the first arm and the last, and what needs no training."""
    module = command.module(experiments, name)
    if name in GRIDS:
        return [
            row
            for grid in grids(name)
            for row in replace(
                grid, arms={arm: grid.arms[arm] for arm in [*grid.arms][:: len(grid.arms) - 1 or 1]}
            ).rows(quick=True, threads=1)
        ]
    if name in BY_FIGURE:
        known = {of_any_step(row["figure"]) for row in stored(name).values()}
        every = module.figures(quick=True)
        figures = [f for f in every if of_any_step(f) in known]  # new pages have no rows yet
        return [module.row(f, quick=True, threads=1) for f in figures[::53]]
    return list(module.rows(quick=True, threads=1))


def of_any_step(figure: str) -> str:
    return re.sub(r"step \d+", "step", figure)


@pytest.fixture
def _few_unseen(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A quick run scores few of what was not trained on: scoring took most of it."""
    command.module(experiments, name)
    modules = [m for path, m in sys.modules.items() if path.startswith(experiments.__name__ + ".")]
    for module in modules:
        if isinstance(many := getattr(module, "UNSEEN", None), int):
            monkeypatch.setattr(module, "UNSEEN", min(many, FEW))
    depending = [kept for module in modules for kept in vars(module).values() if of_unseen(kept)]
    for kept in depending:
        kept.cache_clear()
    yield
    for kept in depending:
        kept.cache_clear()


def of_unseen(kept: Any) -> bool:
    """Whether something is a function that keeps what it has made of so many."""
    return hasattr(kept, "cache_clear") and "UNSEEN" in kept.__wrapped__.__code__.co_names


@pytest.mark.usefixtures("_few_unseen")
@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_makes_rows_that_are_stored(name: str) -> None:
    torch.manual_seed(3)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    rows = quick_rows(name)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert len({row.figure for row in rows}) == len(rows) > 0
    units = {of_any_step(row["figure"]): row["unit"] for row in stored(name).values()}
    for row in rows:
        assert units[of_any_step(row.figure)] == row.unit


def parts(arm: Arm) -> set[Any]:
    """What an arm has of its own, but for how long and how fast it learns."""
    options = {name: value for name, value in arm.training.items() if name != "learning_rate"}
    return {("task", repr(arm.task)), ("model", repr(arm.model)), ("training", repr(options))}


@pytest.mark.parametrize("name", GRIDS)
def test_every_arm_can_be_trained(name: str) -> None:
    """Each is built; trained is one of those whose task, model and options others have, too."""
    for grid in grids(name):
        known = set[Any]()
        for arm, one in grid.arms.items():
            own = parts(one)
            if own <= known:
                assert grid.build(arm, 1).training
                continue
            known |= own
            # How many examples the grid takes at a time, its quick run has shown.
            few = {"batch_size": 4} if "batch_size" in {*grid.training} - {*one.training} else {}
            model, _ = grid.train(arm, 1, steps=1, **few)
            assert not model.training
            assert all(each.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("name", sorted({*NAMES} - {*BY_FIGURE}))
def test_what_is_stored_of_one_seed_is_stored_of_all(name: str) -> None:
    for figure in stored(name):
        others = {re.sub(r"seed \d", f"seed {seed}", figure) for seed in SEEDS}
        assert others <= set(stored(name))


@pytest.mark.parametrize("name", GRIDS)
def test_every_training_of_a_grid_is_stored_and_nothing_else(name: str) -> None:
    left = set(stored(name))
    for grid in grids(name):
        found = grid.by_training(stored(name))
        assert set(found) == {(arm, seed) for arm in grid.arms for seed in grid.seeds}
        for (arm, _), rows in found.items():
            assert len(rows) == len(found[arm, grid.seeds[0]])
            assert not len(rows) % max(1, len(grid.arms[arm].frames))
            left -= {row["figure"] for row in rows}
        assert set(grid.baselines) <= left
        left -= set(grid.baselines)
    assert not left


def test_what_is_stored_is_small() -> None:
    for path in experiments.ASSETS.glob("[0-9]*.json"):
        assert path.stat().st_size < SMALL, path.name
