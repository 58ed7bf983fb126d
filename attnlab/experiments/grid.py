"""Grid: what experiments have in common. Every arm is trained with every seed, and scored.

    GRID = Grid(
        arms={"1 layer": Arm(task, {"layers": 1}), "2 layers": Arm(task, {"layers": 2})},
        score=lambda trained: {"right": right(trained.model, trained.arm.task)},
        steps=150,
        model={"dim": 32, "heads": 2},
        training={"batch_size": 32, "learning_rate": 3e-3},
    )
    build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches

Another budget is another arm, with its own ``steps`` or its own learning rate in ``training``; a
curve is an arm with ``frames``; what needs no training stands in ``baselines``.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.core.suggest import choose
from attnlab.measure.parts import Mine, always
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.train import fit

SEEDS = (0, 1, 2)
QUICK = 2  # steps of a quick run

Measured = float | tuple[float, str] | tuple[float, str, str]
"""A value; or a value, its unit and a note."""
Scores = Mapping[str, Measured]
by_fit = partial(fit, progress=False, device="cpu")


@dataclass(frozen=True)
class Arm:
    """What is compared: a task, options of the model, and what the training has of its own.

    task: or a function that makes it, so that no text is read before it is needed.
    frames: the steps at which the model is scored; without them it is scored after the last one.
    figure: the names of its rows, if they are not those of the grid.
    """

    task: Any
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    frames: Sequence[int] = ()
    figure: str | None = None

    @property
    def problem(self) -> Any:
        """The task itself."""
        return self.task() if callable(self.task) else self.task


class Trained(NamedTuple):
    """What is scored: a model, and which it is. ``quick`` says that a few texts are enough;
    ``history`` is that of its training, if it is scored at its end."""

    model: Any
    arm: Arm
    name: str
    seed: int
    quick: bool
    history: Any = None


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Trainings of small models, one for each arm and seed, and their scores.

    arms: by the names that rows give them.
    score: what is measured of a `Trained` model, by name.
    steps: of arms that have none of their own. ``training`` and ``model`` likewise are the options
        over which those of an arm are laid.
    make: is called with the ``model_options`` of the task, if it has some, and those of the model.
    loop: how to train; the same arguments as `attnlab.train.fit`, which it is if it is left out.
    baselines: what needs no training, by the names of its rows; asked whether the run is quick.
    figure: the name of a row, made of ``{arm}``, ``{what}``, ``{seed}``, of frames ``{step}``, and
        perhaps of the task, such as ``{task.name}``.
    unit: of scores that come without one.
    """

    arms: Mapping[str, Arm]
    score: Callable[[Trained], Scores]
    steps: int = 0
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    make: Callable[..., Any] = TinyTransformer
    loop: Callable[..., Any] = by_fit
    baselines: Mapping[str, Callable[[bool], Measured]] = field(default_factory=dict)
    seeds: Sequence[int] = SEEDS
    figure: str = "{arm}, {what}, seed {seed}"
    unit: str = "%"

    def build(self, arm: str, seed: int = 0, **changes: Any) -> Any:
        """The untrained model; ``changes`` replace options of it."""
        one = choose("arm", arm, self.arms)
        task = one.problem
        of_task = task.model_options() if hasattr(task, "model_options") else {}
        with seeded(seed):
            return self.make(**{**of_task, **self.model, **one.model, **changes})

    def train(
        self, arm: str, seed: int, *, steps: int | None = None, **options: Any
    ) -> tuple[Any, Any]:
        """The trained model, ready to be asked, and the history of its training; ``options`` are
        laid over those of the training."""
        return self._train(self.build(arm, seed), arm, seed, steps, options)

    def film(
        self, arm: str, seed: int, *, steps: Sequence[int] | None = None, **options: Any
    ) -> dict[int, nn.Module]:
        """Step → a copy of the model at that step, ready to be asked; 0 is the untrained one."""
        model = self.build(arm, seed)
        wanted = self.arms[arm].frames if steps is None else steps
        frames: dict[int, nn.Module] = {0: copy.deepcopy(model).eval()}

        def keep(state: Any) -> None:
            if state.step in wanted:
                frames[state.step] = copy.deepcopy(state.model).eval()

        self._train(model, arm, seed, max(wanted), {**options, "callbacks": [keep]})
        return frames

    def _train(
        self, model: Any, arm: str, seed: int, steps: int | None, options: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        one = self.arms[arm]
        steps = (one.steps or self.steps) if steps is None else steps
        given = {**self.training, **one.training, **options}
        history = self.loop(model, one.problem, steps, seed=seed, **given)
        return model.eval(), history

    def rows(self, *, quick: bool, threads: int) -> Iterator[Row]:
        """The rows of all trainings, the whole grid of one seed after the other."""
        for batch in self.batches(quick=quick, threads=threads, kept={}):
            yield from batch

    def batches(
        self, *, quick: bool, threads: int, kept: Mapping[str, Row], mine: Mine = always
    ) -> Iterator[list[Row]]:
        """The rows of one training after the other. What an earlier run has measured, ``kept`` by
        the names of the rows, is not measured again; a training that is not ``mine`` is left to
        another process."""
        held = self.by_training(kept)
        with thread_count(threads):
            for figure, measure in self.baselines.items():
                if mine():
                    yield [kept.get(figure) or self._row(figure, measure(quick))]
            for seed in self.seeds[: 1 if quick else None]:
                for arm in self.arms:
                    if mine():
                        yield held.get((arm, seed)) or self._measured(arm, seed, quick)

    def _measured(self, arm: str, seed: int, quick: bool) -> list[Row]:
        one = self.arms[arm]
        if one.frames:
            history, models = None, self.film(arm, seed, steps=(0, QUICK) if quick else None)
        else:
            model, history = self.train(arm, seed, steps=QUICK if quick else None)
            models = {0: model}
        return [
            self._row(self._figure(arm, what, str(seed), str(step)), found)
            for step, model in models.items()
            for what, found in self.score(Trained(model, one, arm, seed, quick, history)).items()
        ]

    def _figure(self, arm: str, what: str, seed: str, step: str) -> str:
        one = self.arms[arm]
        figure = one.figure or self.figure
        return figure.format(arm=arm, what=what, seed=seed, step=step, task=one.task)

    def _row(self, figure: str, found: Measured) -> Row:
        value, unit, note = (*found, "")[:3] if isinstance(found, tuple) else (found, self.unit, "")
        return Row(figure, value, unit, note=note)

    def by_training(self, kept: Mapping[str, Row]) -> dict[tuple[str, int], list[Row]]:
        """The rows of each training (arm, seed), of those that are ``kept`` by their names. Where
        two arms could have a row, it belongs to the one whose names say more."""
        names = {(arm, seed): self._names(arm, seed) for arm in self.arms for seed in self.seeds}
        found: dict[tuple[str, int], list[Row]] = {}
        for training in sorted(names, key=lambda each: len(names[each]), reverse=True):
            own = [figure for figure in kept if re.fullmatch(names[training], figure)]
            if own:
                found[training] = [kept[figure] for figure in own]
                kept = {figure: row for figure, row in kept.items() if figure not in own}
        return found

    def _names(self, arm: str, seed: int) -> str:
        """A pattern for the names of the rows of one training."""
        names = re.escape(self._figure(arm, "\0", str(seed), "\1"))
        return names.replace("\0", ".*").replace("\1", r"\d+")


class Grids(tuple[Grid, ...]):
    """Several grids of one experiment, one after the other."""

    def rows(self, *, quick: bool, threads: int) -> Iterator[Row]:
        """The rows of all of them."""
        for grid in self:
            yield from grid.rows(quick=quick, threads=threads)

    def batches(
        self, *, quick: bool, threads: int, kept: Mapping[str, Row], mine: Mine = always
    ) -> Iterator[list[Row]]:
        """The rows of one training after the other, as ``Grid.batches``."""
        for grid in self:
            yield from grid.batches(quick=quick, threads=threads, kept=kept, mine=mine)


@dataclass(frozen=True)
class BySeed:
    """An experiment whose rows of a seed are measured together: ``measured(seed, quick)``."""

    measured: Callable[[int, bool], list[Row]]

    def rows(self, *, quick: bool, threads: int) -> Iterator[Row]:
        """The rows of all seeds."""
        for batch in self.batches(quick=quick, threads=threads, kept={}):
            yield from batch

    def batches(
        self, *, quick: bool, threads: int, kept: Mapping[str, Row], mine: Mine = always
    ) -> Iterator[list[Row]]:
        """The rows of one seed after the other; a seed of which rows are ``kept`` is not measured
        again. Their names end in the seed."""
        for seed in SEEDS[: 1 if quick else None]:
            if not mine():
                continue
            held = [row for name, row in kept.items() if name.endswith(f"seed {seed}")]
            if held:
                yield held
                continue
            with thread_count(threads):
                yield self.measured(seed, quick)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The processor's random generator begins at the seed, and afterwards is as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def percent(right: torch.Tensor, digits: int = 2) -> float:
    """The share of what is true, in per cent."""
    return round(100 * right.double().mean().item(), digits)


def parameters(model: nn.Module) -> int:
    """How many numbers a model has to learn."""
    return sum(each.numel() for each in model.parameters())
