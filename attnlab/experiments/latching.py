"""Latching: one bit held over noise for 300 steps, by cells that learn to hold it.

Not a figure of speed: each row is one training of a recurrent network of one layer, the same steps
and learning rate for all, and its share of right answers on unseen sequences in per cent. It reads
random numbers one after the other, and is asked at the end whether the first was positive
(``attnlab.tasks.copy_first``): guessing gives 50. Vecoven et al. (2021, arXiv:2006.05252) ask for
the number itself, in networks of two layers of 100 units and far longer trainings; here the
question is only which cells learn to keep the bit within a few hundred steps of training.

    python -m attnlab.experiments latching --threads 1
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.tasks.copy_first import CopyFirst

CELLS, LENGTHS, SEEDS = ("gru", "lstm", "brc", "nbrc"), (30, 300), (0, 1, 2)
DIM, STEPS, UNSEEN = 32, 600, 1000
RATE = 5e-3


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training."""
    with thread_count(threads):
        for length in (5,) if quick else LENGTHS:
            task = CopyFirst(length=length)
            for cell in CELLS:
                for seed in (0,) if quick else SEEDS:
                    share = right(train(cell, task, seed, steps=2 if quick else STEPS), task)
                    yield Row(f"{cell}, {length} steps, seed {seed}", share, "%")


class Reader(nn.Module):
    """Numbers (b, n, 1) → scores of two classes (b, 2), from the state after the last of them."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.inputs = nn.Linear(1, DIM)
        self.cell = catalog.build(cell, dim=DIM, causal=True)
        self.output = nn.Linear(DIM, 2)

    def forward(self, numbers: Tensor) -> Tensor:
        scores: Tensor = self.output(self.cell(self.inputs(numbers))[:, -1])
        return scores


def train(cell: str, task: CopyFirst, seed: int, *, steps: int = STEPS) -> Reader:
    """The trained network; batches of 64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Reader(cell)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for step in range(steps):
        batch = task.batch("train", 64, seed=seed * STEPS + step)
        optimizer.zero_grad()
        F.cross_entropy(model(batch.inputs), batch.targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


@torch.no_grad()
def right(model: nn.Module, task: CopyFirst) -> float:
    """Per cent of right answers on unseen sequences."""
    unseen = task.batch("validation", UNSEEN, seed=0)
    answers = model(unseen.inputs).argmax(-1)
    return round(100 * (answers == unseen.targets).double().mean().item(), 2)
