"""The experiment `synthesizer`, small: every cell, one budget, no global state changed."""

import pytest
import torch

from attnlab.experiments.synthesizer import NAMES, TASKS, build, grid
from attnlab.tasks import task

MOST = 50_000


def test_one_cell_is_a_function_of_its_seed_and_disturbs_nothing():
    before = torch.get_rng_state()
    first, again, other = (
        next(grid(("copying",), ("random",), (seed,), steps=1)) for seed in (3, 3, 5)
    )
    assert first == again
    assert first.loss != other.loss
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", NAMES)
def test_models_of_one_task_differ_in_their_attention_alone(name):
    problem = task("copying", **TASKS["copying"])
    model, vanilla = build(problem, name, 0), build(problem, "vanilla", 0)
    mixing = ("heads.query", "heads.key", "synthesize", "mixture")
    shapes = [
        {k: v.shape for k, v in m.state_dict().items() if not any(part in k for part in mixing)}
        for m in (model, vanilla)
    ]
    assert shapes[0] == shapes[1]
    assert build(problem, "vanilla", 0, positions="none").config["positions"] == "none"
