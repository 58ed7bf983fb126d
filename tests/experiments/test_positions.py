"""The experiment `positions`, small: lengths that vary in training, scores, and what is stored."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from attnlab.experiments import positions
from attnlab.experiments.positions import PLANS, SCHEMES, SEEDS, Begun, Varied, build, score
from attnlab.tasks import UNSCORED
from attnlab.tasks.copying import Copying

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/40_positions.json"


@pytest.mark.parametrize("name", PLANS)
def test_training_has_many_lengths_and_none_above_32(name: str) -> None:
    plan = PLANS[name]
    batches = [Varied(name).batch("train", 2, seed) for seed in range(200)]
    shapes = {batch.inputs.shape for batch in batches}
    tasks = [plan.of_size(size) for size in plan.trained]
    assert shapes == {task.batch("train", 2, 0).inputs.shape for task in tasks}
    assert len(shapes) >= 2
    assert max(task.length for task in tasks) <= 32
    first, again = (Varied(name).batch("train", 3, 7).inputs for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.parametrize("name", PLANS)
def test_lengths_double_from_the_longest_of_training_to_sixteen_times(name: str) -> None:
    plan = PLANS[name]
    assert plan.scored[0] == plan.trained[-1]
    lengths = [plan.of_size(size).length for size in plan.scored]
    assert [round(length / lengths[0], 1) for length in lengths] == pytest.approx(
        [1, 2, 4, 8, 16], rel=0.06
    )


def test_a_token_of_its_own_begins_every_sequence() -> None:
    task = Copying(5, symbols=7)
    inner, begun = task.batch("train", 3, 1), Begun(task).batch("train", 3, 1)
    assert Begun(task).vocab == 9
    assert begun.inputs[:, 0].tolist() == [8, 8, 8]
    assert begun.targets[:, 0].tolist() == [UNSCORED] * 3
    assert torch.equal(begun.inputs[:, 1:], inner.inputs)
    assert torch.equal(begun.targets[:, 1:], inner.targets)
    assert Begun(task).length == inner.inputs.shape[1]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_model_reads_the_longest_sequence(scheme: str) -> None:
    model = build("copying", scheme, 0)
    assert model.config.get("positions", "learned") == scheme
    tokens, whole = score(model, PLANS["copying"].of_size(256), sequences=2)
    assert 0 <= whole <= tokens < 50


def test_sinusoids_are_added_to_tokens_times_the_root_of_the_width() -> None:
    learned, sinusoidal = (build("lookup", name, 0) for name in ("learned", "sinusoidal"))
    tokens = torch.arange(7)[None]
    assert torch.equal(sinusoidal.embedding(tokens), 8 * learned.embedding(tokens))


class Knowing(nn.Module):
    """Right everywhere, but for the last answer of the first sequence."""

    def __init__(self, targets: torch.Tensor) -> None:
        super().__init__()
        self.answers = targets.clamp(min=0).clone()
        self.answers[0, -1] += 1

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot(self.answers, 99).float()


def test_scores_count_tokens_and_whole_answers() -> None:
    task = PLANS["copying"].of_size(5)
    targets = task.batch("validation", 8, seed=0).targets
    assert score(Knowing(targets), task, sequences=8) == (97.5, 87.5)


def test_rows_of_the_quick_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "SCHEMES", ("none", "rope"))
    monkeypatch.setattr(positions, "PLANS", {"lookup": PLANS["lookup"]})
    state = torch.get_rng_state()
    rows = list(positions.rows(quick=True, threads=torch.get_num_threads()))
    assert torch.equal(torch.get_rng_state(), state)
    assert [row.figure for row in rows] == [
        f"lookup, {scheme}, length {n}, seed 0" for scheme in ("none", "rope") for n in (32, 64)
    ]
    assert rows[0].note.endswith("% of whole answers")


def test_what_the_lesson_draws_is_whole() -> None:
    rows = json.loads(STORED.read_text())["experiments"]["positions"]
    found = {row["figure"] for row in rows}
    assert found == {
        f"{name}, {scheme}, length {plan.of_size(size).length}, seed {seed}"
        for name, plan in PLANS.items()
        for scheme in SCHEMES
        for size in plan.scored
        for seed in SEEDS
    }
