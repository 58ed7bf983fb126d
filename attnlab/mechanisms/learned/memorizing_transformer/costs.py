"""How many neighbours are fetched and segments are searched in turn, for the costs."""

import sympy

from attnlab.core.card import letters
from attnlab.mechanisms.learned.memorizing_transformer.segments import MemorizingOptions

n, c, k, M = letters("n c k M")


def found(chosen: MemorizingOptions) -> sympy.Expr:
    """How many neighbours a query attends to: no more than the memory holds."""
    return k if chosen.neighbours <= chosen.memory else M


def launches(chosen: MemorizingOptions) -> sympy.Expr:
    """An approximate search is made for one segment after the other, an exact one for many."""
    return n / c if chosen.search == "approximate" else sympy.Integer(1)
