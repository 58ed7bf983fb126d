"""The experiment `induction_formation`, small: its data, what is measured, and what is stored."""

import pytest
import torch
from torch import nn

from attnlab.experiments import induction_formation
from attnlab.experiments.induction_formation import LENGTH, TOKENS, build, film, measured
from attnlab.lens.head_kinds import find_heads


def test_a_film_has_the_steps_in_order_and_the_training_goes_on() -> None:
    frames = film("symbols", 1, steps=(0, 1, 3))
    assert list(frames) == [0, 1, 3]
    untrained = build("symbols", 1)
    states = [untrained.state_dict(), *(frame.state_dict() for frame in frames.values())]
    for name, first in states[0].items():
        assert torch.equal(first, states[1][name])
    assert not torch.equal(states[1]["embedding.weight"], states[2]["embedding.weight"])
    assert not torch.equal(states[2]["embedding.weight"], states[3]["embedding.weight"])
    assert not any(frame.training for frame in frames.values())
    again = film("symbols", 1, steps=(3,))
    assert list(again) == [0, 3]
    assert torch.equal(again[3].embedding.weight, frames[3].embedding.weight)


class Copying(nn.Module):
    """Says what came after the last occurrence of the token, and otherwise the token itself."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        said = inputs.clone()
        for row in range(len(inputs)):
            after: dict[int, int] = {}
            for i, token in enumerate(inputs[row].tolist()):
                if i:
                    after[int(inputs[row, i - 1])] = token
                said[row, i] = after.get(token, token)
        return 9 * nn.functional.one_hot(said, TOKENS).float()


def test_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    w = torch.eye(LENGTH).roll(-1, 1)  # every query attends to the token before
    w[0] = torch.eye(LENGTH)[0]
    even = torch.ones(LENGTH, LENGTH).tril()
    even = even / even.sum(1, keepdim=True)

    def look(model, batch):
        seen = {"a": torch.stack([even, w]).expand(len(batch), 2, LENGTH, LENGTH)}
        return model(batch.inputs), find_heads(seen, batch.inputs)

    monkeypatch.setattr(induction_formation, "look", look)
    found = measured(Copying(), "text")
    assert list(found) == [
        *("loss", "in-context score", "repeats right", "induction", "previous"),
        "induction in text",
    ]
    assert found["repeats right"] == 100
    assert found["previous"] == 1  # the larger of 1 and of even attention
    assert 0 < found["induction"] < 0.1
    assert found["in-context score"] < -0.2  # later in a text, more has been seen
    assert "in-context score" not in measured(Copying(), "symbols")


def test_an_untrained_model_knows_nothing() -> None:
    name = "text, random tokens repeated"
    found = measured(build(name, 0).eval(), name)
    assert found["loss"] == pytest.approx(torch.tensor(TOKENS).log().item(), abs=0.1)
    assert 0 <= found["repeats right"] < 10
    assert 0 < found["induction"] < 0.1
