"""Synthesizer: every variant beside the dot product on six tasks, trained under one budget.

Nothing is timed: each row is one training of a tiny model from scratch, the same steps, width and
learning rate for all, scored on sequences that it has not seen. Where that budget is too small to
compare them (induction), some are trained once more, three times as long. `grid` gives the same as
numbers; `problem` is a task as `attnlab.tasks` makes them. Lesson 20 draws what

    python -m attnlab.experiments synthesizer --json attnlab/experiments/assets/20_synthesizer.json

has written.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.lowrank.synthesizer import VARIANTS
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import task
from attnlab.train import evaluate, fit

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
STEPS = 400
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 5e-3}
SEEDS = (0, 1, 2)
LONG, PATIENT = 1200, ("vanilla", "random", "dense", "random_vanilla", "dense_vanilla")


class Cell(NamedTuple):
    """One training: the share of right answers and the loss (nats per answer) on unseen data."""

    task: str
    variant: str
    seed: int
    accuracy: float
    loss: float
    parameters: int


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training, in per cent of right answers (of next bytes, for the text)."""
    with thread_count(threads):
        yield from map(_row, grid(steps=2, seeds=(0,)) if quick else grid())
        seeds, steps = ((0,), 2) if quick else (SEEDS, LONG)
        for found in grid(("induction",), PATIENT, seeds, steps=steps):
            yield _row(found._replace(task=f"induction {LONG} steps"))


def _row(cell: Cell) -> Row:
    return Row(
        f"{cell.task}, {cell.variant}, seed {cell.seed}",
        round(100 * cell.accuracy, 2),
        "%",
        note=f"loss {cell.loss:.4f}, {cell.parameters:,} parameters",
    )


def grid(
    tasks: Sequence[str] = tuple(TASKS),
    variants: Sequence[str] = NAMES,
    seeds: Sequence[int] = SEEDS,
    *,
    steps: int = STEPS,
) -> Iterator[Cell]:
    """Every variant on every task with every seed; "vanilla" is softmax attention."""
    for name in tasks:
        problem = task(name, **TASKS[name])
        for variant in variants:
            for seed in seeds:
                yield cell(problem, variant, seed, steps=steps)


def cell(problem: Any, variant: str, seed: int, *, steps: int = STEPS) -> Cell:
    """One training and its score."""
    model = build(problem, variant, seed)
    fit(
        model,
        problem,
        steps,
        seed=seed,
        progress=False,
        device="cpu",
        **TRAINING,
    )
    score = evaluate(model, problem)
    parameters = sum(p.numel() for p in model.parameters())
    return Cell(problem.name, variant, seed, score.accuracy, score.loss, parameters)


def build(problem: Any, variant: str, seed: int, **changes: Any) -> TinyTransformer:
    """The untrained model of one cell; `changes` are options of the model, or of the variant."""
    options = {**problem.model_options(), **MODEL, **changes}
    if variant != "vanilla":
        given = options.pop("attention_options", {})
        options["attention"] = "synthesizer"
        options["attention_options"] = {"variant": variant, "max_len": problem.length, **given}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(**options)
