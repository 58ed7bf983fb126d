"""The experiment `dialects`, small: what is counted as a translation, and what is exact."""

import math

import pytest
import torch

from attnlab.experiments import dialects
from attnlab.experiments.dialects import GRID, lost_at_least, nats_lost, translated
from attnlab.tasks.two_dialects import TwoDialects

TASK = TwoDialects(words=dialects.WORDS)


def test_least_losses_of_the_arms() -> None:
    expected = {"by the source": 0, "by the word": 0}
    for arm, one in GRID.arms.items():
        nats = expected.get(arm, (dialects.WORDS - 1) * math.log(2))
        assert lost_at_least(one.problem) == pytest.approx(nats, abs=1e-9)


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
    assert dialects.least_loss("ctc") is None
    for arm in ("plain", "left to right"):
        least = dialects.least_loss(arm) * dialects.WORDS - TASK.entropy()
        assert least == pytest.approx(lost_at_least(TASK) if arm == "plain" else 0)


def test_the_teacher_of_one_dialect_writes_it() -> None:
    batch = TASK.batch("train", 5, seed=0)
    written = dialects.objective("one dialect", TASK).prepare(batch).targets
    assert torch.equal(written, TASK.dialects(batch.source)[:, 0])


def test_a_sentence_of_another_length_is_no_translation() -> None:
    source = TASK.batch("validation", 4, seed=0).source
    said = source + TASK.symbols
    real = torch.ones_like(said, dtype=torch.bool)
    assert translated(TASK, source, said, real).all()
    assert not translated(TASK, source, said[:, :-1], real[:, :-1]).any()
    longer = torch.cat([said, said[:, :1]], 1)
    assert not translated(TASK, source, longer, torch.ones_like(longer, dtype=torch.bool)).any()
    mixed = said.clone()
    mixed[:, 2] += TASK.symbols
    assert not translated(TASK, source, mixed, real).any()


@pytest.mark.parametrize(("arm", "name"), [("plain", "nat"), ("left to right", "next_token")])
def test_an_untrained_model_loses_what_its_probabilities_say(arm: str, name: str) -> None:
    """All words equally likely: N ln V less the entropy."""
    model = GRID.build(arm).eval()
    for weight in model.parameters():
        torch.nn.init.zeros_(weight)
    source = TASK.batch("validation", 3, seed=0).source
    expected = dialects.WORDS * math.log(model.vocab) - math.log(2)
    assert nats_lost(model, name, TASK, source) == pytest.approx(expected, abs=1e-4)


def test_what_is_written_by_every_way() -> None:
    source = TASK.batch("validation", 5, seed=0).source
    for arm, one in GRID.arms.items():
        name = one.training["objective"]
        model = GRID.build(arm).eval()
        said, real = dialects.sentences(model, name, TASK, source, temperature=1.0)
        assert len(said) == 5
        assert said.shape == real.shape
        if name != "ctc":
            assert said.shape == source.shape
        assert (said < model.vocab).all()
