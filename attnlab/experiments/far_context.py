"""Far context: four kinds of models on real text, and whose loss depends on what stands far before.

Nothing is timed: each row is a number measured on one model of two layers, after training on rows
of 256 tokens (BPE, 512 pieces) of the Python documentation. Of half of the rows, the beginning
(16 to 128 tokens) is repeated up to their end, so that it pays to copy from far away:

    full             causal full attention
    window           a sliding window: a layer attends to 16 tokens back, so two layers reach 32.
                     Its positions are learned, absolute ones, which a cut moves
    transformer-xl   segments of 32 with a memory of 32: two layers reach 64 to 96 tokens back
    rwkv             a state of constant size, without attention

What is measured, on unseen text as it is: the loss of the last
32 of 256 tokens (nats per token), and by how much it grows when the text farther than a distance
before them is changed (`attnlab.lens.far_context`, with runs of two tokens). All classes where
another part of the text stands in its place; "far", what can be copied from there alone, and "all"
for each kind of change. Lesson 33 draws what

    python -m attnlab.experiments far_context --threads 1 --json \
        attnlab/experiments/assets/33_far_context.json

has written.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.lens.far_context import (
    CLASSES,
    PERTURBATIONS,
    FarContext,
    far_context,
    token_classes,
)
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import repeats
from attnlab.tasks.documentation import Documentation, topics_by_split

LENGTH, LAST, PIECES = 256, 32, 512
DISTANCES = (16, 32, 64, 128)
TEXTS, REACH = 64, 32
Text = partial(repeats.Repeats, "beginnings")
ARMS: Mapping[str, Mapping[str, Any]] = {
    "full": {"attention": "full", "positions": "rope"},
    "window": {
        "attention": "longformer", "attention_options": {"window": REACH}, "positions": "learned",
    },
    "transformer-xl": {
        "attention": "transformer_xl", "attention_options": {"segment": REACH, "memory": REACH},
        "positions": "none",
    },
    "rwkv": {"attention": "rwkv", "positions": "none"},
}  # fmt: skip


def documentation() -> Documentation:
    """The text."""
    return repeats.documentation(LENGTH, PIECES)


@lru_cache(maxsize=2)
def unseen(texts: int = TEXTS, length: int = LENGTH) -> Tensor:
    """(texts, length): parts of the unseen text, whose last tokens do not overlap."""
    text = documentation().encode("\n\n".join(topics_by_split()["validation"].values()))
    starts = torch.arange(texts)[:, None] * ((len(text) - length) // texts)
    return text[starts + torch.arange(length)]


@lru_cache(maxsize=1)
def counts() -> Tensor:
    """(vocab,): how often each piece stands in the training text."""
    text = documentation().encode("\n\n".join(topics_by_split()["train"].values()))
    return torch.bincount(text, minlength=PIECES)


def measured(model: TinyTransformer, texts: int = TEXTS) -> FarContext:
    """What a model loses. What replaces the far part stands half of all the text away."""
    tokens = unseen(texts)
    return far_context(
        model, tokens, last=LAST, distances=DISTANCES, other=tokens.roll(texts // 2, dims=0),
        counts=counts(), run=2,
    )  # fmt: skip


def _scores(trained: Trained) -> Scores:
    found = measured(trained.model, 4 if trained.quick else TEXTS)
    return {"loss": _rounded(found.intact.mean()), **dict(_differences(found))}


def _differences(found: FarContext) -> Iterator[tuple[str, float]]:
    table = found.table().difference
    for at, token_class in enumerate(CLASSES):
        for i, distance in enumerate(DISTANCES):
            for j, way in enumerate(PERTURBATIONS):
                if way == "replace" or token_class in ("all", "far"):
                    yield f"{way}, {token_class}, {distance}", _rounded(table[at, i, j])


def _rounded(value: Tensor) -> float:
    return round(value.item(), 4) + 0.0  # no negative zero


def _counted(token_class: str, distance: int) -> Callable[[bool], tuple[float, str]]:
    """How many of the measured tokens are of this class; that depends on no model."""

    def count(quick: bool) -> tuple[float, str]:
        tokens = unseen(4 if quick else TEXTS)
        of_class = token_classes(tokens, last=LAST, distance=distance, counts=counts(), run=2)
        return of_class[CLASSES.index(token_class)].sum().item(), ""

    return count


GRID = Grid(
    arms={arm: Arm(Text(LENGTH, PIECES), options) for arm, options in ARMS.items()},
    score=_scores,
    baselines={
        f"tokens, {token_class}, {distance}": _counted(token_class, distance)
        for token_class in CLASSES
        for distance in DISTANCES
    },
    steps=250,
    model={
        **{"vocab": PIECES, "max_len": LENGTH},
        **{"dim": 64, "heads": 2, "hidden": 128, "layers": 2},
    },
    training={"batch_size": 8, "learning_rate": 5e-3},
    unit="nats",
)
SEEDS = GRID.seeds
build, rows, batches = GRID.build, GRID.rows, GRID.batches


def train(arm: str, seed: int, *, steps: int | None = None) -> TinyTransformer:
    """The model after training."""
    model: TinyTransformer = GRID.train(arm, seed, steps=steps)[0]
    return model
