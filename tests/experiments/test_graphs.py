"""The experiment `graphs`, small: scores of models whose answers are known, and stored rows."""

import json
from pathlib import Path

import pytest
import torch

from attnlab.experiments.graphs import ARMS, DISTANCE, RINGS, SEEDS, build, score
from attnlab.tasks import UNSCORED

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/52_graphs.json"


def test_a_score_for_each_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that knows distances up to 2, and answers 3 everywhere else."""
    model, batch = build("2 layers", 0), DISTANCE.batch("validation", 31, seed=0)

    def knows(*given: object, **others: object) -> torch.Tensor:
        targets = batch.targets.masked_fill((batch.targets > 2) | (batch.targets == UNSCORED), 3)
        return torch.nn.functional.one_hot(targets, DISTANCE.classes)

    monkeypatch.setattr(model, "forward", knows)
    found = score(model, DISTANCE, 31)
    near = {f"{away} away": 100.0 if away <= 3 else 0.0 for away in range(1, 7)}
    asked = batch.targets[batch.targets > 0]
    assert found == near | {"all": round(100 * (asked <= 3).double().mean().item(), 1)}


def test_without_positions_all_rings_look_the_same() -> None:
    model, batch = build("without positions", 1).eval(), RINGS.batch("train", 13, seed=1)
    out = model(batch.inputs, batch.padding, structure=batch.structure)
    assert (out - out[0]).abs().max() < 1e-5
    other = build("Laplacian positions", 1).eval()
    out = other(batch.inputs, batch.padding, structure=batch.structure)
    assert (out - out[0]).abs().amax(1)[1:].min() > 1e-4


def test_what_the_lesson_says_of_the_stored_rows() -> None:
    """L layers know distances up to L; positions tell rings apart, and nothing else does."""
    rows = json.loads(STORED.read_text())["experiments"]["graphs"]
    found = {row["figure"]: row["measured"] for row in rows}
    for seed in SEEDS:
        for layers in (1, 2, 4):
            arm = f"{layers} layer{'s' * (layers > 1)}"
            shares = [found[f"distance; {arm}; {away} away; seed {seed}"] for away in range(1, 7)]
            assert min(shares[:layers]) > 95
            assert sorted(shares[layers:])[:-1] == [0] * (5 - layers)  # one answer for all others
        assert found[f"rings; Laplacian positions; all; seed {seed}"] > 85
        assert found[f"rings; without positions; all; seed {seed}"] < 60
    assert len(ARMS) == 6
