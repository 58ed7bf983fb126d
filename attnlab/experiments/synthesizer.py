"""Synthesizer: every variant beside the dot product on six tasks, trained under one budget.

Nothing is timed: each row is one training of a tiny model from scratch, the same steps, width and
learning rate for all, scored on sequences that it has not seen. Where that budget is too small to
compare them (induction), some are trained once more, three times as long. `grid` gives the same as
numbers; `problem` is a task as `attnlab.tasks` makes them. Lesson 20 draws what

    python -m attnlab.experiments synthesizer --json attnlab/experiments/assets/20_synthesizer.json

has written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, parameters, seeded
from attnlab.mechanisms.lowrank.synthesizer import VARIANTS
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import task
from attnlab.train import evaluate

NAMES = ("vanilla", *VARIANTS)
TASKS: Mapping[str, Mapping[str, Any]] = {
    "copying": {"items": 8, "symbols": 8},
    "reversing": {"items": 8, "symbols": 8},
    "sorting": {"items": 8, "symbols": 16},
    "recall": {"pairs": 4, "queries": 2, "keys": 8, "values": 8},
    "induction": {"length": 24, "symbols": 24},
    "documentation": {"unit": "bytes", "length": 32},
}
MODEL: Mapping[str, Any] = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64}
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 5e-3}
STEPS, LONG = 400, 1200
PATIENT = ("vanilla", "random", "dense", "random_vanilla", "dense_vanilla")


class Cell(NamedTuple):
    """One training: the share of right answers and the loss (nats per answer) on unseen data."""

    task: str
    variant: str
    seed: int
    accuracy: float
    loss: float
    parameters: int


def build(problem: Any, variant: str, seed: int, **changes: Any) -> TinyTransformer:
    """The untrained model of one cell; `changes` are options of the model, or of the variant."""
    with seeded(seed):
        return _model(**{**problem.model_options(), **MODEL, "variant": variant, **changes})


def _model(variant: str, **options: Any) -> TinyTransformer:
    if variant != "vanilla":
        given = {"variant": variant, "max_len": options["max_len"]}
        given |= options.get("attention_options", {})
        options |= {"attention": "synthesizer", "attention_options": given}
    return TinyTransformer(**options)


def _cell(trained: Trained) -> Cell:
    name, variant = trained.name.split(", ")
    found = evaluate(trained.model, trained.arm.task)
    numbers = parameters(trained.model)
    return Cell(name, variant, trained.seed, found.accuracy, found.loss, numbers)


def _score(trained: Trained) -> Scores:
    cell = _cell(trained)
    note = f"loss {cell.loss:.4f}, {cell.parameters:,} parameters"
    return {"": (round(100 * cell.accuracy, 2), "%", note)}


def _arms(name: str, variants: Sequence[str] = NAMES) -> dict[str, Arm]:
    problem = task(name, **TASKS[name])
    return {f"{name}, {variant}": Arm(problem, {"variant": variant}) for variant in variants}


_LONGER = {
    arm.replace("induction", f"induction {LONG} steps"): replace(one, steps=LONG)
    for arm, one in _arms("induction", PATIENT).items()
}
GRID = Grid(
    arms={arm: one for name in TASKS for arm, one in _arms(name).items()} | _LONGER,
    score=_score,
    steps=STEPS,
    make=_model,
    model=MODEL,
    training=TRAINING,
    figure="{arm}, seed {seed}",
)
SEEDS = GRID.seeds
train, rows, batches = GRID.train, GRID.rows, GRID.batches


def grid(
    tasks: Sequence[str] = tuple(TASKS),
    variants: Sequence[str] = NAMES,
    seeds: Sequence[int] = SEEDS,
    *,
    steps: int = STEPS,
) -> Iterator[Cell]:
    """Every variant on every task with every seed; "vanilla" is softmax attention."""
    for arm in (f"{name}, {variant}" for name in tasks for variant in variants):
        for seed in seeds:
            model, _ = train(arm, seed, steps=steps)
            yield _cell(Trained(model, GRID.arms[arm], arm, seed, quick=False))
