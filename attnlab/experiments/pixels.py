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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.modes import mode
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.attention import PatternAttention
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.fixed.sparse_transformer import Factors
from attnlab.models.generate import generate
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import task
from attnlab.train import fit

SIDE = 8
MODEL: Mapping[str, Any] = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64}
STEPS = 600
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 5e-3}
SEEDS = (0, 1, 2)
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
    "strided": Factors(stride=SIDE).pattern(),
    "fixed": Factors(stride=SIDE, kind="fixed", columns=2).pattern(),
    "window": patterns.local(11).causal(),
    "stride 7": Factors(stride=SIDE - 1).pattern(),
    "aligned": aligned(SIDE, SIDE**2),
}
SIZES: Mapping[str, Pattern] = {
    **{f"window {w}": patterns.local(w - 1).causal() for w in (2, 4, 24)},
    **{f"fixed {c}": Factors(stride=SIDE, kind="fixed", columns=c).pattern() for c in (1, 4)},
}
PATTERNS: Mapping[str, Pattern] = {**VARIANTS, **SIZES}


class Cell(NamedTuple):
    """One training: bits per pixel on all unseen images, and over the last steps of training, and
    the share of unseen images that it completes to the right digit."""

    variant: str
    seed: int
    bits: float
    trained: float
    completed: float


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """Two rows per training: bits per pixel, and digits that are completed."""
    with thread_count(threads):
        for found in grid(steps=2, seeds=(0,)) if quick else grid():
            pairs = PATTERNS[found.variant].count(SIDE**2)
            yield Row(
                f"{found.variant}, seed {found.seed}",
                round(found.bits, 4),
                "bits per pixel",
                note=f"{pairs:,} pairs per layer and head, {found.trained:.4f} in training",
            )
            share = round(100 * found.completed, 1)
            yield Row(f"{found.variant}, completed digits, seed {found.seed}", share, "%")


def problem() -> Any:
    """The task: the inputs are a start token and 63 pixels, the targets all 64 pixels."""
    return task("digits", unit="pixels", kind="language_model")


def grid(
    variants: Sequence[str] = tuple(PATTERNS),
    seeds: Sequence[int] = SEEDS,
    *,
    steps: int = STEPS,
) -> Iterator[Cell]:
    """Every pattern with every seed."""
    for variant in variants:
        for seed in seeds:
            yield cell(variant, seed, steps=steps)[0]


def cell(variant: str, seed: int, *, steps: int = STEPS) -> tuple[Cell, TinyTransformer]:
    """One training: its score, and the model."""
    model, history = train(variant, seed, steps=steps)
    last = [row["loss"] for row in history.rows[-20:]]
    trained = sum(last) / len(last) / math.log(2)
    return Cell(variant, seed, bits_per_pixel(model), trained, recognised(complete(model))), model


def train(variant: str, seed: int, *, steps: int = STEPS) -> tuple[TinyTransformer, Any]:
    """The model and the history of its training, with losses in nats per pixel."""
    model = build(PATTERNS[variant], seed)
    history = fit(model, problem(), steps, seed=seed, progress=False, device="cpu", **TRAINING)
    return model.eval(), history


def build(pattern: Pattern, seed: int) -> TinyTransformer:
    """The untrained model; ``pattern`` is the mask of every layer and head."""

    def seeing(dim: int, heads: int, causal: bool) -> nn.Module:
        layer = PatternAttention(dim, heads, Factors(), causal=causal, form="naive")
        layer.pattern = pattern
        return layer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(**problem().model_options(), **MODEL, attention=seeing)


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
