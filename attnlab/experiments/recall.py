"""Recall: which layers find what followed a token, in a list of pairs and in a repeated run?

The synthetic tasks of H3 (Fu and others, ICLR 2023, arXiv:2212.14052, section 3) at toy size. Two
layers of one mechanism in the same `TinyTransformer` (width 32, 2 heads, learned positions), the
same number of steps and one learning rate for all, nothing tuned for any mechanism.

    recall       six pairs of a key and a value, then four of the keys; 20 tokens. Guessing one of
                 the four values is right in 25 % of the answers. (`attnlab.tasks.recall`)
    induction    different symbols in a run that is repeated; 30 tokens, of 20 symbols. Guessing is
                 right in 5 %. (`attnlab.tasks.induction`)

Lengths and chances are those of the authors' code. Its induction task marks what is asked for by a
token of its own; here any symbol of the run may be asked for. Scores are per cent of right answers
on unseen sequences. The shift is taken from H3 in one arm (a shift of one tap: a key meets only its
own value), and given to attention in another (its queries and keys are made of 3 tokens each). Full
attention and H3 have three more rows each, of 1,000 steps on recall, and full attention three of
1,500 steps with a fifth of the learning rate. Lesson 37 draws what

    python -m attnlab.experiments recall --threads 1 --json \\
        attnlab/experiments/assets/37_recall.json

has written; rows that the file holds are not trained again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from attnlab import catalog
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Task
from attnlab.tasks.induction import Induction
from attnlab.tasks.recall import Recall
from attnlab.train import evaluate, fit

TASKS: Mapping[str, Task] = {
    "recall": Recall(pairs=6, queries=4, keys=8, values=4),
    "induction": Induction(length=30, symbols=20),
}
CHANCE: Mapping[str, float] = {"recall": 25, "induction": 5}
ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "full": ("full", {}),
    "full with shift": ("convolutional_attention", {"kernel": 3}),
    "h3": ("h3", {"state": 16, "shift": 4, "form": "naive"}),
    "h3 without shift": ("h3", {"state": 16, "shift": 1, "form": "naive"}),
    "hyena": ("hyena", {"max_len": 32, "form": "naive"}),
    "gss": ("gss", {"state": 16, "form": "naive"}),
    "s4d": ("s4d", {"state": 16, "form": "naive"}),
}
STEPS, LONG, SEEDS = 400, 1000, (0, 1, 2)
LONGER = ("full", "h3")
SLOW, SLOW_RATE = 1500, 1e-3  # of full attention
MODEL: Mapping[str, Any] = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64, "tie": False}
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 5e-3}
UNSEEN: Mapping[str, Any] = {"batches": 4, "batch_size": 256}


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for each training."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows, the whole grid of one seed after the other, then the longer ones."""
    seeds = SEEDS[: 1 if quick else None]
    names = [f"{task}, {arm}, seed {seed}" for seed in seeds for task in TASKS for arm in ARMS]
    names += [f"recall, {arm}, seed {seed}, {LONG} steps" for seed in seeds for arm in LONGER]
    return names + [f"recall, full, seed {seed}, {SLOW} steps slowly" for seed in seeds]


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure."""
    task, arm, seed, *longer = figure.split(", ")
    steps = int(longer[0].split()[0]) if longer else STEPS
    options: dict[str, Any] = {"learning_rate": SLOW_RATE} if figure.endswith("slowly") else {}
    with thread_count(threads):
        number = int(seed.removeprefix("seed "))
        model = train(task, arm, number, steps=2 if quick else steps, **options)
        return Row(figure, right(model, task), "%")


def build(task: str, arm: str, seed: int) -> TinyTransformer:
    """The untrained model."""
    name, options = ARMS[arm]

    def layer(dim: int, heads: int, causal: bool) -> nn.Module:
        return catalog.build(name, dim=dim, heads=heads, causal=causal, **options)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(**TASKS[task].model_options(), **MODEL, attention=layer)


def train(
    task: str, arm: str, seed: int, *, steps: int = STEPS, progress: bool = False, **options: Any
) -> TinyTransformer:
    """The trained model; ``options`` replace those of ``TRAINING``."""
    model = build(task, arm, seed)
    given = {"progress": progress, "device": "cpu", **TRAINING, **options}
    fit(model, TASKS[task], steps, seed=seed, **given)
    return model.eval()


def right(model: TinyTransformer, task: str) -> float:
    """Per cent of right answers on unseen sequences."""
    return round(100 * evaluate(model, TASKS[task], **UNSEEN).accuracy, 2)
