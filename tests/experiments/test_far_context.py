"""The experiment `far_context`, small: what its models can reach, its rows, and what is stored."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from attnlab.experiments import far_context
from attnlab.experiments.far_context import (
    ARMS,
    DISTANCES,
    LAST,
    LENGTH,
    PIECES,
    SEEDS,
    Text,
    build,
    counts,
    measured,
    unseen,
)
from attnlab.lens.far_context import CLASSES, PERTURBATIONS

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/33_far_context.json"


def test_half_of_the_rows_repeat_their_beginning() -> None:
    batch = Text().batch("train", 10, seed=0)
    rows = torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1)
    assert rows.shape == (10, LENGTH + 1)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])

    def repeats(row: torch.Tensor) -> list[int]:
        return [run for run in range(16, 129) if torch.equal(row[run:], row[:-run])]

    assert [bool(repeats(row)) for row in rows] == 5 * [True] + 5 * [False]
    runs = [
        repeats(row)[0] for seed in range(20) for row in Text().batch("train", 4, seed).inputs[:2]
    ]
    assert min(runs) < 32
    assert max(runs) > 64


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


def test_rows_of_the_quick_run() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    found = list(far_context.rows(quick=True, threads=torch.get_num_threads()))
    assert torch.equal(torch.get_rng_state(), state)
    each = 1 + len(DISTANCES) * (len(CLASSES) + 2 * (len(PERTURBATIONS) - 1))
    assert len(found) == len(ARMS) * each + len(CLASSES) * len(DISTANCES)
    names = {row["figure"] for row in json.loads(STORED.read_text())["experiments"]["far_context"]}
    assert {row.figure for row in found} <= names


def test_what_the_lesson_draws_is_whole() -> None:
    rows = json.loads(STORED.read_text())["experiments"]["far_context"]
    found = {row["figure"]: row["measured"] for row in rows}
    assert len(found) == len(rows)
    for arm in ARMS:
        for seed in SEEDS:
            assert 2 < found[f"{arm}, loss, seed {seed}"] < 6  # ln 512 is 6.2
            for distance in DISTANCES:
                for token_class in CLASSES:
                    value = found[f"{arm}, replace, {token_class}, {distance}, seed {seed}"]
                    assert abs(value) < 1
    for token_class in CLASSES:
        assert found[f"tokens, {token_class}, 16"] > 100
