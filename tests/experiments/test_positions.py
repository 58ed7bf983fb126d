"""The experiment `positions`, small: lengths that vary in training, scores, and what is stored."""

import pytest
import torch
from torch import nn

from attnlab.experiments.positions import ATTENTIONS, OPEN, PLANS, SCHEMES, build, problem, score


@pytest.mark.parametrize("name", PLANS)
def test_training_has_many_lengths_and_none_above_32(name: str) -> None:
    plan = PLANS[name]
    batches = [problem(name).batch("train", 2, seed) for seed in range(200)]
    shapes = {batch.inputs.shape for batch in batches}
    tasks = [plan.of_size(size) for size in plan.trained]
    assert shapes == {task.batch("train", 2, 0).inputs.shape for task in tasks}
    assert len(shapes) >= 2
    assert max(task.length for task in tasks) <= 32
    first, again = (problem(name).batch("train", 3, 7).inputs for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.parametrize("name", PLANS)
def test_lengths_double_from_the_longest_of_training_to_sixteen_times(name: str) -> None:
    plan = PLANS[name]
    assert plan.scored[0] == plan.trained[-1]
    lengths = [plan.of_size(size).length for size in plan.scored]
    assert [round(length / lengths[0], 1) for length in lengths] == pytest.approx(
        [1, 2, 4, 8, 16], rel=0.06
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_model_reads_the_longest_sequence(scheme: str) -> None:
    model = build(f"copying, {scheme}")
    own = model.config.get("attention", "full")
    named = model.config.get("positions", "learned") if own == "full" else own
    assert named == ATTENTIONS.get(scheme, scheme)
    tokens, whole = score(model, PLANS["copying"].of_size(256), sequences=2)
    assert 0 <= whole <= tokens < 50


def test_sinusoids_are_added_to_tokens_times_the_root_of_the_width() -> None:
    learned, sinusoidal = (build(f"lookup, {name}") for name in ("learned", "sinusoidal"))
    tokens = torch.arange(7)[None]
    assert torch.equal(sinusoidal.embedding(tokens), 8 * learned.embedding(tokens))


def test_open_gates_begin_near_one_and_all_else_is_equal() -> None:
    usual, opened = (build(f"lookup, {name}", seed=3) for name in ("forgetting", "open_forgetting"))
    theirs = opened.state_dict()
    for name, weight in usual.state_dict().items():
        if name.endswith("gate.bias"):
            assert (theirs[name] == OPEN).all()
            assert (weight.sigmoid() - 0.5).abs().max() < 0.05
        else:
            assert torch.equal(theirs[name], weight)


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
