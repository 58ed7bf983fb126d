"""The experiment `far_context`, small: what its models can reach, its rows, and what is stored."""

from itertools import pairwise

import pytest

from attnlab.experiments import far_context, stored
from attnlab.experiments.far_context import (
    DISTANCES,
    LAST,
    LENGTH,
    PIECES,
    build,
    counts,
    measured,
    unseen,
)


def test_what_is_measured_does_not_overlap_and_is_not_trained_on() -> None:
    tokens = unseen()
    assert tokens.shape == (far_context.TEXTS, LENGTH)
    text = " ".join(map(str, unseen(1, 20_000)[0].tolist()))
    places = [text.find(" ".join(map(str, row.tolist()))) for row in tokens[:9]]
    gaps = [b - a for a, b in pairwise(places)]
    assert places[0] == 0
    assert min(gaps) > 2 * LAST  # letters, at least two for each token
    assert counts().sum() > 5 * tokens.numel()
    assert len(counts()) == PIECES


@pytest.mark.parametrize(("arm", "reach"), [("window", 64), ("transformer-xl", 128)])
def test_no_model_loses_beyond_its_reach(arm: str, reach: int) -> None:
    found = measured(build(arm, 0), texts=4)
    size = found.differences[:, 1:].abs().amax((1, 2, 3))  # a cut may move positions
    for at, distance in enumerate(DISTANCES):
        assert (size[at] < 1e-4) == (distance >= reach), distance


@pytest.mark.parametrize("arm", ["full", "rwkv"])
def test_the_others_reach_everything(arm: str) -> None:
    found = measured(build(arm, 0), texts=4)
    assert (found.differences[:, 2].abs().amax((1, 2)) > 1e-6).all()


def test_what_the_lesson_draws_of_the_stored_rows() -> None:
    found = stored("33_far_context.json", "far_context")
    for figure, value in found.items():
        if ", loss, " in figure:
            assert 2 < value < 6  # ln 512 is 6.2
        elif figure.startswith("tokens"):
            assert value > 100 or ", 16" not in figure
        elif ", replace, " in figure:
            assert abs(value) < 1
