"""Subwords: the same text in words, in pieces, in bytes, and in blocks of bytes that are learned.

Not a figure of speed: each row is one training of a tiny model from scratch, the same steps, width
and learning rate for all. The task (`Topics`) is to say from which of eight topics of the Python
documentation a window of 128 characters comes. The first four fifths of each topic are for
training; windows for scoring come from the rest, as they are, and with typing errors, which no
model met in training. Lesson 43 draws what

    python -m attnlab.experiments subwords --threads 1 --json \\
        attnlab/experiments/assets/43_subwords.json

has written. Every arm is a table of vectors, perhaps GBST, and then the same Transformer:

    words            every word that the training text has twice, one id for all others
    words, rank r    the same words, by a factorized table
    pieces           1,024 pieces of byte-pair encoding
    bytes            the 256 bytes
    every 4 bytes    a convolution over bytes, then the mean of each four: blocks of size 1 alone
    GBST             blocks of 1, 2, 3 and 4 bytes, chosen by a softmax, then the mean of each four
    GBST, no choice  the same with equal weights for the four sizes

Of the weights that GBST gives to the four sizes three more scores are taken (``choices``), before
training and after it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.probe import record
from attnlab.experiments import grid
from attnlab.experiments.grid import Grid, Scores, Trained, parameters
from attnlab.mechanisms.positions.factorized import FactorizedEmbedding, FactorizedOptions
from attnlab.mechanisms.positions.gbst import GBST, GBSTOptions
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.documentation_topics import (
    TOPICS,
    WINDOW,
    Topics,
    mistyped,
    pieces,
    tokenized,
    vocabulary,
    words,
)

__all__ = ["TOPICS", "WINDOW", "Topics", "mistyped", "pieces", "tokenized", "vocabulary", "words"]

LONGEST = 192  # in bytes, with letters doubled
TYPOS = (0, 5, 10, 20)
MODEL: Mapping[str, Any] = {"dim": 48, "hidden": 96, "heads": 4, "layers": 1}


class Arm(NamedTuple):
    """What the text is cut into, and what makes vectors of it."""

    unit: str
    rank: int | None = None
    blocks: tuple[int, ...] = ()
    choice: bool = True


ARMS: Mapping[str, Arm] = {
    "words": Arm("words"),
    "words, rank 8": Arm("words", rank=8),
    "words, rank 2": Arm("words", rank=2),
    "pieces": Arm("pieces"),
    "bytes": Arm("bytes"),
    "every 4 bytes": Arm("bytes", blocks=(1,)),
    "GBST": Arm("bytes", blocks=(1, 2, 3, 4)),
    "GBST, no choice": Arm("bytes", blocks=(1, 2, 3, 4), choice=False),
}


class Reader(nn.Module):
    """A table, perhaps GBST, and a classifier over the vectors that come out."""

    def __init__(self, arm: Arm) -> None:
        super().__init__()
        dim, rows = MODEL["dim"], vocabulary(arm.unit)
        self.table: nn.Module = nn.Embedding(rows, dim)
        if arm.rank is not None:
            self.table = FactorizedEmbedding(
                dim, options=FactorizedOptions(vocab=rows, rank=arm.rank)
            )
        self.gbst = None
        if arm.blocks:
            self.gbst = GBST(dim, options=GBSTOptions(blocks=arm.blocks, downsample=4))
            if not arm.choice or len(arm.blocks) == 1:
                nn.init.zeros_(self.gbst.scorer.requires_grad_(False))
        self.body = TinyTransformer(
            kind="classifier", features=dim, classes=len(TOPICS), max_len=LONGEST, **MODEL
        )

    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b classes"]:
        x = self.table(tokens)
        if self.gbst is not None:
            x, padding = self.gbst(x, padding)
        logits: Tensor = self.body(x, padding)
        return logits


@torch.no_grad()
def accuracy(model: nn.Module, task: Topics, windows: int = 1024) -> float:
    """Per cent of windows of the validation part that are put to their topic."""
    right = 0
    for seed in range(windows // 256):
        batch = task.batch("validation", 256, seed)
        right += int((model(batch.inputs, batch.padding).argmax(-1) == batch.targets).sum())
    return round(100 * right / windows, 2)


# ---- what GBST has chosen


@torch.no_grad()
def weights_of(model: Reader, texts: list[str]) -> Float[Tensor, "b n sizes"]:
    """The weight of each size of block for each character."""
    with record() as notes:
        model(*tokenized("bytes", texts))
    found: Tensor = notes["weights"][0]
    return found


def within_words(text: str, sizes: Sequence[int]) -> Bool[Tensor, "n sizes"]:
    """Which blocks around each character hold letters alone, so that they lie within a word."""
    letters = [letter.isalpha() for letter in text]
    return torch.tensor([[all(letters[i // s * s :][:s]) for s in sizes] for i in range(len(text))])


def choices(model: Reader, windows: int = 256) -> dict[str, float]:
    """How definite the choice of a size is, and whether it follows the words, in per cent.

    ``largest weight``: its mean over characters; 25 for equal weights. ``within words``: of the
    weight of a letter, the part that is on blocks of letters alone. ``moved by one``: how many
    characters prefer the same size when a space is put in front of the text.
    """
    texts, _ = Topics().texts("validation", windows, seed=0)
    sizes, weights = ARMS["GBST"].blocks, weights_of(model, texts)
    letters = torch.tensor([[letter.isalpha() for letter in text] for text in texts])
    inside = torch.stack([within_words(text, sizes) for text in texts])
    moved = weights_of(model, [" " + text for text in texts])[:, 1:]
    found = {
        "largest weight": weights.amax(-1).mean(),
        "within words": (weights * inside).sum(-1)[letters].mean(),
        "equal weights within words": inside.double().mean(-1)[letters].mean(),
        "moved by one": (weights.argmax(-1) == moved.argmax(-1)).double().mean(),
    }
    return {what: round(100 * float(share), 2) for what, share in found.items()}


# ---- the grid


def _scores(trained: Trained) -> Scores:
    note, found = f"{parameters(trained.model):,} parameters", {}
    windows = 256 if trained.quick else 1024
    for typos in TYPOS:
        task = Topics(trained.arm.task.unit, typos=typos)
        found[f"{typos} % typos"] = (accuracy(trained.model, task, windows), "%", note)
    if trained.name == "GBST":
        found = {f"GBST, {what}": share for what, share in found.items()}
        for state, seen in (("untrained", build("GBST", trained.seed)), ("trained", trained.model)):
            found |= {f"{state}, {what}": (x, "%", "") for what, x in choices(seen).items()}
    return found


GRID = Grid(
    arms={
        name: grid.Arm(
            Topics(arm.unit),
            {"arm": arm},
            figure="{what}, seed {seed}" if name == "GBST" else None,
        )
        for name, arm in ARMS.items()
    },
    score=_scores,
    steps=400,
    make=Reader,
    training={"batch_size": 32, "learning_rate": 3e-3},
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
