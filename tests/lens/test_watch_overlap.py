"""Watches that overlap: closed out of order, in generators, threads and asyncio tasks."""

import asyncio
import contextlib
import random
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from attnlab.core.probe import listening, record
from attnlab.lens.watch import watch
from attnlab.lens.watcher import Watcher
from attnlab.mechanisms.dense.full import FullAttention

X = torch.randn(2, 5, 6)


def layer() -> FullAttention:
    return FullAttention(6, 3)


@pytest.fixture(autouse=True)
def _nothing_is_left(untouched):
    def picture():
        return untouched(nn.Identity()), list(warnings.filters), listening()

    before = picture()
    yield
    assert picture() == before


def in_thread(function) -> None:
    raised = []

    def run():
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def test_the_first_to_open_may_be_the_first_to_close():
    model = layer()
    a, b = watch(model), watch(model)
    first, second = a.__enter__(), b.__enter__()
    model(X)
    a.__exit__(None, None, None)
    model(X)
    b.__exit__(None, None, None)
    model(X)
    assert len(first) == 1
    assert len(second) == 2
    with watch(model) as later:
        model(X)
    assert len(later) == 1


def test_recordings_may_close_in_any_order():
    model = layer()
    a, b = record(), record()
    first, second = a.__enter__(), b.__enter__()
    a.__exit__(None, None, None)
    model(X)
    b.__exit__(None, None, None)
    model(X)
    assert len(first) == 0
    assert second.names().count("queries") == 1
    assert len(second["queries"]) == 1


def test_generators_in_turn():
    model = layer()

    def steps():
        with watch(model) as seen:
            for _ in range(3):
                model(X)
                yield seen

    a, b = steps(), steps()
    first, second = next(a), next(b)
    for generator in (a, b, b, a):
        next(generator)
    a.close()
    model(X)
    b.close()
    assert len(first) == 6
    assert len(second) == 6


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_opening_calling_and_closing(seed):
    """Each watch has as many records as there were calls while it was open."""
    chance, model = random.Random(seed), layer()
    watches, counts = {}, {}
    for step in range(40):
        action = chance.choice(["open", "call", "close"])
        if action == "open":
            watching = watch(model)
            watches[step] = watching, watching.__enter__()
            counts[step] = 0
        elif action == "call":
            model(X)
            counts = {name: count + 1 for name, count in counts.items()}
        elif watches:
            name = chance.choice(list(watches))
            watching, seen = watches.pop(name)
            close = lambda watching=watching: watching.__exit__(None, None, None)  # noqa: E731
            in_thread(close) if chance.random() < 0.3 else close()
            assert len(seen) == counts.pop(name)
    for watching, _ in watches.values():
        watching.__exit__(None, None, None)


def test_each_watch_that_is_open_adds_the_same(monkeypatch):
    """They see the calls of the model, not what the others ask about them."""
    seen, handle = [], Watcher.__torch_function__

    def noted(self, *given):
        seen[-1] += 1
        return handle(self, *given)

    monkeypatch.setattr(Watcher, "__torch_function__", noted)
    model = layer()
    with contextlib.ExitStack() as opened:
        for _ in range(6):
            opened.enter_context(watch(model))
            seen.append(0)
            model(X)
    assert seen[5] < 2 * seen[3]


def test_a_mode_of_the_caller_stays_where_it_was():
    class Mine(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    mine, model = Mine(), layer()
    watching = watch(model)
    watching.__enter__()
    with mine:
        watching.__exit__(None, None, None)
        assert _get_current_function_mode_stack()[-1] is mine


@pytest.mark.parametrize("form", ["naive", "fused"])
def test_closed_in_another_thread(form):
    model = FullAttention(6, 3, form=form)
    watching = watch(model)
    seen = watching.__enter__()
    model(X)
    in_thread(lambda: watching.__exit__(None, None, None))
    model(X)
    assert not listening()
    with watch(model) as later:
        model(X)
    assert len(seen) == len(later) == 1


def test_a_recording_closed_in_another_thread():
    recording = record()
    notes = recording.__enter__()
    in_thread(lambda: recording.__exit__(None, None, None))
    layer()(X)
    assert len(notes) == 0
    assert not listening()


def test_closed_in_another_thread_while_others_watch_there():
    model = layer()
    outer = watch(model)
    seen = outer.__enter__()

    def elsewhere():
        with watch(model) as theirs:
            model(X)
            outer.__exit__(None, None, None)
            model(X)
        assert len(theirs) == 2

    in_thread(elsewhere)
    with watch(model) as later:
        model(X)
    assert len(seen) == 0
    assert len(later) == 1


def test_two_threads_with_compiled_models():
    """They open and close in the order a, b, a, b."""
    models = [torch.compile(layer(), backend="eager") for _ in range(2)]
    torch.compile(nn.Identity(), backend="eager")(X)
    both_open, one_closed = threading.Barrier(2), threading.Event()
    counts, filters = {}, list(warnings.filters)
    before = torch._dynamo.eval_frame._stance

    def first():
        with watch(models[0]) as seen:
            both_open.wait()
            models[0](X)
        counts["first"] = len(seen)
        one_closed.set()

    def second():
        with watch(models[1]) as seen:
            both_open.wait()
            one_closed.wait()
            models[1](X)
        counts["second"] = len(seen)

    threads = [threading.Thread(target=run) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"first": 1, "second": 1}
    assert torch._dynamo.eval_frame._stance == before
    assert warnings.filters == filters


def test_compiled_models_closed_inside_a_block_that_keeps_warnings():
    model = torch.compile(layer(), backend="eager")
    before = list(warnings.filters)
    watching = watch(model)
    watching.__enter__()
    with warnings.catch_warnings():
        watching.__exit__(None, None, None)
    assert warnings.filters == before


@pytest.mark.parametrize("shared", [True, False], ids=["one model", "two models"])
def test_asyncio_tasks_each_record_their_own_calls(shared):
    models = [layer()] * 2 if shared else [layer(), layer()]

    async def task(model, calls):
        with watch(model) as seen:
            for _ in range(calls):
                await asyncio.sleep(0)
                model(X)
        return seen

    async def both():
        return await asyncio.gather(task(models[0], 2), task(models[1], 5))

    first, second = asyncio.run(both())
    assert len(first) == 2
    assert len(second) == 5
    assert second.names[-1] == "FullAttention#5"


def test_asyncio_tasks_started_inside_the_block_are_seen():
    model = layer()

    async def call():
        model(X)

    async def main():
        with watch(model) as seen:
            await asyncio.gather(call(), call())
        return seen

    assert len(asyncio.run(main())) == 2


def test_asyncio_tasks_that_outlive_the_block_are_not():
    model = layer()

    async def late():
        await asyncio.sleep(0.01)
        model(X)
        assert not listening()

    async def main():
        with watch(model) as seen:
            task = asyncio.create_task(late())
            await asyncio.sleep(0)
        await task
        return seen

    assert len(asyncio.run(main())) == 0


def test_calls_in_another_thread_are_not_recorded_and_the_record_says_so():
    model = layer()
    with watch(model) as seen:
        in_thread(lambda: model(X))
    assert len(seen) == 0
    assert "another thread" in repr(seen)
