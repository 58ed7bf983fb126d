"""Selection: who can copy symbols that stand among blanks?

Not a figure of speed: each training is two layers of width 32, the same number of updates and one
learning rate for all, nothing tuned for any layer. The task is selective copying (Gu & Dao, COLM
2024, arXiv:2312.00752, section 3.1) at toy size: four of eight symbols among 16 places, then the
copy; guessing gives 12.5 %. With the symbols "together" at the beginning, each stands at the same
distance from its copy; at "random" places, the distances differ in every sequence. Four layers:

    s4d                        a time-invariant state space: its map depends on distances alone
    selective scan, constant   Mamba's block, but its steps, B and C are learned constants
    selective scan             the same block as it is: they are computed from each token
    full                       causal attention, with learned positions

Scores are per cent of right symbols on unseen sequences, of 16 places and of twice as many. Full
attention has no positions for more than 16 places and is scored there alone. Lesson 39 draws what

    python -m attnlab.experiments selection --threads 1 --json \\
        attnlab/experiments/assets/39_selection.json

has written; rows that the file holds are not trained again.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.tasks import UNSCORED
from attnlab.tasks.selective_copying import SPACINGS, SelectiveCopying

LAYERS = ("s4d", "selective scan, constant", "selective scan", "full")
PLACES, SEEDS = (16, 32), (0, 1, 2)
DIM, DEPTH, STATE, UPDATES, BATCH, RATE, UNSEEN = 32, 2, 8, 500, 32, 5e-3, 500


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for each training and number of places."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows, the whole grid of one seed after the other."""
    return [
        f"{spacing}; {layer}; {places} places; seed {seed}"
        for seed in SEEDS[: 1 if quick else None]
        for spacing in SPACINGS
        for layer in LAYERS
        for places in places_of(layer)
    ]


def places_of(layer: str) -> tuple[int, ...]:
    """At which numbers of places a layer is scored."""
    return PLACES[:1] if layer == "full" else PLACES


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure."""
    spacing, layer, places, seed = figure.split("; ")
    with thread_count(threads):
        updates = 2 if quick else UPDATES
        model = _trained(spacing, layer, int(seed.removeprefix("seed ")), updates)
        return Row(figure, right(model, problem(spacing, int(places.split()[0]))), "%")


def problem(spacing: str, places: int = PLACES[0]) -> SelectiveCopying:
    """The task with its symbols at random places, or together at the beginning."""
    return SelectiveCopying(spacing=spacing, places=places)


class Constant(nn.Module):
    """The same ``size`` numbers for every token, learned; what the token holds does not matter."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.randn(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.numbers.expand(*x.shape[:-1], -1)


class Copier(nn.Module):
    """Tokens (b, n) → scores (b, n, vocabulary): layers of one kind, each beside a residual."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        task = problem("random")
        self.embedding = nn.Embedding(task.vocab, DIM)
        places = torch.randn(task.length, DIM) * 0.02
        self.positions = nn.Parameter(places) if layer == "full" else None
        self.layers = nn.ModuleList(_layer(layer) for _ in range(DEPTH))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(DEPTH))
        self.output = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, task.vocab))

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions[: x.shape[1]]
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        scores: Tensor = self.output(x)
        return scores


def _layer(name: str) -> nn.Module:
    if not name.startswith("selective scan"):
        return catalog.build(name, dim=DIM, heads=2, causal=True)
    given: dict[str, Any] = {"state": STATE, "form": "naive"}  # short sequences: a loop is faster
    scan: Any = catalog.build("selective_scan", dim=DIM, causal=True, **given)
    if name.endswith("constant"):
        scan.select = Constant(scan.select.out_features)
    made: nn.Module = scan
    return made


def train(spacing: str, layer: str, seed: int, *, updates: int = UPDATES) -> Copier:
    """The trained model, the learning rate falling to zero along half of a cosine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Copier(layer)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for update in range(updates):
        batch = problem(spacing).batch("train", BATCH, seed=seed * updates + update)
        optimizer.zero_grad()
        scores = model(batch.inputs).flatten(0, 1)
        F.cross_entropy(scores, batch.targets.flatten(), ignore_index=UNSCORED).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


_trained = lru_cache(maxsize=1)(
    lambda spacing, layer, seed, updates: train(spacing, layer, seed, updates=updates)
)


@torch.no_grad()
def right(model: nn.Module, task: SelectiveCopying) -> float:
    """Per cent of right symbols on unseen sequences."""
    batch = task.batch("validation", UNSEEN, seed=0)
    asked = batch.targets != UNSCORED
    answers = model(batch.inputs).argmax(-1)
    return round(100 * (answers == batch.targets)[asked].double().mean().item(), 2)
