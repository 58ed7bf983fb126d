"""Every argument of the training room is checked, and refused in a sentence that names it."""

import inspect
import math
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from attnlab import train
from attnlab.train import Settings, evaluate, fit, load_checkpoint, save_checkpoint

NAMES = list(inspect.signature(fit).parameters)
STRANGE = [
    *(None, True, False, -1, 0, 2.5, 1.0, math.nan, math.inf, -math.inf, 10**400, 1j),
    *("", "yes", "5", b"5", [], [5], (), {}, {5}, object(), print, int, Ellipsis),
    *(np.float64("nan"), np.bool_(True), np.array([1, 2]), torch.tensor(5), torch.tensor([1.5])),
    *(Path("/dev/null/x"), Fraction(1, 3), range(3), nn.Linear(2, 3)),
]


def is_valid(name, value):
    """Whether the documentation allows this value for this argument (of a run of 3 steps)."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    match name:
        case "steps" | "batch_size" | "accumulate" | "evaluate_batches" | "limit":
            return whole and 0 < value < 2**20
        case "warmup":
            return value is None or (whole and 0 <= value < 3)
        case "evaluate_every" | "save_every" | "segment":
            return value is None or (whole and value > 0)
        case "seed":
            return whole
        case "learning_rate":
            return number and 0 < value < 1e300
        case "weight_decay":
            return number and 0 <= value < 1e300
        case "clip":
            return value is None or (number and 0 < value < 1e300)
        case "resume" | "progress" | "gradient_checkpointing":
            return isinstance(value, bool)
        case "callbacks":
            return isinstance(value, list | tuple | range) and not value
        case "device" | "folder":
            return value is None
        case "sharded":
            return value is False
    return False


def refusals():
    for name in NAMES:
        for index, value in enumerate(STRANGE):
            if not is_valid(name, value) and not (
                name == "folder" and isinstance(value, str) and value
            ):
                yield pytest.param(name, value, id=f"{name}-{index}")


def test_the_signature_names_every_option():
    assert len(NAMES) >= 20
    assert {field.name for field in fields(Settings)} < set(NAMES)
    assert inspect.signature(fit).parameters["learning_rate"].default == 3e-3
    for option in fields(Settings):
        assert f"{option.name}" in Settings.__doc__


@pytest.mark.parametrize(("name", "value"), list(refusals()))
def test_no_strange_value_is_taken(toy, successor, weights, tmp_path, monkeypatch, name, value):
    """A sentence that names the argument and shows what came, and the model as it was."""
    monkeypatch.chdir(tmp_path)
    model = toy()
    before = weights(model)
    options = {"model": model, "task": successor(), "steps": 3, "progress": False}
    with pytest.raises((ValueError, TypeError)) as caught:
        fit(**options | {name: value})
    message = str(caught.value)
    assert name in message, message
    assert not message.endswith((".", " ")), message
    assert len(message) > 30, message
    assert all(torch.equal(v, before[n]) for n, v in weights(model).items())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"steps": np.int64(2), "batch_size": np.int32(4), "accumulate": np.uint8(2)},
        {"steps": 2, "seed": np.int64(-3), "evaluate_every": np.int8(1)},
        {
            "steps": 2,
            "learning_rate": np.float32(0.01),
            "clip": np.float64(2),
            "warmup": np.int8(1),
        },
        {"steps": 2, "learning_rate": 1, "clip": 1, "weight_decay": Fraction(1, 3)},
    ],
)
def test_numbers_of_numpy_are_welcome(toy, successor, tmp_path, options):
    """They are stored in the checkpoint too, as plain numbers."""
    rows = fit(toy(), successor(), folder=tmp_path, progress=False, **options).rows
    assert len(rows) == 2
    assert load_checkpoint(tmp_path).step == 2


def test_an_unknown_option_is_refused_with_the_nearest(toy, successor):
    with pytest.raises(TypeError, match="no option 'learning_rates'; did you mean 'learning_rate'"):
        fit(toy(), successor(), 2, learning_rates=0.1)


def test_more_rows_than_any_memory_holds(toy, successor):
    with pytest.raises(ValueError, match="batch_size should be at most 1,048,576; 1000000000 was"):
        fit(toy(), successor(), 2, batch_size=10**9)
    with pytest.raises(ValueError, match="batch_size should be at most 1,048,576"):
        evaluate(toy(), successor(), batch_size=10**9)


def on_meta(toy):
    with torch.device("meta"):
        return nn.Linear(3, 5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda toy, task: fit(None, task, 2), "model should be a torch.nn.Module; None was given"),
        (lambda toy, task: fit(toy, task, 2), "that is a class: call it to build a model"),
        (lambda toy, task: fit(on_meta(toy), task, 2), "'weight' is on the meta device"),
        (lambda toy, task: evaluate(None, task), "model should be a torch.nn.Module"),
        (lambda toy, task: evaluate(toy(), task, split=3), "split should be .*3 was given"),
        (lambda toy, task: evaluate(toy(), task, seed=1.5), "seed should be a whole number"),
        (lambda toy, task: evaluate(toy(), task, batches=True), "batches should be"),
        (lambda toy, task: evaluate(toy(), task, batch_size=2.0), "batch_size should be"),
        (lambda toy, task: load_checkpoint(None), "folder should be the path of a folder"),
        (lambda toy, task: load_checkpoint(3), "folder should be the path of a folder"),
        (lambda toy, task: load_checkpoint(""), "folder should be the path of a folder"),
        (lambda toy, task: load_checkpoint("a\0b"), "folder should be the path of a folder"),
    ],
)
def test_other_calls(toy, successor, call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(toy, successor())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": None}, "model should be a torch.nn.Module"),
        ({"model": on_meta(None)}, "is on the meta device"),
        ({"step": -1}, "step should be a whole number of at least 0; -1"),
        ({"step": 1.5}, "step should be"),
        ({"step": True}, "step should be"),
        ({"state": {"a": torch.ones(3)}}, "state should be plain JSON"),
        ({"state": {"a": math.nan}}, "state should be plain JSON"),
        ({"state": 3}, "state should be plain JSON"),
        ({"state": {3: "a"}}, "state should be plain JSON"),
        ({"generators": {"cpu": 3}}, "generators should be tensors by name"),
        ({"generators": [3]}, "generators should be tensors by name"),
        ({"optimizer": 3}, "optimizer should be a torch.optim.Optimizer; 3 was given"),
        ({"folder": None}, "folder should be the path"),
    ],
)
def test_saving_refuses(toy, tmp_path, options, words):
    call = {"folder": tmp_path, "model": toy(), "step": 1} | options
    with pytest.raises((ValueError, TypeError), match=words):
        save_checkpoint(**call)
    assert list(tmp_path.iterdir()) == []


def test_an_optimizer_of_another_model(toy, tmp_path):
    model, other = toy(), toy()
    optimizer = torch.optim.AdamW(other.parameters())
    other(torch.tensor([[3]])).sum().backward()
    optimizer.step()
    with pytest.raises(train.CheckpointError, match="that is no parameter of this model"):
        save_checkpoint(tmp_path, model, optimizer, step=1)
    save_checkpoint(tmp_path, other, optimizer, step=1)
    stored = load_checkpoint(tmp_path)
    with pytest.raises(train.CheckpointError, match="that is no parameter of this model"):
        stored.restore(model, optimizer)
    for bad in (None, 3, "model"):
        with pytest.raises(TypeError, match=r"model should be a torch.nn.Module"):
            stored.restore(bad)
        if bad is not None:
            with pytest.raises(TypeError, match=r"optimizer should be a torch.optim.Optimizer"):
                stored.restore(other, bad)


def test_a_model_that_no_file_can_hold(toy, tmp_path):
    sparse = nn.Module()
    sparse.register_buffer("table", torch.eye(3).to_sparse())
    with pytest.raises(train.CheckpointError, match=r"'table' is sparse_coo"):
        save_checkpoint(tmp_path, sparse, step=1)


def test_the_checkpoint_itself_is_not_the_folder(toy, tmp_path):
    path = save_checkpoint(tmp_path, toy(), step=1)
    with pytest.raises(train.CheckpointError, match="it is a checkpoint itself; give its folder"):
        load_checkpoint(path)
