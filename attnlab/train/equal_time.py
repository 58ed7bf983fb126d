r"""Equal time: models that are trained side by side, each for as many seconds as the others.

``fit`` is told how many steps it has. Whoever has a machine for a day has a budget of seconds, and
a model of another shape takes another number of steps in them. ``fit_for`` stops each training when
its budget is spent, and the learning rate follows the clock, not the steps:

$$\text{step of the schedule} = 1 + \lfloor S \cdot \text{elapsed} / \text{budget} \rfloor,\qquad
  S = 1000$$

up for a tenth of the budget and then down towards 0, in the curve that ``fit`` has, so that each
training is a whole one.

**The order of turns.** A machine is not equally fast all the time. Trainings one after the other
would each meet another machine, so they take turns: the next step is always taken by the model
that has spent least time, the first one of several. At every moment all have spent the same, up to
one step, and a slow minute slows them all.

**What counts.** A step is drawing its batch, both passes, and the update. The time between two
steps of a model, in which others have their turn, is not its own. The first step of each model is
slower than later ones, as PyTorch prepares what it needs, so each takes one unmeasured step on a
copy beforehand.

A run is no function of its arguments: another machine, or another hour, gives other numbers of
steps. So there are no checkpoints, and a stored result is told with its updates.

Geiping, Goldstein. Cramming: Training a Language Model on a Single GPU in One Day. ICML 2023,
arXiv:2212.14034.
"""

import copy
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.core.suggest import choose
from attnlab.train.checks import as_number, check_model, shown
from attnlab.train.devices import make_accelerator
from attnlab.train.evaluation import device_of
from attnlab.train.generators import derived_seed, preserved_generators
from attnlab.train.learner import Learner, fit_objective
from attnlab.train.objective import check_kind, chosen
from attnlab.train.processes import Processes
from attnlab.train.settings import Settings
from attnlab.train.step import Stepper
from attnlab.train.task import Task, check_task
from attnlab.train.trial import dry_run

STEPS = 1000
"""Of the schedule: how finely the budget is divided."""

Clock = Callable[[], float]
"""Seconds since some moment; the difference of two readings counts."""


class Spent(NamedTuple):
    """What one training has taken."""

    updates: int
    seconds: float
    """By the clock; more than the budget by less than the last update."""
    processor: float
    """Seconds that all threads of the process had of the processor meanwhile."""
    losses: tuple[float, ...]
    """Of each update."""


def fit_for(
    seconds: float,
    models: Mapping[str, nn.Module],
    task: Task,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    objective: str = "next_token",
    clock: Clock = time.perf_counter,
    **common: Any,
) -> dict[str, Spent]:
    """Trains each model for so many seconds, in place and where it is, in turns.

    options: of single models by their names, over the ``common`` ones; those of ``fit`` that say
        how to train: batch_size, learning_rate, schedule, weight_decay, clip, accumulate,
        precision, seed.

    Raises ValueError or TypeError for what ``fit`` would refuse, and for options of no model.
    """
    budget = as_number("seconds", seconds, positive=True)
    if not isinstance(models, Mapping) or not models:
        raise ValueError(
            "models should be a dict of one model at least, such as "
            f"{{'small': TinyTransformer(…)}}, got {shown(models)}"
        )
    if len({id(model) for model in models.values()}) < len(models):
        raise ValueError("models should differ: one that has two names would be trained twice")
    if not isinstance(objective, str):
        raise TypeError(
            "objective should be the name of one, as each model needs one of its own, got "
            f"{shown(objective)}"
        )
    if not callable(clock):
        raise TypeError(f"clock should be a function that tells seconds, got {shown(clock)}")
    check_task(task)
    own = options or {}
    for name in own:
        choose("model", name, models)
    runs = {
        name: _Run(model, task, objective, {**common, **own.get(name, {})}, clock)
        for name, model in models.items()
    }
    devices = {run.device for run in runs.values()}
    with ExitStack() as held:
        for device in devices:
            held.enter_context(preserved_generators(device))
        for run in runs.values():
            held.enter_context(run.stepper.learner.training_mode())
        while (next_one := min(runs.values(), key=lambda run: run.seconds)).seconds < budget:
            next_one.turn(budget)
        for run in runs.values():
            run.stepper.check_weights()
            run.stepper.optimizer.zero_grad(set_to_none=True)
    return {name: run.spent for name, run in runs.items()}


_OPTIONS = (
    "batch_size", "learning_rate", "schedule", "weight_decay", "clip", "accumulate", "precision",
    "seed",
)  # fmt: skip


class _Run:
    """One model, and what it has spent."""

    def __init__(
        self, model: nn.Module, task: Task, objective: str, options: dict[str, Any], clock: Clock
    ) -> None:
        for name in options:
            choose("option", name, dict.fromkeys(_OPTIONS))
        settings = Settings(steps=STEPS, **options)
        check_model(model)
        self.device, self.clock = device_of(model), clock
        self.seconds, self.processor = 0.0, 0.0
        self.losses = list[float]()
        limit = settings.limit
        processes = Processes(make_accelerator(self.device, limit), self.device, limit)
        with preserved_generators(self.device):
            warm = self._stepper(copy.deepcopy(model), task, settings, objective, processes)
            with warm.learner.training_mode():
                warm.step(warm.learner, 1)
            self.stepper = self._stepper(model, task, settings, objective, processes)
        self.seed = settings.seed

    def _stepper(
        self, model: nn.Module, task: Task, settings: Settings, objective: str, processes: Processes
    ) -> Stepper:
        asked = chosen(objective, task)
        check_kind(model, asked)
        fit_objective(asked, model, self.device, settings.seed)
        dry_run(model, task, settings, asked, self.device, processes)
        return Stepper(Learner(model, asked), task, settings, processes)

    def turn(self, budget: float) -> None:
        """One update, at the rate of the time that is spent."""
        update = len(self.losses) + 1
        at = min(STEPS, 1 + int(STEPS * self.seconds / budget))
        torch.manual_seed(derived_seed(self.seed, "generators", update, 0))
        began, had = self.clock(), time.process_time()
        self.losses.append(self.stepper.step(self.stepper.learner, update, at)["loss"])
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds += self.clock() - began
        self.processor += time.process_time() - had

    @property
    def spent(self) -> Spent:
        return Spent(len(self.losses), self.seconds, self.processor, tuple(self.losses))
