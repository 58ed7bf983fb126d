"""How many neighbours are fetched, for the costs."""

import sympy

from attnlab.core.card import letters
from attnlab.mechanisms.learned.memorizing_transformer.segments import MemorizingOptions

k, M = letters("k M")


def found(chosen: MemorizingOptions) -> sympy.Expr:
    """How many neighbours a query attends to: no more than the memory holds."""
    return k if chosen.neighbours <= chosen.memory else M
