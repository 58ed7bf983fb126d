"""The experiment `first_token`, small: planted heads are measured as they are, and stored rows."""

import pytest
import torch

from attnlab.experiments import first_token
from attnlab.experiments.first_token import ARMS, FROM, build, score, validation
from attnlab.tasks.ditto import Ditto


def planted(arm: str, weight_of: dict[str, float], monkeypatch: pytest.MonkeyPatch):
    """A model whose letters give these weights to <s>, to themselves and to the token before."""
    task = ARMS[arm].task
    batch = validation(task, quick=True)
    b, n = batch.inputs.shape
    weights = torch.zeros(b, n, n)
    weights[..., 0] = weight_of.get("first", 0)
    for back, kind in enumerate(("own", "one back")):
        weights.diagonal(-back, 1, 2)[:] += weight_of.get(kind, 0)
    values = torch.ones(b, n, 4)
    values[:, 0] = 0.5
    seen = {"weights": weights, "values": values}
    monkeypatch.setattr(first_token, "_seen", lambda *_: seen)
    return task, batch


def test_weights_of_a_planted_head(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"first": 0.5, "own": 0.125, "one back": 0.25}
    task, batch = planted("softmax", given, monkeypatch)
    found = first_token.shares(build("softmax"), task, batch)
    assert found["letters: first"] == 50
    assert found["letters: own"] == 12.5
    assert found["letters: one back"] == 25
    assert found["letters: sink"] == 12.5
    before = (batch.inputs == task.mark)[:, FROM - 1 : -1]
    letters = (batch.inputs < task.symbols)[:, FROM:]
    expected = 25 * before[letters].float().mean().item()
    assert found["letters: marks"] == pytest.approx(expected, abs=0.01)
    assert first_token.value_length(build("softmax"), task, batch) == 50


def test_who_knows_the_chain_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Ditto()
    batch = validation(task, quick=True)
    model = build("softmax")
    chain = torch.from_numpy(task.probabilities()).clamp(min=1e-30).log().float()

    def knows(inputs, structure=None):
        found = torch.full((*inputs.shape, task.vocab), -60.0)
        letters = inputs < task.symbols
        found[..., :-1][letters] = chain[inputs[letters]]
        before = inputs.roll(1, 1).clamp(max=task.symbols - 1)
        marked = torch.nn.functional.one_hot(before, task.vocab).float()
        return torch.where((inputs == task.mark)[..., None], marked, found)

    monkeypatch.setattr(model, "forward", knows)
    found = first_token.quality(model, task, batch)
    assert found["lost at letters"][0] == pytest.approx(0, abs=1e-5)
    assert found["right at marks"] == 100


def test_what_is_hidden() -> None:
    task = Ditto(length=7, own=False)
    near = first_token.hidden(task, first=False, window=2)
    assert near[5].tolist() == [False, False, False, True, True, False, False]
    assert near[0].tolist() == [True, *[False] * 6]
    both = first_token.hidden(task, first=True, window=2)
    assert both[5].tolist() == [True, False, False, True, True, False, False]
    own = first_token.hidden(Ditto(length=7), first=False, window=2)
    assert own[5].tolist() == [False, False, False, False, True, True, False]


def test_a_start_that_is_moved() -> None:
    task = Ditto()
    batch = validation(task, quick=True)
    moved = first_token.start_moved(task, batch, 8)
    assert (moved.inputs[:, 8] == task.begin).all()
    assert torch.equal(moved.inputs[:, :8], batch.inputs[:, 1:9])
    assert torch.equal(moved.inputs[:, 9:], batch.inputs[:, 9:])
    replaced = first_token.letter_first(task, batch)
    assert (replaced.inputs[:, 0] < task.symbols).all()


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_is_scored(arm: str) -> None:
    found = score(build(arm), ARMS[arm].task, quick=True)
    assert ("letters: gate" in found) == ("gate" in arm)
    sink = found["letters: sink"]
    assert sink > 1 if "sink" in arm or arm == "off by one" else sink == 0
