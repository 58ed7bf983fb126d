"""Quality: every mechanism as the only mixer of one small model, under one training budget.

Nothing is timed. The catalogue is walked: each mechanism that mixes a sequence (b, n, dim) stands
alone in both layers of the same `TinyTransformer` (width 32, 4 heads, learned positions), and one
model mixes nothing at all. Each is trained from scratch on three tasks of 64 tokens, with the
options that its card gives for short sequences (``Card.small_options``).

    recall    the value that a text gave to a key (`attnlab.tasks.lookup`: associative recall with
              a key and its value in one token); % of 4,096 answers, 25 % by guessing
    text      the next byte of the Python documentation, in bits per byte on unseen topics
    digits    which digit 64 pixels show, one after the other; % of all 355 unseen images

The budget is the same for all: 300 steps of 16 sequences of 64 tokens, hence 307,200 tokens, with
one learning rate and nothing tuned for any mechanism. The compute is not the same: ``compute`` is
the number of FLOPs of forward and backward pass, counted, per token of the whole model.

Recall and text need a causal model. A mechanism that cannot be causal has one row without a
measurement there, whose note is the reason its card gives; so has one that is told the tree of a
sentence, on all three tasks. A mechanism that is always causal sees the past only on digits too.
Lesson 72 draws what

    python -m attnlab.experiments quality --threads 1 --json \\
        attnlab/experiments/assets/72_quality.json

has written, in about an hour of one processor; rows that the file holds are not trained again.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.experiments.grid import SEEDS, seeded
from attnlab.measure.count import count
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Task, task
from attnlab.train import evaluate, fit

LENGTH, SIDE = 64, 8
STEPS = 300
MODEL: Mapping[str, Any] = {"dim": 32, "layers": 2, "heads": 4, "hidden": 64, "tie": False}
TRAINING: Mapping[str, Any] = {"batch_size": 16, "learning_rate": 5e-3}
NOTHING = "no mixing"
TASKS: Mapping[str, Mapping[str, Any]] = {
    "recall": {"name": "lookup", "keys": 16, "values": 4, "questions": 16, "words": 8},
    "text": {"name": "documentation"},
    "digits": {"name": "digits"},
}
UNITS: Mapping[str, str] = {"recall": "%", "text": "bits per byte", "digits": "%"}
UNSEEN: Mapping[str, tuple[int, int]] = {"recall": (8, 32), "text": (8, 32), "digits": (1, 355)}
"""Batches, and sequences of each, on which a model is scored."""


class Nothing(nn.Module):
    """In place of a mixer: every position keeps to itself, so the layer adds zero."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return torch.zeros_like(x)


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training, and one for each count."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows, the whole grid of one seed after the other."""
    pairs = [(kind, name) for kind in TASKS for name in mechanisms()]
    able = [pair for pair in pairs if not obstacle(*reversed(pair))]
    unable = [pair for pair in pairs if pair not in able]
    names = [f"{kind}, {name}" for kind, name in unable]
    names += [f"{kind}, {name}, compute" for kind, name in able]
    for seed in SEEDS[: 1 if quick else None]:
        names += [f"{kind}, {name}, seed {seed}" for kind, name in able]
    return names


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure."""
    kind, name, *what = figure.split(", ")
    if not what:
        return Row(figure, None, UNITS[kind], note=obstacle(name, kind))
    with thread_count(threads):
        if what == ["compute"]:
            return Row(figure, float(compute(name, kind)), "FLOPs per token")
        seed = int(what[0].removeprefix("seed "))
        quality = train(name, kind, seed, steps=2 if quick else STEPS)[0]
        return Row(figure, quality, UNITS[kind])


def mechanisms() -> list[str]:
    """All that mix a sequence, and the model that mixes nothing."""
    return [*(card.name for card in catalog.cards() if card.mixes), NOTHING]


def problem(kind: str) -> Task:
    """The task that is called recall, text or digits here."""
    options = dict(TASKS[kind])
    name = options.pop("name")
    return task(name, **options, **({} if name == "digits" else {"length": LENGTH}))


def obstacle(name: str, kind: str) -> str:
    """Why a mechanism cannot be trained on a task; empty where it can."""
    if name == NOTHING:
        return ""
    card = catalog.card(name)
    if card.structure is not None:
        return "it is told what connects the tokens, and these sequences have no trees or graphs"
    if card.causal == "never" and problem(kind).kind == "language_model":
        return f"it cannot be causal: {card.causal_reason}"
    return ""


def options_of(card: Card) -> dict[str, Any]:
    """The options for short sequences: tables as long as the sequence, and lines of fixed patterns
    as wide as the image."""
    sizes = {"max_len": LENGTH} | ({"width": SIDE} if card.family == "fixed" else {})
    return {**card.small_options, **{k: v for k, v in sizes.items() if k in card.option_names()}}


def build(name: str, kind: str, seed: int) -> TinyTransformer:
    """The untrained model."""

    def layer(dim: int, heads: int, causal: bool) -> nn.Module:
        if name == NOTHING:
            return Nothing()
        card = catalog.card(name)
        causal = causal or card.causal == "always"
        return catalog.build(name, dim=dim, heads=heads, causal=causal, **options_of(card))

    with seeded(seed):
        return TinyTransformer(**problem(kind).model_options(), **MODEL, attention=layer)


def train(
    name: str, kind: str, seed: int, *, steps: int = STEPS, progress: bool = False
) -> tuple[float, TinyTransformer]:
    """One training: its quality on unseen data, and the model."""
    model, learned = build(name, kind, seed), problem(kind)
    fit(model, learned, steps, seed=seed, progress=progress, device="cpu", **TRAINING)
    batches, size = UNSEEN[kind]
    found = evaluate(model, learned, batches=batches, batch_size=size)
    if kind == "text":
        return round(found.loss / math.log(2), 4), model
    return round(100 * found.accuracy, 2), model


def compute(name: str, kind: str) -> int:
    """FLOPs of forward and backward pass of the whole model, counted, per token."""
    model, inputs = build(name, kind, 0), problem(kind).batch("train", 1, seed=0).inputs
    return round(count(model, inputs, backward=True).flops / LENGTH)
