r"""Vision transformers on digits, three seeds: where heads look, and what their answers need.

Nothing is timed: each row comes from one training of a tiny classifier from scratch, with a patch
for each of the 8 × 8 pixels, by the recipe of the shipped model "digits" (whose seed is 0). Of
every head, over all unseen images (``attnlab.lens.patches``): the shares of attention that go to
the rest of the row, to the rest of the column, to the patches that touch, and to ink; the share of
ink if the head had its average over the images on every image; and how much of the variance of its
weights the offset explains, the positions, and image and key without the query.

Of every model: the per cent of unseen digits that it reads, as trained and with weights that were
changed in every head of every layer:

    one row for all    each query gets the mean of the rows of all queries of its image
    places alone       each image gets the mean of the maps of all images
    uniform            all weights are alike

Lesson 62 draws what

    python -m attnlab.experiments patches --threads 1 --json \\
        attnlab/experiments/assets/62_vision.json

has written.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from attnlab.core.suggest import choose
from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.lens.patches import PatchStatistics, patch_statistics
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.digits import Digits

STEPS, UNSEEN = 1200, 355
MODEL: Mapping[str, Any] = {"dim": 64, "layers": 3, "heads": 4, "hidden": 64, "dropout": 0.05}
PLACES: Mapping[str, Any] = {"position_options": {"std": 0.5}}
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 4e-3, "weight_decay": 0.3}
INK = 0.5
"""A patch has ink where its mean brightness is above this."""

CHANGES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "as trained": lambda weights: weights,
    "one row for all": lambda weights: weights.mean(2, keepdim=True).expand_as(weights),
    "places alone": lambda weights: weights.mean(0, keepdim=True).expand_as(weights),
    "uniform": lambda weights: torch.full_like(weights, 1 / weights.shape[-1]),
}
"""What is made of the weights (b, h, n, n) of every layer."""
FIGURES: tuple[str, ...] = (
    *("row", "column", "neighbours", "distance", "ink", "ink (average)"),
    *("offset", "position", "key"),
)


def problem(patch: int = 1) -> Digits:
    """Digits as patches of ``patch`` × ``patch`` pixels."""
    return Digits(unit="patches", patch=patch)


def unseen(patch: int = 1) -> tuple[Tensor, Tensor]:
    """Every image of the validation split, as patches (355, n, patch²), and its digit (355,)."""
    batch = problem(patch).batch("validation", UNSEEN, seed=0)
    return batch.inputs, batch.targets


@torch.no_grad()
def statistics(model: TinyTransformer) -> list[PatchStatistics]:
    """The statistics of each layer, over all unseen images."""
    side = math.isqrt(model.max_len)
    images, _ = unseen(8 // side)
    with watch(model) as seen:
        model(images)
    ink = images.mean(-1) > INK
    return [patch_statistics(record.weights, (side, side), ink) for record in seen]


@torch.no_grad()
def right(model: TinyTransformer, change: str = "as trained") -> float:
    """The per cent of unseen digits that the model reads, with weights changed in every layer."""
    how = choose("change", change, CHANGES)
    images, digits = unseen(8 // math.isqrt(model.max_len))

    def attend(q: Tensor, k: Tensor, v: Tensor, *, mask: None = None) -> Tensor:
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return how(weights) @ v

    assert model.encoder is not None
    with ExitStack() as changed:
        for block in model.encoder.blocks:
            changed.enter_context(patch.object(block.attention, "attend", attend))
        answers = model(images).argmax(-1)
    return 100 * (answers == digits).double().mean().item()


def _scores(trained: Trained) -> Scores:
    """What the answers need, then what each head does."""
    model = trained.model
    found: dict[str, Any] = {
        f"right answers, {change}": (round(right(model, change), 1), "%") for change in CHANGES
    }
    for layer, statistic in enumerate(statistics(model)):
        for head in statistic.rows():
            name = f"layer {layer}, head {head['head']:.0f}"
            found |= {f"{figure}, {name}": (round(head[figure], 4), "") for figure in FIGURES}
    return found


GRID = Grid(
    arms={"": Arm(problem())},
    score=_scores,
    steps=STEPS,
    model={**MODEL, **PLACES},
    training=TRAINING,
    figure="{what}, seed {seed}",
)
SEEDS = GRID.seeds
rows, batches = GRID.rows, GRID.batches


def train(seed: int, *, patch: int = 1, steps: int = STEPS) -> TinyTransformer:
    """A vision transformer, trained from scratch."""
    grid = replace(GRID, arms={"": Arm(problem(patch))})
    model: TinyTransformer = grid.train("", seed, steps=steps)[0]
    return model
