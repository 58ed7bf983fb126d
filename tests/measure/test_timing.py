"""The order and the arithmetic of the stop-watch, on a clock that the test winds itself."""

import gc
from typing import ClassVar

import numpy as np
import pytest
import torch

from attnlab.measure import timing
from attnlab.measure.timing import compare, taken_by


@pytest.fixture
def tick(monkeypatch):
    """Moves a clock that otherwise stands still."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


def test_rounds_are_interleaved():
    calls = []
    functions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    compare(functions, repeats=3, warmup=2)
    assert calls == ["a", "b"] * 5


def test_ratios_are_taken_pair_by_pair(tick):
    a, b = iter([9.0, 1.0, 2.0, 4.0]), iter([9.0, 3.0, 2.0, 20.0])
    functions = {"a": lambda: tick(next(a)), "b": lambda: tick(next(b))}
    first, second = compare(functions, repeats=3, warmup=1)
    assert first.seconds == (1, 2, 4)
    assert (first.median, first.quartiles, first.ratio) == (2, (1.5, 3), 1)
    assert second.seconds == (3, 2, 20)
    assert second.ratio == 3  # of 3, 1, 5; the ratio of the medians is 1.5
    assert second.ratio_quartiles == (2, 4)


def test_what_the_processor_gave_is_the_mean_of_the_rounds(tick, monkeypatch):
    had = iter([(0, 0), (9, 9), (10, 20), (13, 21), (30, 30), (31, 33)])
    monkeypatch.setattr(timing, "_processor", lambda: next(had))
    (only,) = compare({"a": lambda: tick(1.0)}, repeats=2, warmup=1)
    assert (only.user, only.system) == (2, 2)  # of 3 and 1; of 1 and 3


def test_user_time_is_arithmetic_and_system_time_is_memory():
    counting = taken_by(lambda: sum(range(4_000_000)))
    filling = taken_by(lambda: np.ones(1 << 26))  # half a gigabyte of fresh pages
    assert counting.seconds > 0
    assert counting.user > counting.system
    assert filling.system > counting.system


class Event:
    """An event of a GPU whose queue is two seconds behind the clock."""

    log: ClassVar[list[str]] = []

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.at = timing.time.perf_counter() + (2 if Event.log[-1:] == ["call"] else 0)
        Event.log.append("event")

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


def test_a_gpu_is_timed_by_events_in_its_queue(tick, monkeypatch):
    Event.log.clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: Event.log.append("wait"))
    monkeypatch.setattr(torch.cuda, "Event", Event)

    def call():
        Event.log.append("call")
        tick(0.5)

    assert taken_by(call).seconds == 2.5
    assert Event.log == ["wait", "event", "call", "event", "wait"]


def test_baseline_is_named(tick):
    functions = {"a": lambda: tick(6.0), "b": lambda: tick(2.0)}
    a, b = compare(functions, baseline="b", repeats=1, warmup=0)
    assert (a.ratio, b.ratio) == (3, 1)
    assert a.quartiles == (6, 6)


def test_settings_come_back_even_after_an_error():
    before, during = torch.get_num_threads(), []
    watch = {"a": lambda: during.append((torch.get_num_threads(), gc.isenabled()))}
    compare(watch, threads=before + 1)
    assert set(during) == {(before + 1, False)}
    with pytest.raises(ZeroDivisionError):
        compare({"a": lambda: 1 / 0}, threads=before + 1)
    assert torch.get_num_threads() == before
    assert gc.isenabled()


def test_refusals():
    with pytest.raises(ValueError, match="at least one function"):
        compare({})
    with pytest.raises(ValueError, match="one of a, b, got 'c'"):
        compare({"a": int, "b": int}, baseline="c")
    with pytest.raises(ValueError, match="repeats should be at least 1"):
        compare({"a": int}, repeats=0)
