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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from attnlab.lens.far_context import CLASSES, PERTURBATIONS, FarContext, far_context
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Batch
from attnlab.tasks.documentation import Documentation, topics_by_split
from attnlab.train import fit

LENGTH, LAST, PIECES, SEEDS = 256, 32, 512, (0, 1, 2)
DISTANCES = (16, 32, 64, 128)
STEPS, TEXTS = 250, 64
REACH = 32
MODEL: Mapping[str, Any] = {"dim": 64, "heads": 2, "hidden": 128, "layers": 2, "max_len": LENGTH}
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


@dataclass(frozen=True)
class Text:
    """Rows of the documentation; half of them repeat their beginning to the end."""

    length: int = LENGTH
    kind: ClassVar[str] = "language_model"
    name: ClassVar[str] = "documentation"

    def batch(self, split: str, size: int, seed: int) -> Batch:
        """The first half of the rows repeats."""
        text = documentation(self.length).batch(split, size, seed)
        rows = torch.cat([text.inputs, text.targets[:, -1:]], dim=1)
        drawn = torch.Generator().manual_seed(seed)
        rows = torch.cat([_repeated(rows[: size // 2], drawn), rows[size // 2 :]])
        return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())


def _repeated(rows: Tensor, drawn: torch.Generator) -> Tensor:
    """The beginning of each row again and again: of 16 tokens up to half of the row, short ones as
    often as long ones (the logarithm of their length is drawn)."""
    most = rows.shape[1] // 2
    share = torch.rand(len(rows), 1, generator=drawn)
    run = (16 * (most / 16) ** share).long()
    return rows.gather(1, torch.arange(rows.shape[1]) % run)


@lru_cache(maxsize=4)
def documentation(length: int = LENGTH) -> Documentation:
    """The text."""
    return Documentation("bpe", length=length, bpe_size=PIECES)


def build(arm: str, seed: int) -> TinyTransformer:
    """The untrained model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(PIECES, **MODEL, **ARMS[arm])


def train(arm: str, seed: int, *, steps: int = STEPS, length: int = LENGTH) -> TinyTransformer:
    """The model after training."""
    model = build(arm, seed)
    given: dict[str, Any] = {"batch_size": 8, "learning_rate": 5e-3, "device": "cpu"}
    fit(model, Text(length), steps, seed=seed, progress=False, **given)
    return model.eval()


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


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for the loss of each model, and for each difference."""
    steps, texts = (2, 4) if quick else (STEPS, TEXTS)
    with thread_count(threads):
        for seed in (0,) if quick else SEEDS:
            for arm in ARMS:
                found = measured(train(arm, seed, steps=steps), texts)
                yield Row(f"{arm}, loss, seed {seed}", _rounded(found.intact.mean()), "nats")
                yield from _differences(found, f"{arm}, ", f", seed {seed}")
        for at, token_class in enumerate(CLASSES):
            for distance, count in zip(DISTANCES, found.table().counts[at].tolist(), strict=True):
                yield Row(f"tokens, {token_class}, {distance}", count)


def _differences(found: FarContext, before: str, after: str) -> Iterator[Row]:
    table = found.table().difference
    for at, token_class in enumerate(CLASSES):
        for i, distance in enumerate(DISTANCES):
            for j, way in enumerate(PERTURBATIONS):
                if way == "replace" or token_class in ("all", "far"):
                    name = f"{before}{way}, {token_class}, {distance}{after}"
                    yield Row(name, _rounded(table[at, i, j]), "nats")


def _rounded(value: Tensor) -> float:
    return round(value.item(), 4) + 0.0  # no negative zero
