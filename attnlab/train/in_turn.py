"""Training in the background: step by step in turn, with pause and stop.

Each model learns in a thread of its own by `attnlab.train.fit`, and they take turns: one step of
the first, one of the second, and so on, so that at every moment both have seen the same batches.
Between two rounds they can be paused or stopped, so a pause loses nothing.

A training uses torch's global random generator and restores its state afterwards. Code that draws
numbers meanwhile should use its own `torch.Generator`.
"""

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from attnlab import train
from attnlab.train import State
from attnlab.train.task import Task

SNAPSHOTS = 20  # recorded in one training, apart from its start

_alive: "weakref.WeakSet[Training]" = weakref.WeakSet()


class RoundRobin:
    """Lets threads take turns, in order. Pause and stop take effect when a round is complete."""

    def __init__(self, count: int) -> None:
        self._condition = threading.Condition()
        self._waiting = deque(range(count))
        self.paused = self.stopped = False

    def set(self, *, paused: bool | None = None, stopped: bool | None = None) -> None:
        with self._condition:
            self.paused = self.paused if paused is None else paused
            self.stopped = self.stopped if stopped is None else stopped
            self._condition.notify_all()

    def take(self, who: int) -> bool:
        """Wait for this thread's turn; False if there will be none."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting[0] == who and self._moving())
            return not (self.stopped and self._complete())

    def hand_on(self) -> None:
        with self._condition:
            self._waiting.rotate(-1)
            self._condition.notify_all()

    def leave(self, who: int) -> bool:
        """Stop taking part; True for the last thread that leaves."""
        with self._condition:
            self._waiting.remove(who)
            self._condition.notify_all()
            return not self._waiting

    def _moving(self) -> bool:
        return self.stopped or not self.paused or not self._complete()

    def _complete(self) -> bool:
        """Whether all have made equally many steps, so that it is the first one's turn."""
        return self._waiting[0] == min(self._waiting)


class Recorded(Protocol):
    """A model whose weights are kept at some steps; `attnlab.lens.recorded_model.RecordedModel`."""

    snapshots: Any

    @property
    def newest(self) -> int: ...
    def keep(self, step: int, model: nn.Module) -> None: ...
    def learner(self) -> nn.Module: ...


class Learner:
    """One model in training. Only its own thread writes the attributes; all may read them.

    `step` counts all trainings of the model, `done` only this one.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.start = self.step = recorded.newest
        self.losses: list[tuple[int, float]] = []
        self.error: Exception | None = None

    @property
    def done(self) -> int:
        return self.step - self.start

    @property
    def loss(self) -> float | None:
        """The mean over the last few steps, because single batches are noisy."""
        recent = [loss for _, loss in tuple(self.losses[-5:])]
        return sum(recent) / len(recent) if recent else None


class Training:
    """Trains `models` on `task`; calls `changed()` in its threads when there is news.

    `changed` must be quick. `options` go to `attnlab.train.fit`.
    """

    def __init__(
        self,
        models: Sequence[Recorded],
        task: Task,
        steps: int,
        changed: Callable[[], None],
        **options: Any,
    ) -> None:
        self.steps, self.every = steps, max(1, steps // SNAPSHOTS)
        self.learners = [Learner(recorded) for recorded in models]
        self._task, self._changed, self._options = task, changed, options
        self._turns = RoundRobin(len(models))
        self._ended = threading.Event()
        self._before = torch.get_rng_state()
        self._threads = [
            threading.Thread(target=self._train, args=(who,), daemon=True, name=f"attnlab-{who}")
            for who in range(len(models))
        ]

    def begin(self) -> None:
        _alive.add(self)
        for thread in self._threads:
            thread.start()

    def pause(self) -> None:
        self._turns.set(paused=True)

    def resume(self) -> None:
        self._turns.set(paused=False)

    def stop(self) -> None:
        """Ends after the step that runs; what was learned is kept. `join` waits for it."""
        self._turns.set(stopped=True)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it has come."""
        ended = self._ended.wait(timeout)
        for thread in self._threads:
            if ended and thread is not threading.current_thread():
                thread.join(timeout)
        return ended

    @property
    def over(self) -> bool:
        """Finished, stopped or failed, in all threads; a paused training is not over."""
        return self._ended.is_set()

    @property
    def paused(self) -> bool:
        return self._turns.paused and not self._turns.stopped

    @property
    def stopped(self) -> bool:
        return self._turns.stopped

    @property
    def done(self) -> int:
        """The steps that all models have made."""
        return min(
            learner.done for learner in self.learners if learner.error is None or self.failed
        )

    @property
    def failed(self) -> bool:
        return all(learner.error is not None for learner in self.learners)

    def _train(self, who: int) -> None:
        learner = self.learners[who]
        try:
            if self._turns.take(who):
                self._fit(who, learner)
        except Exception as error:  # any error is shown in the widget
            learner.error = error
        if self._turns.leave(who):
            torch.set_rng_state(self._before)
            self._ended.set()
        self._changed()

    def _fit(self, who: int, learner: Learner) -> None:
        model = learner.recorded.learner()

        def after(state: State) -> bool:
            learner.step = learner.start + state.step
            learner.losses.append((learner.step, state.loss))
            if state.step % self.every == 0:
                learner.recorded.keep(learner.step, state.model)
            self._changed()
            if state.step == self.steps:
                return True
            self._turns.hand_on()
            return self._turns.take(who)

        train.fit(model, self._task, self.steps, callbacks=[after], progress=False, **self._options)
        if learner.step not in learner.recorded.snapshots:
            learner.recorded.keep(learner.step, model)


@atexit.register
def _stop_all() -> None:
    """Stop all trainings at exit: a thread inside torch could crash the interpreter."""
    for training in tuple(_alive):
        training.stop()
    for training in tuple(_alive):
        training.join(10)
