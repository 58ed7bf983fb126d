"""Latching: for how long do recurrent cells keep one bit, or two, while noise goes on?

Not a figure of speed: each training is one layer of 32 units, the same number of updates and one
learning rate for all, nothing tuned for any cell. Two tasks of Vecoven, Ernst, Drion (PLoS ONE
2021, arXiv:2006.05252) at toy size:

    copy first    random numbers; at the end: was the first of them positive? Guessing gives 50 %.
    denoising     two of the numbers in the first half are marked; at the end: were they positive,
                  and in which order? Guessing gives 25 %.

The paper asks for the numbers themselves, of two layers of 100 units, in far longer trainings. Here
the sequences begin with 6 steps and become longer by 30 % whenever 95 % of ten batches' answers are
right, up to 300 steps (a curriculum): how far a cell comes in its updates is a row of its own.
"copy first at once" is the same training on 300 steps from the beginning. Scores are per cent of
right answers on unseen sequences of three lengths. Beside GRU, LSTM, BRC and nBRC stand a layer of
RWKV-4, and one of full attention with learned positions. Lesson 31 draws what

    python -m attnlab.experiments latching --threads 1 --json \\
        attnlab/experiments/assets/31_latching.json

has written; rows that the file holds are not trained again.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.tasks import Batch, Task
from attnlab.tasks.copy_first import CopyFirst
from attnlab.tasks.denoising import Denoising

CELLS = ("gru", "lstm", "brc", "nbrc", "rwkv", "full")
RUNS = (
    *(("copy first", cell) for cell in (*CELLS, "brc twice")),
    *(("denoising", cell) for cell in CELLS),
    *(("copy first at once", cell) for cell in ("gru", "nbrc")),
)
LENGTHS, SEEDS = (30, 100, 300), (0, 1, 2)
DIM, UPDATES, BATCH, RATE, UNSEEN = 32, 300, 64, 5e-3, 1000
SHORTEST, LONGEST, GROWTH, ENOUGH, PATIENCE = 6, 300, 1.3, 0.95, 10


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for each training and length, and one for the length that each has reached."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows, the whole grid of one seed after the other."""
    what = [*(f"{length} steps" for length in LENGTHS), "length reached"]
    return [
        f"{task}, {cell}, {each}, seed {seed}"
        for seed in SEEDS[: 1 if quick else None]
        for task, cell in RUNS
        for each in what
    ]


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure."""
    task, cell, what, seed = figure.split(", ")
    with thread_count(threads):
        updates = 2 if quick else UPDATES
        model, lengths = _trained(task, cell, int(seed.removeprefix("seed ")), updates)
        if what == "length reached":
            return Row(figure, float(lengths[-1]), "steps")
        length = int(what.removesuffix(" steps"))
        return Row(figure, right(model, problem(task, length)), "%")


def problem(task: str, length: int) -> Task:
    """The task with sequences of ``length`` steps, and one more to answer in denoising."""
    if task == "denoising":
        return Denoising(steps=length, marked=2, closing=length // 2)
    return CopyFirst(length=length)


class Reader(nn.Module):
    """Numbers (b, n, features) → scores (b, classes), from the layer's output at the last step."""

    def __init__(self, cell: str, features: int, classes: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(features, DIM)
        name, layers = cell.removesuffix(" twice"), 2 if cell.endswith(" twice") else 1
        heads: dict[str, Any] = {"heads": 2} if name == "full" else {}
        made = [catalog.build(name, dim=DIM, causal=True, **heads) for _ in range(layers)]
        self.cell = made[0] if layers == 1 else nn.Sequential(*made)
        places = torch.randn(LONGEST + 1, DIM) * 0.02
        self.positions = nn.Parameter(places) if cell == "full" else None
        self.output = nn.Linear(DIM, classes)

    def forward(self, numbers: Tensor) -> Tensor:
        scores: Tensor = self.output(self.read(numbers)[:, -1])
        return scores

    def read(self, numbers: Tensor) -> Tensor:
        """The outputs of the layer (b, n, dim)."""
        x = self.inputs(numbers)
        if self.positions is not None:
            x = x + self.positions[: x.shape[1]]
        out: Tensor = self.cell(x)
        return out


def build(task: str, cell: str, seed: int) -> Reader:
    """The untrained network."""
    of_task = problem(task, SHORTEST)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Reader(cell, of_task.features or 1, of_task.classes or 2)


def train(task: str, cell: str, seed: int, *, updates: int = UPDATES) -> tuple[Reader, list[int]]:
    """The trained network, and how long the sequences of each update were."""
    model = build(task, cell, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    length, lengths, shares = LONGEST if task.endswith("at once") else SHORTEST, [], []
    for update in range(updates):
        batch = problem(task, length).batch("train", BATCH, seed=seed * updates + update)
        scores = model(batch.inputs)
        optimizer.zero_grad()
        F.cross_entropy(scores, batch.targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lengths.append(length)
        shares.append(_share(scores, batch))
        if len(shares) == PATIENCE:
            if sum(shares) >= ENOUGH * PATIENCE:
                length = min(LONGEST, math.ceil(GROWTH * length))
            shares = []
    return model.eval(), lengths


_trained = lru_cache(maxsize=1)(
    lambda task, cell, seed, updates: train(task, cell, seed, updates=updates)
)


@torch.no_grad()
def right(model: nn.Module, task: Task) -> float:
    """Per cent of right answers on unseen sequences."""
    unseen = task.batch("validation", UNSEEN, seed=0)
    return round(100 * _share(model(unseen.inputs), unseen), 2)


def _share(scores: Tensor, batch: Batch) -> float:
    return (scores.argmax(-1) == batch.targets).double().mean().item()
