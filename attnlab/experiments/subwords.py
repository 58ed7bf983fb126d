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

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.probe import record
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.positions import byte_embedding
from attnlab.mechanisms.positions.factorized import FactorizedEmbedding, Factors
from attnlab.mechanisms.positions.gbst import GBST, Subwords
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import SPLITS, Batch
from attnlab.tasks.documentation import Documentation, topics_by_split
from attnlab.train import fit

TOPICS = (
    *("specialnames", "types", "formatstrings", "string-methods"),
    *("typesseq", "debugger", "typesmapping", "assignment"),
)
WINDOW = 128
LONGEST = 192  # in bytes, with letters doubled
STEPS, SEEDS, TYPOS = 400, (0, 1, 2), (0, 5, 10, 20)
MODEL: Mapping[str, Any] = {"dim": 48, "hidden": 96, "heads": 4, "layers": 1}
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 3e-3}
PIECES, UNKNOWN = 1024, 1


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


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training and share of typing errors, in per cent of right answers."""
    with thread_count(threads):
        for name, arm in ARMS.items():
            for seed in (0,) if quick else SEEDS:
                model, _ = train(name, seed, steps=2 if quick else STEPS)
                size = sum(p.numel() for p in model.parameters())
                for typos in TYPOS:
                    share = accuracy(model, Topics(arm.unit, typos=typos))
                    note = f"{size:,} parameters"
                    yield Row(f"{name}, {typos} % typos, seed {seed}", share, "%", note=note)
                if name == "GBST":
                    for state, seen in (("untrained", build(name, seed)), ("trained", model)):
                        for what, share in choices(seen).items():
                            yield Row(f"{state}, {what}, seed {seed}", share, "%")


# ---- the task


@dataclass(frozen=True)
class Topics:
    """Windows of the documentation, each to be put to its topic; ``typos`` per cent of the letters
    are mistyped."""

    unit: str = "bytes"
    typos: int = 0
    name: str = field(default="topics", init=False)
    kind: str = field(default="classifier", init=False)

    def texts(self, split: Any, size: int, seed: int) -> tuple[list[str], list[int]]:
        """Windows and the numbers of their topics; equal arguments give equal windows."""
        draw = np.random.default_rng([SPLITS.index(split), seed])
        answers = draw.integers(len(TOPICS), size=size)
        windows = []
        for answer in answers:
            text = _parts()[split][answer]
            start = int(draw.integers(len(text) - WINDOW))
            windows.append(mistyped(text[start : start + WINDOW], self.typos / 100, draw))
        return windows, answers.tolist()

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        texts, answers = self.texts(split, size, seed)
        tokens, padding = tokenized(self.unit, texts)
        return Batch(tokens, torch.tensor(answers), padding)


@lru_cache(maxsize=1)
def _parts() -> dict[str, list[str]]:
    """The first four fifths of each topic, and the last."""
    every = {name: text for part in topics_by_split().values() for name, text in part.items()}
    texts = [every[name].encode("ascii", "ignore").decode() for name in TOPICS]
    return {
        "train": [text[: len(text) * 4 // 5] for text in texts],
        "validation": [text[len(text) * 4 // 5 :] for text in texts],
    }


def mistyped(text: str, share: float, draw: np.random.Generator) -> str:
    """Each letter, with probability ``share``, is left out, doubled, another, or changes places
    with the next."""
    letters, out, place = list(text), [], 0
    while place < len(letters):
        letter, following = letters[place], letters[place + 1 : place + 2]
        kind = int(draw.integers(4)) if letter.isalpha() and draw.random() < share else -1
        other = chr(ord("a") + int(draw.integers(26))) if kind == 2 else letter
        out += {0: [], 1: [letter, letter], 3: [*following, letter]}.get(kind, [other])
        place += 1 + (kind == 3) * len(following)
    return "".join(out)


# ---- what the text is cut into


def tokenized(unit: str, texts: list[str]) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
    """Ids and padding."""
    if unit == "bytes":
        return byte_embedding.batch(texts, end=False)
    rows = [_ids(unit, text) for text in texts]
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return tokens, torch.arange(longest) < torch.tensor([[len(row)] for row in rows])


def pieces(unit: str, text: str) -> list[str]:
    """What the text is cut into, as text; unknown words in brackets."""
    if unit == "words":
        return [word if word in words() else f"[{word}]" for word in _WORD.findall(text)]
    if unit == "pieces":
        return _tokenizer().tokens(_tokenizer().encode(text))
    return list(text)


def vocabulary(unit: str) -> int:
    """How many rows the table needs."""
    sizes = {"words": len(words()) + 2, "pieces": PIECES}
    return sizes.get(unit, byte_embedding.IN_USE)


_WORD = re.compile(r"\w+|[^\w\s]")


@lru_cache(maxsize=1)
def words() -> dict[str, int]:
    """Word → id, for words that occur at least twice in the training text."""
    counted = Counter(word for text in _parts()["train"] for word in _WORD.findall(text))
    known = sorted(word for word, times in counted.items() if times > 1)
    return {word: index for index, word in enumerate(known, start=UNKNOWN + 1)}


def _ids(unit: str, text: str) -> list[int]:
    if unit == "words":
        return [words().get(word, UNKNOWN) for word in _WORD.findall(text)]
    found: list[int] = _tokenizer().encode(text).tolist()
    return found


@lru_cache(maxsize=1)
def _tokenizer() -> Documentation:
    return Documentation("bpe", bpe_size=PIECES)


# ---- the model


class Reader(nn.Module):
    """A table, perhaps GBST, and a classifier over the vectors that come out."""

    def __init__(self, arm: Arm) -> None:
        super().__init__()
        dim, rows = MODEL["dim"], vocabulary(arm.unit)
        self.table: nn.Module = nn.Embedding(rows, dim)
        if arm.rank is not None:
            self.table = FactorizedEmbedding(dim, options=Factors(vocab=rows, rank=arm.rank))
        self.gbst = None
        if arm.blocks:
            self.gbst = GBST(dim, options=Subwords(blocks=arm.blocks, downsample=4))
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


def build(name: str, seed: int) -> Reader:
    """The untrained model of an arm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Reader(ARMS[name])


def train(name: str, seed: int, *, steps: int = STEPS, **more: Any) -> tuple[Reader, Any]:
    """The model and the history of its training."""
    model, task = build(name, seed), Topics(ARMS[name].unit)
    settings = {"seed": seed, "progress": False, "device": "cpu", **TRAINING, **more}
    return model, fit(model, task, steps, **settings)


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
