"""The experiment `receipts`, small: what an arm is, and what the stored rows say."""

import torch

from attnlab.experiments import receipts as experiment
from attnlab.experiments import stored
from attnlab.experiments.receipts import GRID
from attnlab.tasks.receipts import PROMPTS

FIRST, BOTH = "reading first, 50", "reading first, then both, 50"


def test_every_arm_begins_alike_and_has_the_same_updates() -> None:
    models = [GRID.build(arm, 1) for arm in GRID.arms]
    first = models[0].state_dict()
    for other in models[1:]:
        assert all(torch.equal(first[name], value) for name, value in other.state_dict().items())
    blind = {"empty pages"}
    assert {
        arm for arm, model in zip(GRID.arms, models, strict=True) if model.options.blind
    } == blind
    for arm in GRID.arms.values():
        steps = (arm.steps or GRID.steps) + arm.training.get("reading", 0)
        assert steps == experiment.READING + experiment.PARSING


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


def test_stored_reading_helps_with_few_receipts_and_is_forgotten_unless_it_goes_on() -> None:
    rows = stored("92_receipts.json", "receipts")
    for seed in GRID.seeds:
        right = {arm: rows[f"{arm}, right, seed {seed}"] for arm in GRID.arms}
        assert right["parsing alone, all"] > 95
        assert right["reading first, all"] > 95
        assert right["empty pages"] == 0
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
