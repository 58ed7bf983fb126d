"""How many keys and blocks a query has to do with, for the costs."""

import sympy

from attnlab.core.card import letters
from attnlab.mechanisms.learned.sinkhorn.blocks import SinkhornOptions

n, B, c = letters("n B c")


def keys_sorted(chosen: SinkhornOptions) -> sympy.Expr:
    """How many sorted keys a query attends to."""
    return B if chosen.budget is None else c * B


def own_keys(chosen: SinkhornOptions) -> sympy.Expr:
    """How many keys of its own block it attends to."""
    return sympy.Integer(0) if chosen.join == "sorted" else B


def sorting_pairs(chosen: SinkhornOptions) -> sympy.Expr:
    """Numbers of S for each position: a block of the sorted ones for each of the others."""
    return n / B if chosen.budget is None else c
