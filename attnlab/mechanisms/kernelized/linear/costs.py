"""What the chunked form costs, with r features of a head."""

import sympy

from attnlab.core.card import letters
from attnlab.mechanisms.kernelized.linear.feature_maps import LinearOptions

h, n, m, d, e, c = letters("h n m d e c")


def flops(chosen: LinearOptions, causal: bool) -> sympy.Expr:
    """Sums and products with them; causally also those within chunks."""
    r = chosen.count(d)
    return 2 * h * (n + m) * r * e + (2 * h * n * c * (r + e) if causal else 0)


def elements(chosen: LinearOptions, causal: bool) -> sympy.Expr:
    """Features and values; causally also the scores and the sum of every chunk."""
    r = chosen.count(d)
    return h * n * (r + e) + (h * n * (c + r * (e + 1) / c) if causal else 0)
