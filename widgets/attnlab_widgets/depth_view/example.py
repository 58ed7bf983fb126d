"""Tokens that leave after 1 to 7 layers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab_widgets.depth_view import DepthView


def example(tokens: Sequence[str] | None = None, n: int = 30, **given: Any) -> DepthView:
    made = np.random.default_rng(3)
    start, end = made.normal(size=(2, n, 11))
    left = made.integers(1, 8, size=n)
    states = np.stack(
        [end + (start - end) * 0.5 ** np.minimum(t, left)[:, None] for t in range(1, 8)]
    )
    words = [f"word{i}" for i in range(n)]
    guesses = [[str(i % t) for i in range(n)] for t in range(2, 9)]
    return DepthView(
        words if tokens is None else [*tokens], states, start=start, left=left, what="layer",
        guesses=guesses, probabilities=made.random((7, n)), **given,
    )  # fmt: skip


def hostile(words: Sequence[str]) -> DepthView:
    return example(words, len(words), token=0)
