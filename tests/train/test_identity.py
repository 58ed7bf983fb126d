"""A run goes on from its own checkpoint only: another model or task is refused by name."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import task
from attnlab.train import CheckpointError, fit, load_checkpoint
from attnlab.train.identity import describe_modules, describe_task, differences, fingerprint

OPTIONS = {"batch_size": 3, "progress": False}
COPYING = {"items": 5}


def tiny(**options):
    torch.manual_seed(0)
    wanted = task("copying", **COPYING).model_options() | {"dim": 8, "layers": 1, "heads": 2}
    return TinyTransformer(**wanted | options)


def refused(model, problem, folder, words):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=words) as caught:
        fit(model, problem, 2, folder=folder, **OPTIONS)
    assert load_checkpoint(folder).step == 1
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    return str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({"heads": 2}, {"heads": 4}, "another model: heads 2 there and 4 here"),
        ({}, {"attention": "linear"}, "another model: attention 'full' there and 'linear' here"),
        ({}, {"attention": "longformer"}, "attention 'full' there and 'longformer' here"),
        ({}, {"dropout": 0.3}, r"dropout 0.0 there and 0.3 here"),
        ({}, {"norm": "post"}, "join 'pre_norm' there and 'post_norm' here"),
        (
            {"attention": "longformer", "attention_options": {"window": 4}},
            {"attention": "longformer", "attention_options": {"window": 6}},
            r"attention_options \{'window': 4\} there and \{'window': 6\} here",
        ),
        ({}, {"dim": 16}, "another model: dim 8 there and 16 here"),
    ],
)
def test_another_transformer(tmp_path, one, other, words):
    problem = task("copying", **COPYING)
    fit(tiny(**one), problem, 1, folder=tmp_path, **OPTIONS)
    refused(tiny(**other), problem, tmp_path, words)
    assert len(fit(tiny(**one), problem, 2, folder=tmp_path, **OPTIONS).rows) == 2


def test_a_mechanism_that_the_configuration_does_not_name(tmp_path):
    """A function builds the attention, so `config` says None in both."""
    from attnlab import build

    def model(heads):
        return tiny(
            attention=lambda dim, _, causal: build("full", dim=dim, heads=heads, causal=causal)
        )

    problem = task("copying", **COPYING)
    fit(model(2), problem, 1, folder=tmp_path, **OPTIONS)
    words = (
        r"another model: module 'decoder.blocks.0.attention.*heads=2.* there and .*heads=4.* here"
    )
    refused(model(4), problem, tmp_path, words)


def test_what_only_changes_the_work_may_change(tmp_path):
    problem = task("copying", **COPYING)
    fit(tiny(checkpoint=True), problem, 1, folder=tmp_path, **OPTIONS)
    assert len(fit(tiny(), problem, 2, folder=tmp_path, **OPTIONS).rows) == 2


class Plain(nn.Module):
    """No configuration: heads, a function and a counter, and weights that fit whatever they are."""

    def __init__(self, heads=1, activation=torch.tanh, inner=None) -> None:
        super().__init__()
        self.heads, self.activation, self.calls = heads, activation, 0
        self.embedding, self.drop = nn.Embedding(20, 6), nn.Dropout(0.25 if heads == 3 else 0.5)
        self.inner = inner or nn.Linear(6, 20)

    def forward(self, inputs, padding=None):
        self.calls += 1
        return self.inner(self.activation(self.drop(self.embedding(inputs))) * self.heads)


def frozen(model):
    model.embedding.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda: Plain(heads=2), r"the model 'Plain\(heads=1, .*' there and 'Plain\(heads=2, "),
        (lambda: Plain(heads=3), "heads=1"),
        (lambda: Plain(activation=F.relu), "tanh.*relu"),
        (lambda: Plain(inner=nn.Linear(6, 20, bias=False)), "unknown 'inner.bias'"),
        (lambda: Plain(inner=nn.utils.parametrizations.orthogonal(nn.Linear(6, 20))), "inner"),
        (lambda: frozen(Plain()), "module 'embedding' .* and .*frozen: weight"),
    ],
)
def test_another_module(tmp_path, other, words):
    problem = task("copying", **COPYING)
    model = Plain()
    fit(model, problem, 1, folder=tmp_path, **OPTIONS)
    refused(other(), problem, tmp_path, words)
    assert len(fit(model, problem, 2, folder=tmp_path, **OPTIONS).rows) == 2  # it has counted calls
    assert len(fit(Plain(), problem, 3, folder=tmp_path, **OPTIONS).rows) == 3


@pytest.mark.parametrize(
    ("name", "one", "other", "words"),
    [
        ("needle", {"every": 4}, {"every": 8}, "another task: every 4 there and 8 here"),
        ("copying", {"items": 5}, {"items": 7}, "length 10 there and 14 here"),
        ("needle", {"keys": 5, "words": 9}, {"keys": 6, "words": 8}, "keys 5 there and 6 here"),
    ],
)
def test_another_problem(tmp_path, name, one, other, words):
    one, other = task(name, **one), task(name, **other)
    longest = max(one.length, other.length)
    options = one.model_options() | {"dim": 8, "layers": 1, "heads": 2, "max_len": longest}
    fit(TinyTransformer(**options), one, 1, folder=tmp_path, **OPTIONS)
    refused(TinyTransformer(**options), other, tmp_path, words)


def test_a_task_whose_options_are_hidden(toy, successor, tmp_path):
    """Name, sizes and options are equal; only the rows tell the two apart."""

    def shifted(by):
        class Task(successor):
            def batch(self, split, size, seed):
                return super().batch(split, size, seed + by)

        return Task()

    fit(toy(), shifted(0), 1, folder=tmp_path, **OPTIONS)
    refused(toy(), shifted(1), tmp_path, "another task: digest of a row '.*' there and '.*' here")


def test_a_task_that_draws_at_random_may_still_go_on(toy, successor, tmp_path):
    """Its rows prove nothing, so they are not compared."""

    class Random(successor):
        def batch(self, split, size, seed):
            return super().batch(split, size, int(torch.randint(10**6, ())))

    fit(toy(), Random(), 1, folder=tmp_path, **OPTIONS)
    assert len(fit(toy(), Random(), 2, folder=tmp_path, **OPTIONS).rows) == 2


@dataclass(frozen=True)
class Window:
    radius: int = 3
    names: tuple[str, ...] = ("a", "b")
    extra: dict[str, float] = field(default_factory=dict)


class Optioned(nn.Module):
    def __init__(self, options, table=None) -> None:
        super().__init__()
        self.options, self.table = options, table


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Window(3), Window(5)),
        (Window(names=("a",)), Window(names=("b",))),
        (Window(extra={"a": 1.5}), Window(extra={"a": float("inf")})),
        ([1] * 300, [1] * 299 + [2]),
        ("x" * 300, "x" * 299 + "y"),
        ({1, 2}, {1, 3}),
        (np.int64(3), np.int64(5)),
        (np.arange(3), np.arange(3.0)),
        (torch.float32, torch.float64),
        (Window, SimpleNamespace),
        (SimpleNamespace(a=1), SimpleNamespace(a=2)),
        (None, False),
    ],
)
def test_options_of_any_kind_are_distinguished(one, other):
    line = lambda options: describe_modules(Optioned(options))["the model"]  # noqa: E731
    assert line(one) == line(one)
    assert line(one) != line(other)


def test_an_address_in_memory_tells_nothing():
    one, other = (describe_modules(Optioned([object(), print, lambda x: x])) for _ in range(2))
    assert one == other
    assert "0x" not in str(one)


def test_differences_are_counted_beyond_three():
    ours = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
    assert differences({}, ours).endswith("c None there and 3 here, and 2 more")
    assert differences(None, {"a": 1}) == "a None there and 1 here"
    assert differences(ours, dict(ours)) == ""


def test_a_row_is_described_by_its_whole_numbers(successor):
    rows = [successor().batch("train", 1, seed) for seed in (3, 3, 5)]
    described = [describe_task(successor(), fingerprint(row)) for row in rows]
    one, same, other = (each["digest of a row"] for each in described)
    assert one == same != other
