"""The experiment `births`, small: its data, what is measured, and what is stored."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from attnlab.experiments import births
from attnlab.experiments.births import ARMS, LENGTH, SEEDS, TOKENS, Text, build, film, measured
from attnlab.lens.find_heads import find_heads

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/61_births.json"


def period(row: torch.Tensor) -> int:
    """After how many places a row repeats; its length if it does not."""
    n = len(row)
    return next((p for p in range(1, n) if torch.equal(row[p:], row[:-p])), n)


@pytest.mark.parametrize("repeats", ["none", "passages", "random tokens"])
def test_half_of_the_windows_repeat(repeats: str) -> None:
    plain, batch = Text().batch("train", 14, 5), Text(repeats).batch("train", 14, 5)
    count = 0 if repeats == "none" else 7
    assert torch.equal(batch.inputs[count:], plain.inputs[count:])
    assert torch.equal(batch.targets[count:], plain.targets[count:])
    for row, text, target in zip(batch.inputs[:count], plain.inputs, batch.targets, strict=False):
        run = period(row)
        assert LENGTH // 4 <= run <= LENGTH // 2
        asked = target >= 0
        assert torch.equal(target[:-1][asked[:-1]], row[1:][asked[:-1]])
        assert int(target[-1]) == int(row[LENGTH % run])
        if repeats == "passages":
            assert torch.equal(row[:run], text[:run])
            assert asked.all()
        else:
            assert len(set(row[:run].tolist())) == run
            assert asked.tolist() == [place >= run for place in range(LENGTH)]


def test_runs_of_passages_differ_in_length() -> None:
    runs = {period(row) for row in Text("passages").batch("train", 60, 0).inputs[:30]}
    assert len(runs) > 8


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

    monkeypatch.setattr(births, "look", look)
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


def test_rows_of_the_quick_run(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("symbols", "text, random tokens repeated")
    monkeypatch.setattr(births, "ARMS", {name: ARMS[name] for name in names})
    torch.manual_seed(3)
    state = torch.get_rng_state()
    rows = list(births.rows(quick=True, threads=torch.get_num_threads()))
    assert torch.equal(torch.get_rng_state(), state)
    figures = {row.figure: row for row in rows}
    assert len(figures) == len(rows) == 2 * (5 + 6)
    for name in names:
        for step in (0, 2):
            right = figures[f"{name}, step {step}, repeats right, seed 0"]
            assert right.unit == "%"
            assert 0 <= right.measured < 10
            assert 0 < figures[f"{name}, step {step}, induction, seed 0"].measured < 0.1
    loss = figures["text, random tokens repeated, step 0, loss, seed 0"].measured
    assert loss == pytest.approx(torch.tensor(TOKENS).log().item(), abs=0.1)


def test_what_the_lesson_draws_is_whole() -> None:
    stored = json.loads(STORED.read_text())
    assert not stored["quick"]
    found = {row["figure"] for row in stored["experiments"]["births"]}
    text = ("loss", "in-context score", "repeats right", "induction", "previous")
    quantities = {
        name: (*text, "induction in text")
        if arm.reads_text
        else (text[0], *text[2:], "previous, both heads")
        for name, arm in ARMS.items()
    }
    assert found == {
        f"{name}, step {step}, {what}, seed {seed}"
        for name, arm in ARMS.items()
        for step in arm.steps
        for what in quantities[name]
        for seed in SEEDS
    }
