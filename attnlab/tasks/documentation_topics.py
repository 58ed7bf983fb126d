"""Documentation topics: from which of eight topics of the Python documentation is a window?

The windows are cut into words, pieces or bytes; they may have typing errors.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.mechanisms.positions import byte_embedding
from attnlab.tasks import SPLITS, Batch
from attnlab.tasks.documentation import Documentation, topics_by_split

TOPICS = (
    *("specialnames", "types", "formatstrings", "string-methods"),
    *("typesseq", "debugger", "typesmapping", "assignment"),
)
WINDOW = 128
PIECES, UNKNOWN = 1024, 1


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
            text = parts()[split][answer]
            start = int(draw.integers(len(text) - WINDOW))
            windows.append(mistyped(text[start : start + WINDOW], self.typos / 100, draw))
        return windows, answers.tolist()

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        texts, answers = self.texts(split, size, seed)
        tokens, padding = tokenized(self.unit, texts)
        return Batch(tokens, torch.tensor(answers), padding)


@lru_cache(maxsize=1)
def parts() -> dict[str, list[str]]:
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
    counted = Counter(word for text in parts()["train"] for word in _WORD.findall(text))
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
