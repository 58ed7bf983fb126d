"""The experiment `kept_tokens`, small: what is scored, what is kept and read, what is stored."""

import re

import pytest
import torch

from attnlab.experiments import kept_tokens as experiment
from attnlab.experiments import stored


def test_a_budget_that_holds_the_text_scores_as_the_model() -> None:
    model = experiment.build("MHA").eval()
    rows = experiment.texts("text", 3)
    exact, _, note = experiment.loss(model, None, rows, 20)
    assert note == "keeps 31, reads 31"
    with torch.no_grad():
        found = model(rows[:, :-1]).log_softmax(-1).gather(-1, rows[:, 1:, None])
    assert exact == pytest.approx(-found[:, 20:].mean().item(), abs=1e-3)
    for policy in experiment.policies(40, 0, page=4).values():
        assert experiment.loss(model, policy, rows, 20)[0] == pytest.approx(exact, abs=1e-3)


def test_what_is_kept_and_read_by_the_last_token() -> None:
    model, rows = experiment.build("MHA").eval(), experiment.texts("returning", 2)
    notes = {
        name: experiment.loss(model, policy, rows, 36)[2]
        for name, policy in experiment.policies(16, 0, page=4).items()
    }
    assert notes == {
        **dict.fromkeys(("window", "sinks", "random", "H2O"), "keeps 16, reads 17"),
        "SnapKV": "keeps 27, reads 27",
        "Quest": "keeps 47, reads 15",
    }


def test_a_passage_returns_after_the_prompt() -> None:
    rows = experiment.texts("returning", 5)
    assert rows.shape == (5, 48)
    assert torch.equal(rows[:, 32:], rows[:, :16])
    assert torch.equal(experiment.texts("text", 5), rows[:, :32])


def test_what_is_stored_says_what_the_lesson_says() -> None:
    rows = stored("25_kept_tokens.json", "kept_tokens")
    arms = {re.sub(r", \d+; .*|; .*", "", name.removeprefix("MHA; ")) for name in rows}
    assert arms >= {"all", "window", "sinks", "random", "H2O", "SnapKV", "Quest"}

    def returning(name: str) -> torch.Tensor:
        return torch.tensor([rows[f"MHA; {name}; returning; seed {s}"] for s in experiment.SEEDS])

    assert (returning("random, 16") < returning("H2O, 16")).all()
    assert (returning("H2O, 16") < returning("window, 16") + 0.01).all()
    assert (returning("Quest, 16") - returning("all")).max() < 0.2
    assert (returning("window, 24") - returning("all")).min() > 1
    assert (returning("window, 32") - returning("all")).abs().max() < 0.01
