"""Reversing: write a list of symbols again, last item first.

    a c b | b c a

Like copying, except that the distance to look back grows by two with every item written. No fixed
offset is right: a head has to use both its own position and that of the separator.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from attnlab.tasks.copying import Copying


@dataclass(frozen=True)
class Reversing(Copying):
    """Write `items` random symbols out of `symbols` backwards; options as for copying."""

    name: ClassVar[str] = "reversing"
    order: ClassVar[str] = "backwards"

    @staticmethod
    def answer(contents: np.ndarray) -> np.ndarray:
        return contents[:, ::-1]
