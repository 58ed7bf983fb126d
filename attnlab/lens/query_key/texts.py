"""What the caller says of each sequence of a batch: its tokens, padding, labels and image."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.lens.query_key.points import Tokens

Grid = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Text:
    """One sequence: its real tokens, and which of them are kept.

    ``columns`` are the places of the real tokens in the batch, ``kept`` those of the kept ones
    among the real.
    """

    texts: tuple[str, ...]
    columns: np.ndarray
    kept: np.ndarray
    labels: tuple[str, ...] | None = None
    image: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.columns)

    def sampled(self, most: int, draw: np.random.Generator) -> "Text":
        """At most so many of its tokens, drawn at random."""
        if len(self) <= most:
            return self
        return replace(self, kept=np.sort(draw.choice(len(self), most, replace=False)))


def texts_of(
    b: int,
    n: int,
    tokens: Sequence[Sequence[str]] | None,
    *,
    what: str = "tokens",
    padding: Tensor | None = None,
    labels: Sequence[Any] | None = None,
    images: Any = None,
    grid: Grid | None = None,
) -> list[Text]:
    """The b sequences of a batch, each of n tokens, padding included."""
    _special(n, grid)
    named = [_places(n, grid)] * b if tokens is None else _fitting(what, tokens, b, n)
    real = _real(padding, b, n)
    classes = _labels(labels, b, n)
    pictures = _images(images, b)
    found = []
    for row in range(b):
        columns = np.flatnonzero(real[row])
        if not len(columns):
            raise ValueError(f"sequence {row} of the batch is all padding; leave it out")
        own = classes[row]
        found.append(
            Text(
                texts=tuple(named[row][i] for i in columns),
                columns=columns,
                kept=np.arange(len(columns)),
                labels=None if own is None else tuple(own[i] for i in columns),
                image=None if pictures is None else pictures[row],
            )
        )
    return found


def tokens_of(texts: Sequence[Text], grid: Grid | None = None) -> Tokens:
    """The kept tokens of several sequences in one table."""
    sizes = [len(text.kept) for text in texts]
    labels = [text.labels[i] for text in texts if text.labels is not None for i in text.kept]
    images = [text.image for text in texts if text.image is not None]
    return Tokens(
        texts=tuple(text.texts[i] for text in texts for i in text.kept),
        sequence=np.repeat(np.arange(len(texts)), sizes).astype(np.int32),
        position=np.concatenate([text.kept for text in texts]).astype(np.int32),
        labels=tuple(labels) if labels else None,
        images=np.stack(images) if images else None,
        grid=grid,
    )


def checked_tokens(what: str, tokens: Sequence[Sequence[str]]) -> list[list[str]]:
    """One list of texts per sequence, or TypeError."""
    listed = isinstance(tokens, Sequence) and not isinstance(tokens, str) and len(tokens)
    if not listed or any(isinstance(row, str) or not isinstance(row, Sequence) for row in tokens):
        raise TypeError(
            f"`{what}` should hold one list of texts per sequence, [[…], […]], even for "
            "one sequence"
        )
    return [[str(token) for token in row] for row in tokens]


def _fitting(what: str, tokens: Sequence[Sequence[str]], b: int, n: int) -> list[list[str]]:
    rows = checked_tokens(what, tokens)
    if len(rows) != b or any(len(row) != n for row in rows):
        lengths = sorted({len(row) for row in rows})
        raise ValueError(
            f"`{what}` should hold {b} lists of {n} texts, one per token (padding included), got "
            f"{len(rows)} lists of lengths {lengths}"
        )
    return rows


def _special(n: int, grid: Grid | None) -> int:
    """How many tokens stand before the patches."""
    if grid is None:
        return 0
    if len(tuple(grid)) != 2 or min(grid) < 1:
        raise ValueError(f"`grid` should be (rows, columns) of patches, got {grid!r}")
    if grid[0] * grid[1] > n:
        raise ValueError(f"`grid` {grid} has more patches than the {n} tokens of a sequence")
    return n - grid[0] * grid[1]


def _places(n: int, grid: Grid | None) -> list[str]:
    """Names of tokens that have none: their position, or the row and column of their patch."""
    special = _special(n, grid)
    if grid is None:
        return [str(position) for position in range(n)]
    patches = [f"row {i}, column {j}" for i in range(grid[0]) for j in range(grid[1])]
    return ["[CLS]" if special == 1 else f"special {i}" for i in range(special)] + patches


def _real(padding: Tensor | None, b: int, n: int) -> np.ndarray:
    if padding is None:
        return np.ones((b, n), dtype=bool)
    given = padding if isinstance(padding, Tensor) else torch.as_tensor(padding)
    found = given.detach().cpu()
    if tuple(found.shape) != (b, n):
        raise ValueError(
            f"padding should be (b, n) = ({b}, {n}), True = a real token, got {tuple(found.shape)}"
        )
    return np.asarray(found.bool().numpy())


def _labels(labels: Sequence[Any] | None, b: int, n: int) -> list[list[str] | None]:
    if labels is None:
        return [None] * b
    if isinstance(labels, str):
        raise TypeError("`labels` should be a list with one label per sequence, got one text")
    if len(labels) != b:
        raise ValueError(f"`labels` should be one per sequence, {b} of them, got {len(labels)}")
    rows = [
        [str(one) for one in label] if isinstance(label, list | tuple) else [str(label)] * n
        for label in (labels.tolist() if isinstance(labels, Tensor | np.ndarray) else labels)
    ]
    if any(len(row) != n for row in rows):
        raise ValueError(f"`labels` given per token should be {n} for each sequence")
    return list(rows)


def _images(images: Any, b: int) -> np.ndarray | None:
    if images is None:
        return None
    found = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
    found = found.astype(np.float32)
    colour = found.ndim == 4 and found.shape[3] == 3
    if len(found) != b or not (found.ndim == 3 or colour):
        raise ValueError(
            f"`images` should be ({b}, height, width) or ({b}, height, width, 3), values from 0 to "
            f"1, got {found.shape}"
        )
    if not np.isfinite(found).all() or found.min() < 0 or found.max() > 1:
        raise ValueError("`images` should hold values from 0 (black) to 1 (white)")
    return found
