"""What is hidden decides: what the arms have in common, and what their rows say of their budget."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.core.visibility import Visibility
from attnlab.experiments import stored
from attnlab.experiments import what_is_hidden as experiment
from attnlab.lens.probes import layer_states
from attnlab.tasks.marked_text import windows


def rows() -> dict[str, float]:
    return stored("64_what_is_hidden.json", "what_is_hidden")


def test_all_objectives_begin_with_the_same_encoder() -> None:
    tokens = windows(experiment.text(), "validation", 3, seed=5).tokens
    found = []
    for name in (experiment.RANDOM, *experiment.OBJECTIVES):
        model = experiment.build(name, seed=2)
        states = layer_states(model, _from_both_sides(model, tokens), tokens=tokens)
        found.append((name, states))
    for name, states in found[1:]:
        assert torch.allclose(states, found[0][1], atol=1e-6), name


def _from_both_sides(model: Any, tokens: Tensor) -> Any:
    if model.config["kind"] != "language_model":
        return model.encode
    b, n = tokens.shape
    everything = Visibility(torch.ones(b, n, n, dtype=torch.bool))
    return lambda x: model.decode(x, structure=everything)


def test_the_separator_of_sentence_order_is_not_asked() -> None:
    model = experiment.build("sentence_order", seed=0)
    tokens = windows(experiment.text(), "validation", 3, seed=5).tokens
    states = experiment.read(model, "sentence_order", tokens)
    assert states.shape[1:3] == tokens.shape
    assert torch.equal(states[0], layer_states(model, model.encode, tokens=tokens)[0])


def test_of_a_model_that_knows_frequencies_the_whole_floor_is_left() -> None:
    model, run = experiment.train("masked_lm", 0, steps=1)
    learned = windows(experiment.text(), "train", 4000, seed=7).tokens.flatten()
    often = torch.bincount(learned, minlength=experiment.PIECES).float() + 1
    head: Any
    (head,) = (
        each for each in model.modules() if isinstance(each, nn.Linear) and len(each.weight) > 500
    )
    with torch.no_grad():
        head.weight.zero_()
        head.bias.fill_(-30)
        head.bias[: experiment.PIECES] = (often / often.sum()).log()
    assert experiment.left_of_floor(model, run.objective) == pytest.approx(100, abs=4)


def test_electra_at_hidden_places_is_asked_nowhere_else() -> None:
    model, run = experiment.COMPUTED.train(experiment.AT_HIDDEN, 0, steps=1)
    asks = run.objective
    batch = asks.prepare(experiment.text().batch("train", 5, 0), torch.Generator().manual_seed(3))
    answers = asks.answers(model, batch)
    answers.scores.retain_grad()
    asks.loss(answers, batch).backward()
    assert torch.equal(answers.scores.grad != 0, batch.kept["hidden"])
    everywhere = experiment.objective_of("electra").loss(answers, batch)
    assert everywhere > 0


def test_the_updates_of_equal_computation_are_those_counted() -> None:
    assert experiment.equal_steps(experiment.STEPS) == experiment.EQUAL
    n = experiment.BATCH * experiment.LENGTH
    head = 2 * experiment.SIZES["dim"] * (experiment.PIECES + 1)
    scored = experiment.BATCH * round(0.15 * experiment.LENGTH)
    assert experiment.unread() == 3 * head * (n - scored)


def test_the_rates_of_the_two_arms_of_the_claim_are_the_better_of_those_tried() -> None:
    found = rows()
    for name in experiment.CLAIM:
        told = {
            rate: found[f"own loss of its floor, {name} at {rate:g}, tried once"]
            for rate in experiment.TRIED
        }
        assert min(told, key=lambda rate: told[rate]) == experiment.RATES[name], name
        again = found[f"{name}, own loss of its floor, seed 0"]
        assert again == told[experiment.RATES[name]], name


def test_shuffled_labels_are_at_guessing() -> None:
    found = [value for name, value in rows().items() if "shuffled labels" in name]
    assert len(found) > 30
    assert all(40 < value < 60 for value in found)
