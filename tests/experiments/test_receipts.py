"""The experiment `receipts`, small: what an arm is, and what the stored rows say."""

import torch

from attnlab.experiments import receipts as experiment
from attnlab.experiments import stored


def test_every_arm_begins_alike_and_has_the_same_updates() -> None:
    models = [experiment.GRID.build(arm, 1) for arm in experiment.GRID.arms]
    first = models[0].state_dict()
    for other in models[1:]:
        assert all(torch.equal(first[name], value) for name, value in other.state_dict().items())
    assert [model.options.blind for model in models] == [False] * 4 + [True]
    for arm in experiment.GRID.arms.values():
        steps = (arm.steps or experiment.GRID.steps) + arm.training.get("reading", 0)
        assert steps == experiment.READING + experiment.PARSING


def test_stored_reading_helps_with_few_receipts_where_it_was_learned_and_is_forgotten() -> None:
    rows = stored("92_receipts.json", "receipts")
    learned = []
    for seed in experiment.GRID.seeds:
        right = {arm: rows[f"{arm}, right, seed {seed}"] for arm in experiment.GRID.arms}
        assert right["parsing alone, all"] > 95
        assert right["parsing alone, 50"] < 10
        assert right["empty pages"] == 0
        first = f"reading first, 50, {{}}, seed {seed}"
        assert rows[first.format("read afterwards")] < 5
        learned.append(rows[first.format("read before")] > 40)
        if learned[-1]:
            assert right["reading first, 50"] > 20
            assert right["reading first, all"] > 95
        pointing = rows[first.format("looked at")] / rows[first.format("of another page")]
        assert pointing > (3 if learned[-1] else 2)
    assert any(learned)  # or nothing above is said of reading
