"""The experiment `dialects`, small: what is written, and what is exact."""

import math

import pytest
import torch

from attnlab.experiments import dialects
from attnlab.experiments.dialects import GRID, lost_at_least, nats_lost
from attnlab.tasks.two_dialects import TwoDialects

TASK = TwoDialects(words=dialects.WORDS)


def test_least_losses_of_the_arms() -> None:
    expected = {"by the source": 0, "by the word": 0}
    for arm, one in GRID.arms.items():
        nats = expected.get(arm, (dialects.WORDS - 1) * math.log(2))
        assert lost_at_least(one.problem) == pytest.approx(nats, abs=1e-9)


def test_least_losses_of_a_word_are_entropies() -> None:
    """Of the words, of a model that writes all at once; of the sentence from left to right."""
    plain, ordered = dialects.least_loss("plain"), dialects.least_loss("left to right")
    assert dialects.WORDS * plain - TASK.entropy() == pytest.approx(lost_at_least(TASK))
    assert dialects.WORDS * ordered == pytest.approx(TASK.entropy())
    every = TwoDialects(words=dialects.WORDS, coin="word")
    assert dialects.WORDS * dialects.least_loss("by the word") == pytest.approx(every.entropy())
    assert {dialects.least_loss(arm) for arm in ("one dialect", "by the source")} == {0.0}


def test_the_least_loss_of_shown_words_is_that_of_exact_probabilities() -> None:
    """One word in view tells the dialect, so that all others cost nothing; without one each word
    costs ln 2."""
    asked = dialects.objective("cmlm", TASK)
    total, count = 0.0, 0
    for seed in range(40):
        batch = TASK.batch("train", 64, seed=seed)
        masks = (asked.prepare(batch, torch.Generator().manual_seed(seed)).targets >= 0).sum(-1)
        total += int(masks[masks == dialects.WORDS].sum()) * math.log(2)
        count += int(masks.sum())
    assert total / count == pytest.approx(dialects.least_loss("cmlm"), rel=0.1)


def test_the_teacher_of_one_dialect_writes_it() -> None:
    batch = TASK.batch("train", 5, seed=0)
    written = dialects.objective("one dialect", TASK).prepare(batch).targets
    assert torch.equal(written, TASK.dialects(batch.source)[:, 0])


@pytest.mark.parametrize(("arm", "name"), [("plain", "nat"), ("left to right", "next_token")])
def test_an_untrained_model_loses_what_its_probabilities_say(arm: str, name: str) -> None:
    """All words equally likely: N ln V less the entropy."""
    model = GRID.build(arm).eval()
    for weight in model.parameters():
        torch.nn.init.zeros_(weight)
    source = TASK.batch("validation", 3, seed=0).source
    expected = dialects.WORDS * math.log(model.vocab) - math.log(2)
    assert nats_lost(model, name, TASK, source) == pytest.approx(expected, abs=1e-4)


def test_what_is_written_has_a_word_for_each_of_the_source() -> None:
    source = TASK.batch("validation", 5, seed=0).source
    for arm, one in GRID.arms.items():
        model = GRID.build(arm).eval()
        name = one.training["objective"]
        said = dialects.sentences(model, name, TASK, source, temperature=1.0)
        assert said.shape == source.shape
        assert (said < TASK.vocab).all()
