"""How many tokens a cluster takes and how many pairs are compared, for the costs."""

import sympy

from attnlab.core.card import letters
from attnlab.mechanisms.learned.routing_transformer.clusters import RoutingOptions

n, k, w = letters("n k w")


def taken_by_each(chosen: RoutingOptions) -> sympy.Expr:
    """w, or n / k where no window is given."""
    return n / k if chosen.window is None else w


def compared(chosen: RoutingOptions, causal: bool) -> sympy.Expr:
    """The number of compared pairs: all of a cluster; causal, each token with two chunks."""
    each = taken_by_each(chosen)
    return 2 * n * each if causal else k * each**2
