"""Equal time, with a clock that the models themselves move on."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import task
from attnlab.train import equal_time, fit, step
from attnlab.train.equal_time import fit_for

COPYING = task("copying", items=4, symbols=7)


class Watch:
    """Seconds that pass while models compute: so many for each call in training mode, times what
    the machine is slower at that moment."""

    def __init__(self, slower: Callable[[float], float] = lambda now: 1.0) -> None:
        self.now, self.slower = 0.0, slower

    def __call__(self) -> float:
        return self.now

    def watched(self, seconds: float, seed: int = 0) -> TinyTransformer:
        torch.manual_seed(seed)
        model = TinyTransformer(**COPYING.model_options(), dim=8, layers=1, heads=2)

        def passes(module: nn.Module, *_: Any) -> None:
            if module.training and torch.is_grad_enabled():
                self.now += seconds * self.slower(self.now)

        model.register_forward_hook(passes)
        return model


def test_each_model_takes_the_updates_that_its_seconds_allow() -> None:
    watch = Watch()
    models = {"slow": watch.watched(3.0), "quick": watch.watched(1.0, seed=1)}
    found = fit_for(12, models, COPYING, clock=watch, batch_size=2)
    assert {name: spent.updates for name, spent in found.items()} == {"slow": 4, "quick": 12}
    assert all(spent.seconds == 12 for spent in found.values())
    assert [len(spent.losses) for spent in found.values()] == [4, 12]
    assert all(spent.processor > 0 for spent in found.values())


def test_the_last_update_may_end_after_the_budget_and_none_begins_there() -> None:
    watch = Watch()
    found = fit_for(10, {"slow": watch.watched(3.0)}, COPYING, clock=watch, batch_size=2)
    assert (found["slow"].updates, found["slow"].seconds) == (4, 12)


def test_a_slow_while_slows_all_models_alike() -> None:
    """At first the machine is three times slower. Of trainings one after the
    other, the first would bear all of it."""
    watch = Watch(lambda now: 3.0 if now < 300 else 1.0)
    models = {"slow": watch.watched(3.0), "quick": watch.watched(1.0, seed=1)}
    found = fit_for(300, models, COPYING, clock=watch, batch_size=2)
    slow, quick = found["slow"].updates, found["quick"].updates
    assert slow < 80  # 100 on a machine that is always quick
    assert quick < 240  # 300 there
    assert 2.7 < quick / slow < 3.3


def test_at_every_moment_all_have_spent_the_same_up_to_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch, spent = Watch(), dict[int, float]()
    turn = equal_time._Run.turn

    def noted(run: Any, budget: float) -> None:
        turn(run, budget)
        spent[id(run)] = run.seconds
        if len(spent) == 3:
            assert max(spent.values()) - min(spent.values()) <= 5

    monkeypatch.setattr(equal_time._Run, "turn", noted)
    models = {str(cost): watch.watched(cost, seed=int(cost)) for cost in (1.0, 2.0, 5.0)}
    found = fit_for(20, models, COPYING, clock=watch, batch_size=2)
    assert [each.updates for each in found.values()] == [20, 10, 4]


def test_the_rate_follows_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    known = step.learning_rate

    def noted(at: int, *rest: Any) -> float:
        asked.append(at)
        return known(at, *rest)

    monkeypatch.setattr(step, "learning_rate", noted)
    watch = Watch()
    models = {"slow": watch.watched(3.0), "quick": watch.watched(2.0, seed=1)}
    options = {"slow": {"learning_rate": 0.5}}
    fit_for(12, models, COPYING, clock=watch, batch_size=2, options=options)
    of_turns = asked[2:]  # each model has taken a step on a copy beforehand
    assert sorted(of_turns) == [1, 1, 167, 251, 334, 501, 501, 667, 751, 834]


@pytest.mark.parametrize("way", ["cosine", "linear"])
def test_with_a_second_for_each_step_it_is_fit(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr(equal_time, "STEPS", 20)
    watch = Watch()
    own, other = watch.watched(1.0), watch.watched(1.0, seed=1)
    same, alone = copy.deepcopy(own), copy.deepcopy(other)
    given: dict[str, Any] = {"batch_size": 4, "seed": 3, "learning_rate": 1e-2, "schedule": way}
    fit_for(20, {"own": own, "other": other}, COPYING, clock=watch, **given)
    for model in (same, alone):
        fit(model, COPYING, 20, progress=False, device="cpu", **given)
    for ours, wanted in ((own, same), (other, alone)):
        for left, right in zip(ours.parameters(), wanted.parameters(), strict=True):
            assert torch.equal(left, right)


def test_nothing_of_the_caller_is_changed() -> None:
    watch = Watch()
    model = watch.watched(1.0).eval()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    fit_for(3, {"one": model}, COPYING, clock=watch, batch_size=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    assert all(each.grad is None for each in model.parameters())


def test_the_clock_of_the_machine() -> None:
    """Whatever the machine does, nobody stops early, and nobody goes on after the last update."""
    watch = Watch()
    found = fit_for(0.05, {"one": watch.watched(0)}, COPYING, batch_size=2)["one"]
    assert found.seconds >= 0.05
    assert found.updates >= 1


MODEL = Watch().watched(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_for(0, {"a": MODEL}, COPYING), "seconds should be a finite number above 0"),
        (lambda: fit_for(1, {}, COPYING), "a dict of one model at least"),
        (lambda: fit_for(1, {"a": MODEL, "b": MODEL}, COPYING), "models should differ"),
        (lambda: fit_for(1, {"a": 3}, COPYING), "should be a torch.nn.Module"),
        (lambda: fit_for(1, {"a": MODEL}, COPYING, options={"b": {}}), "model 'b'"),
        (lambda: fit_for(1, {"a": MODEL}, COPYING, segment=4), "option 'segment'"),
        (lambda: fit_for(1, {"a": MODEL}, COPYING, clock=3.0), "clock should be a function"),  # type: ignore[arg-type]
        (
            lambda: fit_for(1, {"a": MODEL}, COPYING, objective=nn.Linear(1, 1)),  # type: ignore[arg-type]
            "objective should be the name of one",
        ),
        (lambda: fit_for(1, {"a": MODEL}, "copying"), "task should be a task"),  # type: ignore[arg-type]
    ],
)
def test_bad_calls_get_a_sentence(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()
