"""Given words as keys."""

from collections.abc import Sequence

import numpy as np

from attnlab_widgets.query_on_a_plane import QueryOnAPlane


def hostile(words: Sequence[str]) -> QueryOnAPlane:
    return QueryOnAPlane(np.eye(len(words), 2) + 1, names=[*words])
