"""Points of chance with given words."""

from collections.abc import Sequence

import numpy as np

from attnlab_widgets.who_is_chosen import WhoIsChosen


def hostile(words: Sequence[str]) -> WhoIsChosen:
    queries, keys = np.random.default_rng(3).normal(size=(2, 8 * len(words), 2))
    return WhoIsChosen(queries, keys, tokens=[*words] * 8)
