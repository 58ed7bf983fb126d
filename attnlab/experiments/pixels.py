r"""Digits, pixel by pixel: sparse patterns trained under one budget, in bits per pixel.

Nothing is timed: each training of a tiny model is from scratch, the same steps, width and
learning rate for all, scored on every image that it has not seen: in bits per pixel, and by its
lower halves of given upper halves, of which a nearest-neighbour reader says whether they make the
right digit. Only the patterns differ:

    dense      the whole past
    strided    the last 8 pixels and the column above (8 is the width of the images)
    fixed      the block of 8 one stands in, and the last 2 of each block
    window     the last 12, about as many pairs as strided: does it need a column?
    stride 7   a width that the images do not have
    aligned    strided, but the column of the pixel that is asked for, one to the right

and some of them once more in other sizes: how few pairs are enough?

    window 2, window 4, window 24    the last so many
    fixed 1, fixed 4                 so many summaries of each block of 8

Lesson 10 draws what

    python -m attnlab.experiments pixels --threads 1 \
        --json attnlab/experiments/assets/10_sparse_transformer.json

has written.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.modes import mode
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.attention import PatternAttention
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, seeded
from attnlab.mechanisms.fixed.sparse_transformer import SparseTransformerOptions
from attnlab.models.generate import generate
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import task

SIDE = 8
MODEL: Mapping[str, Any] = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64}
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 5e-3}
SEEN, UNSEEN = 1442, 355  # images of the training and the validation split


def aligned(stride: int, n: int) -> Pattern:
    """Strided, with the column one to the right: key j is pixel j − 1, query i predicts pixel i."""
    rows = [
        sorted({*range(max(0, i - stride), i + 1), *range(i + 1 - stride, -1, -stride)})
        for i in range(n)
    ]
    most = max(map(len, rows))
    return patterns.listed(torch.tensor([row + [-1] * (most - len(row)) for row in rows]))


VARIANTS: Mapping[str, Pattern] = {
    "dense": patterns.causal(),
    "strided": SparseTransformerOptions(stride=SIDE).pattern(),
    "fixed": SparseTransformerOptions(stride=SIDE, kind="fixed", columns=2).pattern(),
    "window": patterns.local(11).causal(),
    "stride 7": SparseTransformerOptions(stride=SIDE - 1).pattern(),
    "aligned": aligned(SIDE, SIDE**2),
}
SIZES: Mapping[str, Pattern] = {
    **{f"window {w}": patterns.local(w - 1).causal() for w in (2, 4, 24)},
    **{
        f"fixed {c}": SparseTransformerOptions(stride=SIDE, kind="fixed", columns=c).pattern()
        for c in (1, 4)
    },
}
PATTERNS: Mapping[str, Pattern] = {**VARIANTS, **SIZES}


def problem() -> Any:
    """The task: the inputs are a start token and 63 pixels, the targets all 64 pixels."""
    return task("digits", unit="pixels", kind="language_model")


def build(pattern: Pattern, seed: int) -> TinyTransformer:
    """The untrained model; ``pattern`` is the mask of every layer and head."""
    with seeded(seed):
        return _model(pattern, **problem().model_options(), **MODEL)


def _model(pattern: Pattern, **sizes: Any) -> TinyTransformer:
    def seeing(dim: int, heads: int, causal: bool) -> nn.Module:
        layer = PatternAttention(
            dim, heads, SparseTransformerOptions(), causal=causal, form="naive"
        )
        layer.pattern = pattern
        return layer

    return TinyTransformer(**sizes, attention=seeing)


@torch.no_grad()
def bits_per_pixel(model: nn.Module) -> float:
    """The mean of −log₂ p over every pixel of every image of the validation split."""
    unseen = problem().batch("validation", UNSEEN, seed=0)
    with mode(model, training=False):
        logits = model(unseen.inputs)
    return F.cross_entropy(logits.flatten(0, 1), unseen.targets.flatten()).item() / math.log(2)


def complete(model: TinyTransformer, *, seed: int = 0) -> Tensor:
    """Every unseen image (355, 64), its upper half given and its lower half drawn by the model."""
    given = problem().batch("validation", UNSEEN, seed=0).inputs[:, : SIDE**2 // 2 + 1]
    draws = torch.Generator().manual_seed(seed)
    drawn = generate(model, given, SIDE**2 // 2, generator=draws)
    return drawn[:, 1:].clamp(max=SIDE * 2)  # a start token among the pixels is read as ink


def recognised(images: Tensor) -> float:
    """The share of images (355, 64), in the order of ``complete``, read as the right digit.

    The reader names the nearest of the training images. It is right for nearly all real images.
    """
    named = task("digits", unit="pixels")
    known, asked = (
        named.batch(split, size, seed=0)
        for split, size in (("train", SEEN), ("validation", UNSEEN))
    )
    nearest = torch.cdist(images.float(), known.inputs.float()).argmin(1)
    return (known.targets[nearest] == asked.targets).double().mean().item()


def _scores(trained: Trained) -> Scores:
    model, pairs = trained.model, PATTERNS[trained.name].count(SIDE**2)
    last = [row["loss"] for row in trained.history.rows[-20:]]
    note = f"{sum(last) / len(last) / math.log(2):.4f} in training"
    bits = round(bits_per_pixel(model), 4)
    return {
        "": (bits, "bits per pixel", f"{pairs:,} pairs per layer and head, {note}"),
        "completed digits, ": round(100 * recognised(complete(model)), 1),
    }


GRID = Grid(
    arms={name: Arm(problem(), {"pattern": pattern}) for name, pattern in PATTERNS.items()},
    score=_scores,
    steps=600,
    make=_model,
    model=MODEL,
    training=TRAINING,
    figure="{arm}, {what}seed {seed}",
)
SEEDS = GRID.seeds
train, rows, batches = GRID.train, GRID.rows, GRID.batches
