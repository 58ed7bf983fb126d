"""The growths that one may claim for a cost, by how they are written."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

GROWTHS: Mapping[str, Callable[[Any], Any]] = {
    "n": lambda n: n,
    "n log n": lambda n: n * np.log2(n),
    "n√n": lambda n: n**1.5,
    "n²": lambda n: n**2,
}
"""As functions of a length, or of an array of lengths."""
