"""Maps of chance, and the same of given words."""

from collections.abc import Sequence

import numpy as np

from attnlab_widgets.attention_view import AttentionView


def example(n: int = 7) -> AttentionView:
    maps = np.random.default_rng(3).dirichlet(np.full(n, 0.4), size=(3, 5, n))
    return AttentionView(maps.astype("float32"), [*map(str, range(n))])


def hostile(words: Sequence[str]) -> AttentionView:
    n = len(words)
    maps = np.random.default_rng(3).dirichlet(np.full(n, 0.4), size=(2, 3, n))
    return AttentionView(maps.astype("float32"), [*words])
