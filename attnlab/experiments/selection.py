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

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

from attnlab import catalog
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.experiments.loop import descend
from attnlab.tasks import UNSCORED
from attnlab.tasks.selective_copying import SPACINGS, SelectiveCopying

LAYERS = ("s4d", "selective scan, constant", "selective scan", "full")
PLACES = (16, 32)
DIM, DEPTH, STATE, UPDATES, BATCH, RATE, UNSEEN = 32, 2, 8, 500, 32, 5e-3, 500


def places_of(layer: str) -> tuple[int, ...]:
    """At which numbers of places a layer is scored."""
    return PLACES[:1] if layer == "full" else PLACES


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


def _train(model: nn.Module, task: SelectiveCopying, updates: int, *, seed: int) -> None:
    """The learning rate falls to zero along half of a cosine."""

    def loss(update: int) -> Tensor:
        batch = task.batch("train", BATCH, seed=seed * updates + update)
        scores = model(batch.inputs).flatten(0, 1)
        return F.cross_entropy(scores, batch.targets.flatten(), ignore_index=UNSCORED)

    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    descend(optimizer, loss, updates, schedule=CosineAnnealingLR(optimizer, updates), clip=1.0)


@torch.no_grad()
def right(model: nn.Module, task: SelectiveCopying) -> float:
    """Per cent of right symbols on unseen sequences."""
    batch = task.batch("validation", UNSEEN, seed=0)
    asked = batch.targets != UNSCORED
    return percent((model(batch.inputs).argmax(-1) == batch.targets)[asked])


def _scores(trained: Trained) -> Scores:
    spacing, layer = trained.name.split("; ")
    return {
        f"{places} places": right(trained.model, problem(spacing, places))
        for places in places_of(layer)
    }


def _model(layer: str, **_: Any) -> Copier:
    return Copier(layer)


GRID = Grid(
    arms={
        f"{spacing}; {layer}": Arm(problem(spacing), {"layer": layer})
        for spacing in SPACINGS
        for layer in LAYERS
    },
    score=_scores,
    steps=UPDATES,
    make=_model,
    loop=_train,
    figure="{arm}; {what}; seed {seed}",
)
SEEDS = GRID.seeds
rows, batches = GRID.rows, GRID.batches


def train(spacing: str, layer: str, seed: int, *, updates: int = UPDATES) -> Copier:
    """The trained model."""
    model: Copier = GRID.train(f"{spacing}; {layer}", seed, steps=updates)[0]
    return model
