"""The experiment `smaller_cache`, small: what its arms keep, and what is scored."""

import pytest
import torch

from attnlab.experiments import smaller_cache as experiment
from attnlab.experiments import stored
from attnlab.measure.cache import kept
from attnlab.tasks.returning import Returning

BYTES = {
    "MHA": 1024, "GQA, 2 groups": 512, "MQA": 256, "MLA": 256, "CLA": 512, "CLA with MQA": 128,
    "YOCO": 256, "windows 3:1": 256, "windows": 0, "MHA, 2 layers": 512, "MHA, 1 layer": 256,
    "MHA, width 32": 512, "MHA, width 16": 256,
}  # fmt: skip


def test_what_one_more_token_costs() -> None:
    for arm, wanted in BYTES.items():
        model = experiment.model_of(arm)
        assert (kept(model, 8192).bytes - kept(model, 4096).bytes) / 4096 == wanted
    assert set(BYTES) == set(experiment.MODELS)


@pytest.mark.parametrize("arm", ["MLA", "YOCO", "windows 3:1"])
def test_token_by_token_is_the_whole_text(arm: str) -> None:
    model = experiment.model_of(arm).eval()
    whole = experiment.losses(model, 3)
    torch.testing.assert_close(experiment.losses(model, 3, steps=True), whole)


def test_what_returns_is_scored_alone() -> None:
    loss = torch.zeros(2, 47)
    loss[:, :31], loss[:, 31], loss[:, 32:] = 1, 100, 3  # the first token that returns is not known
    assert experiment.in_two(loss) == {"text": 1, "returning": 3}


def test_a_passage_returns() -> None:
    task = Returning(passage=5, pieces=300)
    batch = task.batch("train", 3, seed=1)
    assert batch.inputs.shape == (3, task.length)
    torch.testing.assert_close(batch.targets[:, 9:], batch.inputs[:, :5])
    torch.testing.assert_close(batch.targets[:, :-1], batch.inputs[:, 1:])
    other = task.batch("validation", 3, seed=1)
    assert not torch.equal(other.inputs, batch.inputs)
    assert (task.batch("train", 3, seed=1).inputs == batch.inputs).all()
    assert task.model_options() == {"vocab": 300, "max_len": 20, "kind": "language_model"}


def test_windows_cannot_reach_the_passage() -> None:
    """Four layers of 8 tokens reach 28 tokens back, and the answer stands 32 back."""
    model = experiment.model_of("windows").eval()
    tokens = experiment.TASK.batch("train", 1, seed=0).inputs
    changed = tokens.clone()
    changed[:, 0] = (changed[:, 0] + 1) % experiment.TASK.vocab
    with torch.no_grad():
        apart = (model(tokens) - model(changed)).abs().sum(-1)[0]
    assert apart[28] > 0
    assert apart[29:].max() == 0


def test_the_stored_rows_have_the_better_rate() -> None:
    rows = stored("25_smaller_cache.json", "smaller_cache")
    for arm, rates in experiment.RATES.items():
        tried = [rows[f"{arm}; {rate:g}; loss on other texts, tried once"] for rate in rates]
        assert tried[0] == min(tried), arm
        for seed in experiment.SEEDS:
            assert rows[f"{arm}; text; seed {seed}"] < 5
    assert rows["frequencies of tokens; text"] > 5
