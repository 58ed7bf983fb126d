"""Word order: complex word embeddings beside positions that are added, on sentences out of order.

Not a figure of speed: each row is one training of a tiny classifier from scratch, the same steps
and learning rate for all. It is asked whether the words of a sentence stand as they were written
(``attnlab.tasks.word_order``), and scored on sentences from topics that it has not seen, in per
cent; half of them are changed. Four networks read the words: their average, a convolution, a
Transformer, and a Transformer of complex numbers.

One budget: all vectors have 64 real numbers, that is 32 complex ones, of amplitude and frequency
each, so every word has 64 parameters. Learned positions have 16 · 64 more; the complex Transformer
has half the parameters in its layers. Lesson 41 draws what

    python -m attnlab.experiments word_order --threads 1 --json \\
        attnlab/experiments/assets/41_word_order.json

has written.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.experiments import grid
from attnlab.experiments.grid import Grid, Scores, Trained, parameters, percent
from attnlab.mechanisms.positions.complex_embedding.tables import ComplexEmbeddingOptions
from attnlab.models.complex_transformer import ComplexTransformer
from attnlab.models.hosts import WordClassifier
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.word_order import WordOrder

DIM, UNSEEN = 64, 2000
TRAINING: Mapping[str, Any] = {"batch_size": 64, "learning_rate": 3e-3}
TRANSFORMER: Mapping[str, Any] = {
    "dim": DIM, "hidden": 2 * DIM, "layers": 1, "heads": 4, "dropout": 0.1
}  # fmt: skip


class Arm(NamedTuple):
    """A network, how its words are embedded, and which change it is to notice."""

    network: Any
    scheme: str
    options: Mapping[str, Any] = {}
    change: str = "shuffle"


ADDED = ("none", "learned", "sinusoidal", "complex")
ARMS: Mapping[str, Arm] = {
    **{f"average, {scheme}": Arm("average", scheme) for scheme in ADDED},
    "average, complex, shared by words": Arm("average", "complex", {"frequencies": "words"}),
    "average, complex, frozen": Arm("average", "complex", {"frozen": True}),
    "average, complex, with phases": Arm("average", "complex", {"phases": "none"}),
    **{f"convolution, {scheme}": Arm("convolution", scheme) for scheme in ADDED},
    **{f"Transformer, {scheme}": Arm("transformer", scheme) for scheme in ADDED},
    "complex Transformer, complex": Arm("complex_transformer", "complex"),
    **{f"swap, average, {s}": Arm("average", s, change="swap") for s in ("none", "complex")},
    **{f"swap, convolution, {s}": Arm("convolution", s, change="swap") for s in ADDED},
}


def problem(arm: Arm) -> WordOrder:
    """The task."""
    return WordOrder(change=arm.change)


def build(arm: Arm, seed: int) -> nn.Module:
    """The untrained model."""
    with grid.seeded(seed):
        return _model(arm)


def _model(arm: Arm, **_: Any) -> nn.Module:
    task = problem(arm)
    if arm.network == "transformer":
        given = {"positions": arm.scheme, "position_options": arm.options, **TRANSFORMER}
        return TinyTransformer(**task.model_options(), **given)
    if arm.network == "complex_transformer":
        words = ComplexEmbeddingOptions(scale=DIM**-0.5, **arm.options)
        sizes = {"vocab": task.vocab, "classes": 2, "max_len": task.length, **TRANSFORMER}
        return ComplexTransformer(kind="classifier", words=words, **sizes)
    return WordClassifier(
        task.vocab, 2, kind=arm.network, dim=DIM, max_len=task.length, scheme=arm.scheme,
        scheme_options=arm.options, dropout=0.1,
    )  # fmt: skip


@torch.no_grad()
def right(model: nn.Module, task: WordOrder) -> float:
    """Per cent of right answers on unseen sentences."""
    unseen = task.batch("validation", UNSEEN, seed=0)
    return percent(model(unseen.inputs, unseen.padding).argmax(-1) == unseen.targets)


def _score(trained: Trained) -> Scores:
    share = right(trained.model, trained.arm.task)
    return {"": (share, "%", f"{parameters(trained.model):,} parameters")}


GRID = Grid(
    arms={name: grid.Arm(problem(arm), {"arm": arm}) for name, arm in ARMS.items()},
    score=_score,
    steps=500,
    make=_model,
    training=TRAINING,
    figure="{arm}, seed {seed}",
)
SEEDS = GRID.seeds
train, rows, batches = GRID.train, GRID.rows, GRID.batches
