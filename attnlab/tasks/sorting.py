"""Sorting: write a list of symbols again, smallest item first.

    c a b | a b c

Like copying, except that the position of the next item does not follow from the output position:
it depends on all items. A head has to compare them and find the smallest that is not yet written.
Symbols may repeat, and are written as often as they occur.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnlab.tasks.copying import Copying


@dataclass(frozen=True)
class Sorting(Copying):
    """Write `items` random symbols out of `symbols` in order; options as for copying."""

    name: ClassVar[str] = "sorting"
    order: ClassVar[str] = "from the smallest to the largest"

    @staticmethod
    def answer(contents: np.ndarray) -> np.ndarray:
        return np.sort(contents, axis=1)
