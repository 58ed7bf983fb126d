"""Two layers whose tokens choose two of five experts, one of which is chosen most."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlab_widgets.experts_view import ExpertsView


def example(tokens: Sequence[str] | None = None, n: int = 60, **given: Any) -> ExpertsView:
    made = np.random.default_rng(3)
    scores = made.normal(size=(2, n, 5)) + np.array([0, 1.2, 0, 0.3, 0])
    router = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    chosen = np.argsort(-router, axis=-1)[..., :2]
    gates = np.take_along_axis(router, chosen, -1)
    steps = np.arange(0, 500, 25)
    shares = made.dirichlet(np.full(5, 2), size=(2, len(steps)))
    history = {
        "steps": steps,
        "shares": shares,
        "balance": 1 + 2 * np.exp(-steps / 99)[None] + [[0], [1]],
    }
    words = [f"word{i % 17}" for i in range(n)]
    return ExpertsView(
        words if tokens is None else [*tokens], chosen, gates, router, capacity=n // 3,
        history=history, **given,
    )  # fmt: skip


def hostile(words: Sequence[str]) -> ExpertsView:
    return example(words, len(words))
