"""The experiment `dialects`, small: what is written, and what is exact."""

import math

import pytest
import torch
from torch.nn.functional import ctc_loss

from attnlab.experiments import dialects
from attnlab.experiments.dialects import ARMS, lost_at_least, nats_lost
from attnlab.models.parallel_decoding import Written
from attnlab.tasks.two_dialects import TwoDialects

TASK = TwoDialects(words=dialects.WORDS)


def test_least_losses_of_the_arms() -> None:
    expected = {"by the source": 0, "by the word": 0}
    for arm, one in ARMS.arms.items():
        nats = expected.get(arm, (dialects.WORDS - 1) * math.log(2))
        assert lost_at_least(one.problem) == pytest.approx(nats, abs=1e-9)


def test_least_losses_of_a_word_are_entropies() -> None:
    """Of the words, of a model that writes all at once; of the sentence from left to right."""
    plain, ordered = dialects.least_loss("plain"), dialects.least_loss("left to right")
    assert dialects.WORDS * plain - TASK.entropy() == pytest.approx(lost_at_least(TASK))
    assert dialects.WORDS * ordered == pytest.approx(TASK.entropy())
    every = TwoDialects(words=dialects.WORDS, coin="word")
    assert dialects.WORDS * dialects.least_loss("by the word") == pytest.approx(every.entropy())
    assert {dialects.least_loss(arm) for arm in ("one dialect", "distilled", "by the source")} == {
        0.0
    }


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


def test_no_probabilities_at_the_places_of_ctc_cost_less_than_its_floor() -> None:
    """Free ones, of 40 starts: with two words in five places the best comes to ln 2 a word."""
    places, blank = 5, 4
    start = torch.Generator().manual_seed(0)
    free = (2 * torch.randn(40, places, 5, generator=start)).requires_grad_()
    optimizer = torch.optim.Adam([free], lr=0.1)
    for _ in range(400):
        logp = free.log_softmax(-1).transpose(0, 1)
        each = [
            ctc_loss(logp, row.expand(40, 2), (places,) * 40, (2,) * 40, blank, reduction="none")
            for row in torch.tensor([[0, 1], [2, 3]])
        ]
        loss = torch.stack(each).mean(0) / 2
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    floor = dialects.least_loss("ctc")
    assert floor - 1e-5 < loss.detach().min().item() < floor + 0.01


def test_the_trained_teacher_is_the_model_from_left_to_right() -> None:
    batch = TASK.batch("train", 5, seed=0)
    teacher, _ = ARMS.train("left to right", 1, steps=3)
    written = dialects.objective("distilled", TASK, seed=1, teaching=3).prepare(batch).targets
    assert torch.equal(written, dialects.sentences(teacher, "next_token", TASK, batch.source))
    assert dialects.trained_teacher(1, 3) is dialects.trained_teacher(1, 3)
    other = dialects.objective("distilled", TASK, seed=0, teaching=3).prepare(batch).targets
    assert not torch.equal(written, other)


def test_what_ctc_writes_with_other_than_n_words_is_no_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = torch.tensor([[1, 2, 3], [1, 2, 3], [1, 2, 3]])
    task = TwoDialects(words=3, symbols=11)
    right = task.dialects(source)[:, 0]
    tokens = torch.cat([right, right[:, :1]], 1)
    real = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]).bool()
    monkeypatch.setattr(dialects, "ctc_decode", lambda *_, **__: Written(tokens, real, real[:, 0]))
    said = dialects.sentences(None, "ctc", task, source)
    assert torch.equal(said, torch.stack([right[0], *torch.full((2, 3), -1)]))
    assert task.right(source, said).tolist() == [True, False, False]


def test_the_teacher_of_one_dialect_writes_it() -> None:
    batch = TASK.batch("train", 5, seed=0)
    written = dialects.objective("one dialect", TASK).prepare(batch).targets
    assert torch.equal(written, TASK.dialects(batch.source)[:, 0])


@pytest.mark.parametrize(("arm", "name"), [("plain", "nat"), ("left to right", "next_token")])
def test_an_untrained_model_loses_what_its_probabilities_say(arm: str, name: str) -> None:
    """All words equally likely: N ln V less the entropy."""
    model = ARMS.build(arm).eval()
    for weight in model.parameters():
        torch.nn.init.zeros_(weight)
    source = TASK.batch("validation", 3, seed=0).source
    expected = dialects.WORDS * math.log(model.vocab) - math.log(2)
    assert nats_lost(model, name, TASK, source) == pytest.approx(expected, abs=1e-4)


def test_a_student_loses_what_its_probabilities_of_the_data_say() -> None:
    """Not those of its teacher's sentences."""
    model, source = ARMS.build("distilled").eval(), TASK.batch("validation", 3, seed=0).source
    lost = {name: nats_lost(model, name, TASK, source) for name in ("nat", "distilled", "cmlm")}
    assert lost["distilled"] == lost["cmlm"] == lost["nat"] > lost_at_least(TASK)


def test_rates_that_are_not_an_arms_own_are_trained_under_another_name() -> None:
    assert dialects.at_rate("ctc", 3e-3) == "ctc"
    assert dialects.at_rate("ctc", 1e-3) == "ctc at 0.001"
    for arm in dialects.TUNED:
        rates = [
            (dialects.OTHERS.arms | ARMS.arms)[dialects.at_rate(arm, rate)].training[
                "learning_rate"
            ]
            for rate in dialects.RATES
        ]
        assert rates == [*dialects.RATES]
        steps = {ARMS.arms[arm].steps} | {
            one.steps for name, one in dialects.OTHERS.arms.items() if name.startswith(f"{arm} at ")
        }
        assert len(steps) == 1
    assert len(dialects.OTHERS.arms) == 2 * len(dialects.TUNED)


def test_what_is_written_has_a_word_for_each_of_the_source() -> None:
    source = TASK.batch("validation", 5, seed=0).source
    for arm, one in ARMS.arms.items():
        model = ARMS.build(arm).eval()
        name = one.training["objective"]
        said = dialects.sentences(model, name, TASK, source, temperature=1.0)
        assert said.shape == source.shape
        assert (said < TASK.vocab).all()
