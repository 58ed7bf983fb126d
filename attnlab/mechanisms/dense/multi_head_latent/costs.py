"""What the two ways to compute multi-head latent attention cost."""

import sympy

from attnlab.core.card import letters
from attnlab.mechanisms.dense.multi_head_latent.heads import MultiHeadLatentOptions, Widths

h, n, m, d, e = letters("h n m d e")


def made_time(options: MultiHeadLatentOptions) -> sympy.Expr:
    """FLOPs where keys and values are made."""
    d_, r, k, e_ = options.widths(d)
    return 2 * h * n * m * (d_ + r + e_) + 2 * m * k * h * (d_ + e_)


def absorbed_time(options: MultiHeadLatentOptions) -> sympy.Expr:
    """FLOPs where their matrices are absorbed."""
    d_, r, k, e_ = options.widths(d)
    return 2 * h * n * m * (2 * k + r) + 2 * n * k * h * (d_ + e_)


def rows(options: MultiHeadLatentOptions) -> sympy.Expr:
    """Elements of a query or key of all heads, whichever form makes it."""
    d_, r, k, e_ = options.widths(d)
    return h * n * (d_ + r + e_ + k)


def fewer_absorbed(n: int, m: int, widths: Widths) -> bool:
    """Whether n queries need fewer FLOPs with m keys, more than they, if the matrices are
    absorbed."""
    d, _, k, e = widths
    return n < m and bool(n * m * (2 * k - d - e) < (m - n) * k * (d + e))
