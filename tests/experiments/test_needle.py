"""The experiment `needle`, small: one budget for all patterns, and scores that tell reach apart."""

import pytest
import torch

from attnlab.core.patterns import full, local
from attnlab.experiments import needle, stored
from attnlab.experiments.needle import (
    ARMS,
    build,
    connected,
    patterns_of,
    problem,
    score,
)


@pytest.mark.parametrize("arm", ARMS)
def test_every_pattern_has_the_same_price(arm: str) -> None:
    """About eight keys for each position, ends and the hub's own row apart."""
    for pattern in patterns_of(build(arm, 0)):
        assert 7 <= pattern.dense(64).sum(1).median() <= 9


def test_every_layer_draws_random_blocks_of_its_own() -> None:
    drawn = [pattern.dense(64) for pattern in patterns_of(build("window + random", 0))]
    assert len({tuple(map(tuple, each.tolist())) for each in drawn}) == needle.LAYERS


def test_who_is_connected() -> None:
    task = problem(length=17)
    inputs = task.batch("train", 5, seed=0).inputs
    place = (inputs < task.keys).int().argmax(1, keepdim=True)
    near = (torch.arange(17) - place).abs() <= 4
    assert torch.equal(connected([local(2), local(2)], inputs, task), near)
    assert connected([full()], inputs, task).all()


def test_scores_leave_out_what_does_not_occur() -> None:
    found = score(build("window + global", 0), problem(), texts=3)
    assert set(found) == {"right", "connected", "share connected"}
    assert found["share connected"] == 100
    assert set(score(build("window", 0), problem(), texts=3)) > {"not connected"}


def test_what_the_lesson_says_of_the_stored_rows() -> None:
    """What is not connected can only be guessed: one in eight."""
    found = stored("11_needle.json", "needle")
    shares = [share for figure, share in found.items() if "not connected" in figure]
    assert len(shares) > 0
    assert max(shares) < 20
