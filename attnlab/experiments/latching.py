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
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, seeded
from attnlab.experiments.loop import descend
from attnlab.tasks import Batch, Task
from attnlab.tasks.copy_first import CopyFirst
from attnlab.tasks.denoising import Denoising

CELLS = ("gru", "lstm", "brc", "nbrc", "rwkv", "full")
RUNS = (
    *(("copy first", cell) for cell in (*CELLS, "brc twice")),
    *(("denoising", cell) for cell in CELLS),
    *(("copy first at once", cell) for cell in ("gru", "nbrc")),
)
LENGTHS = (30, 100, 300)
DIM, UPDATES, BATCH, RATE, UNSEEN = 32, 300, 64, 5e-3, 1000
SHORTEST, LONGEST, GROWTH, ENOUGH, PATIENCE = 6, 300, 1.3, 0.95, 10


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
    with seeded(seed):
        return _model(task, cell)


def _model(task: str, cell: str) -> Reader:
    of_task = problem(task, SHORTEST)
    return Reader(cell, of_task.features or 1, of_task.classes or 2)


def train(task: str, cell: str, seed: int, *, updates: int = UPDATES) -> tuple[Reader, list[int]]:
    """The trained network, and how long the sequences of each update were."""
    model = build(task, cell, seed)
    return model, _train(model, task, updates, seed=seed)


def _train(model: Reader, task: str, updates: int, *, seed: int) -> list[int]:
    length = LONGEST if task.endswith("at once") else SHORTEST
    lengths: list[int] = []
    shares: list[float] = []

    def loss(update: int) -> Tensor:
        nonlocal length
        if len(shares) == PATIENCE:
            if sum(shares) >= ENOUGH * PATIENCE:
                length = min(LONGEST, math.ceil(GROWTH * length))
            shares.clear()
        batch = problem(task, length).batch("train", BATCH, seed=seed * updates + update)
        scores = model(batch.inputs)
        lengths.append(length)
        shares.append(_share(scores, batch))
        return F.cross_entropy(scores, batch.targets)

    descend(torch.optim.Adam(model.parameters(), lr=RATE), loss, updates, clip=1.0)
    model.eval()
    return lengths


@torch.no_grad()
def right(model: nn.Module, task: Task) -> float:
    """Per cent of right answers on unseen sequences."""
    unseen = task.batch("validation", UNSEEN, seed=0)
    return round(100 * _share(model(unseen.inputs), unseen), 2)


def _share(scores: Tensor, batch: Batch) -> float:
    return (scores.argmax(-1) == batch.targets).double().mean().item()


def _scores(trained: Trained) -> Scores:
    task = trained.arm.task
    found = {f"{n} steps": (right(trained.model, problem(task, n)), "%") for n in LENGTHS}
    return {**found, "length reached": (float(trained.history[-1]), "steps")}


GRID = Grid(
    arms={f"{task}, {cell}": Arm(task, {"task": task, "cell": cell}) for task, cell in RUNS},
    score=_scores,
    steps=UPDATES,
    make=_model,
    loop=_train,
)
SEEDS = GRID.seeds
rows, batches = GRID.rows, GRID.batches
