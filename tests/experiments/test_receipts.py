"""The experiment `receipts`, small: what an arm is, and what the stored rows say."""

import pytest
import torch

from attnlab.experiments import receipts as experiment
from attnlab.experiments import stored
from attnlab.experiments.receipts import GRID, Both
from attnlab.tasks.receipts import NEWLINE, PROMPTS, Receipts

FIRST, BOTH = "reading first, 50", "reading first, then both, 50"
FEWER = "parsing alone, 50, 150 updates"


def test_every_arm_begins_alike_and_has_the_same_updates() -> None:
    models = [GRID.build(arm, 1) for arm in GRID.arms]
    first = models[0].state_dict()
    for other in models[1:]:
        assert all(torch.equal(first[name], value) for name, value in other.state_dict().items())
    blind = {"empty pages"}
    assert {
        arm for arm, model in zip(GRID.arms, models, strict=True) if model.options.blind
    } == blind
    for name, arm in GRID.arms.items():
        steps = (arm.steps or GRID.steps) + arm.training.get("reading", 0)
        whole = experiment.READING + experiment.PARSING
        assert steps == (experiment.PARSING if name == FEWER else whole)
    assert GRID.arms[FEWER].task == GRID.arms[FIRST].task


def test_both_are_lines_to_be_read_and_receipts_of_the_few_to_be_parsed() -> None:
    arm = GRID.arms["reading first, then both, 50"]
    few = GRID.arms["reading first, 50"].task
    read, parsed = set(), set()
    for seed in range(8):
        batch = arm.task.batch("train", 32, seed=seed)
        prompts = batch.inputs[:, 0].tolist()
        assert prompts == [PROMPTS["reading"]] * 16 + [PROMPTS["parsing"]] * 16
        read |= {experiment.LINES.said(row) for row in batch.targets[:16]}
        parsed |= {str(few.said(row)) for row in batch.targets[16:]}
        assert torch.equal(batch.padding, batch.targets >= 0)
        assert batch.source.shape[:2] == (32, few.patches)
    assert len(read) > 100  # without end
    assert parsed <= {str(few.said(row)) for row in few.batch("train", 2000, seed=0).targets}
    assert len(arm.task.batch("train", 1, seed=0)) == 1


@pytest.mark.parametrize("options", [{}, {"patch": 12, "shift": 0, "words": "letters"}])
def test_both_prints_what_is_read_as_what_is_parsed_and_says_where_it_stands(options) -> None:
    both = Both(examples=7, **options)
    batch, places = both.batch("train", 5, seed=2), both.places("train", 5, seed=2)
    assert batch.source.shape == (5, both.patches, both.patch**2)
    assert places.shape == (5, both.length, 2)
    for row, answers in zip(places, batch.targets, strict=True):
        names = both.tokens(answers)
        assert row.isnan().any(-1).tolist() == [len(name) != 1 or name == NEWLINE for name in names]
    assert (batch.inputs[:2, 0] == PROMPTS["reading"]).all()
    lines = Receipts(form="reading", **options)
    for row, answers in zip(places[:2], batch.targets[:2], strict=True):
        ends = [0, len(lines.said(answers).split("\n")[0]) + 1]
        assert row[ends, 0].tolist() == [5.5, 17.5]  # the middles of both lines, in pixels
    parsed = places[2:] - places[2:, 1:2]  # the price stands after its tag, 6 pixels a character
    assert parsed[:, 1:5, 1].tolist() == [[0, 6, 12, 18]] * 3
    assert both.places("train", 1, seed=2).shape == (1, both.length, 2)


def test_both_has_no_form_of_its_own() -> None:
    with pytest.raises(ValueError, match="half of Both is read and half parsed: leave form out"):
        Both(form="reading")


def test_stored_reading_helps_with_few_receipts_and_is_forgotten_unless_it_goes_on() -> None:
    rows = stored("92_receipts.json", "receipts")
    for seed in GRID.seeds:
        right = {arm: rows[f"{arm}, right, seed {seed}"] for arm in GRID.arms}
        assert right["parsing alone, all"] > 95
        assert right["reading first, all"] > 95
        assert right["empty pages"] == 0
        assert right[FEWER] < 2  # no better than the 850 updates: not too many of them
        for few, gain in ((50, 30), (200, 5)):
            assert right[f"reading first, {few}"] > right[f"parsing alone, {few}"] + gain
        kept = {arm: rows[f"{arm}, read afterwards, seed {seed}"] for arm in (FIRST, BOTH)}
        assert rows[f"{FIRST}, read before, seed {seed}"] > 95
        assert kept[FIRST] < 5
        assert kept[BOTH] > 95
        assert right[BOTH] > right["parsing alone, 50"] + 30
        pointing = [
            rows[f"{FIRST}, {what}, seed {seed}"] for what in ("looked at", "of another page")
        ]
        assert pointing[0] > 3 * pointing[1]
