"""A grid of trainings: names of rows, budgets, films, and what an interrupted run keeps."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from attnlab.experiments.grid import Arm, Grid, Grids, Trained
from attnlab.measure.report import Row
from attnlab.tasks import task

COPYING = task("copying", items=5, symbols=5)
ASKED: list[Trained] = []


def score(trained: Trained) -> dict[str, Any]:
    ASKED.append(trained)
    return {"loss": (1.5, "nats"), "right": 50.0, "wrong": (50.0, "%", "the other half")}


GRID = Grid(
    arms={"wide": Arm(COPYING, {"dim": 8}), "wide, long": Arm(COPYING, {"dim": 8}, steps=5)},
    score=score,
    steps=3,
    model={"dim": 4, "layers": 1, "heads": 1},
    training={"batch_size": 2},
    seeds=(0, 7),
)


@pytest.fixture(autouse=True)
def _nothing_asked():
    ASKED.clear()


def kept(rows: list[Row]) -> dict[str, Row]:
    return {row.figure: row for row in rows}


def test_rows_have_names_units_and_notes() -> None:
    rows = list(GRID.rows(quick=False, threads=1))
    whats = ("loss", "right", "wrong")
    assert [row.figure for row in rows] == [
        f"{arm}, {what}, seed {seed}" for seed in (0, 7) for arm in GRID.arms for what in whats
    ]
    assert [(row.unit, row.note) for row in rows[:3]] == [
        ("nats", ""), ("%", ""), ("%", "the other half")
    ]  # fmt: skip


def test_an_arm_may_have_its_own_budget() -> None:
    list(GRID.rows(quick=False, threads=1))
    assert [len(each.history.rows) for each in ASKED] == [3, 5, 3, 5]
    ASKED.clear()
    list(GRID.rows(quick=True, threads=1))
    assert [(each.seed, len(each.history.rows), each.quick) for each in ASKED] == [(0, 2, True)] * 2


def test_options_of_an_arm_are_laid_over_those_of_the_grid() -> None:
    slow = replace(GRID, arms={"slow": Arm(COPYING, {"dim": 6}, {"learning_rate": 1e-5})})
    model, history = slow.train("slow", 0)
    assert (model.dim, len(model.decoder.blocks), model.training) == (6, 1, False)
    assert max(row["learning_rate"] for row in history.rows) <= 1e-5
    assert slow.build("slow", 0, dim=2).dim == 2


def test_a_training_is_a_function_of_its_seed_and_disturbs_nothing() -> None:
    state = torch.get_rng_state()
    found = []
    for seed in (0, 0, 7):
        torch.rand(1)  # a generator that must not matter
        before = torch.get_rng_state()
        found.append(GRID.train("wide", seed)[0].embedding.weight)
        assert torch.equal(torch.get_rng_state(), before)
    torch.set_rng_state(state)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_film_has_copies_of_its_steps() -> None:
    frames = GRID.film("wide", 0, steps=(1, 3))
    assert list(frames) == [0, 1, 3]
    assert torch.equal(frames[0].embedding.weight, GRID.build("wide", 0).embedding.weight)
    assert torch.equal(frames[3].embedding.weight, GRID.train("wide", 0)[0].embedding.weight)
    assert not torch.equal(frames[1].embedding.weight, frames[3].embedding.weight)
    assert not any(frame.training for frame in frames.values())


def test_frames_are_scored_each() -> None:
    arms = {"wide": Arm(COPYING, frames=(0, 4))}
    filmed = replace(GRID, arms=arms, seeds=(0,), figure="{arm}, step {step}, {what}, seed {seed}")
    assert [row.figure for row in filmed.rows(quick=False, threads=1)][::3] == [
        "wide, step 0, loss, seed 0", "wide, step 4, loss, seed 0"
    ]  # fmt: skip


def test_a_grid_goes_on_where_it_was_interrupted() -> None:
    """The rows of "wide, long" could be those of "wide" by their names, and are not taken so."""
    rows = list(GRID.rows(quick=False, threads=1))
    ASKED.clear()
    held = kept(
        [row for row in rows if row.figure.startswith("wide, long") or "seed 7" in row.figure]
    )
    again = [row for batch in GRID.batches(quick=False, threads=1, kept=held) for row in batch]
    assert [(each.name, each.seed) for each in ASKED] == [("wide", 0)]
    assert again == rows


def test_rows_that_are_kept_belong_to_their_trainings() -> None:
    found = GRID.by_training(kept(list(GRID.rows(quick=False, threads=1))))
    assert set(found) == {(arm, seed) for arm in GRID.arms for seed in (0, 7)}
    assert {len(rows) for rows in found.values()} == {3}


def test_baselines_need_no_training_and_are_kept() -> None:
    asked: list[bool] = []
    chance = replace(GRID, arms={}, baselines={"chance": lambda q: asked.append(q) or 20.0})
    (row,) = chance.rows(quick=True, threads=1)
    assert (row.figure, row.measured, row.unit, asked) == ("chance", 20.0, "%", [True])
    batches = list(chance.batches(quick=True, threads=1, kept={"chance": row}))
    assert (batches, len(asked)) == ([[row]], 1)


def test_an_arm_may_name_its_rows_itself() -> None:
    arms = {"a": Arm(COPYING, figure="{task.name} by seed {seed}: {what}")}
    rows = list(replace(GRID, arms=arms, seeds=(7,)).rows(quick=True, threads=1))
    assert rows[0].figure == "copying by seed 7: loss"


def test_several_grids_come_one_after_the_other() -> None:
    one = replace(GRID, arms={"a": GRID.arms["wide"]}, seeds=(0,))
    two = replace(GRID, arms={"b": GRID.arms["wide"]}, seeds=(0,))
    names = [row.figure[0] for row in Grids((one, two)).rows(quick=True, threads=1)]
    assert names == ["a"] * 3 + ["b"] * 3


def test_an_unknown_arm_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="there is no arm 'wdie'; did you mean 'wide'"):
        GRID.train("wdie", 0)


def test_a_dear_task_is_made_when_it_is_needed() -> None:
    made: list[str] = []
    arm = Arm(lambda: made.append("now") or COPYING)
    assert not made
    assert replace(GRID, arms={"a": arm}).build("a").max_len == COPYING.length
    assert made
