"""How many pairs are seen: closed forms for any n, unfinished blocks and narrow ones included."""

import sympy

from attnlab.core.card import letters

n, h_q, w_q, h_m, w_m = letters("n h_q w_q h_m w_m")


def ramp(
    terms: sympy.Expr, step: sympy.Expr, most: sympy.Expr, first: sympy.Expr = sympy.S.Zero
) -> sympy.Expr:
    r"""$\sum_{t < terms} \min(first + t \cdot step, most)$: it rises, then it stays."""
    rising = sympy.Min(terms, sympy.Max(0, sympy.floor((most - first) / step) + 1))
    rises = rising * first + step * rising * (rising - 1) / 2
    return rises + (terms - rising) * most


def pairs(*, width: int | None = None, **_: object) -> dict[str, sympy.Expr]:
    """Closed forms for any n: in 1-D, or in 2-D with lines of so many pixels."""
    return _pairs_1d() if width is None else _pairs_2d(sympy.Integer(width))


def _pairs_1d() -> dict[str, sympy.Expr]:
    whole = sympy.floor(n / w_q)  # blocks
    rest = n - whole * w_q
    before = w_q * ramp(whole, w_q, w_m) + rest * sympy.Min(whole * w_q, w_m)
    causal = whole * w_q * (w_q + 1) / 2 + rest * (rest + 1) / 2
    return {"full": before + whole * w_q**2 + rest**2, "causal": before + causal}


def _pairs_2d(width: sympy.Expr) -> dict[str, sympy.Expr]:
    """Whole bands of rectangles; in the last band, whole rectangles; one that is not whole."""
    bands, beyond = sympy.floor(n / (h_q * width)), sympy.Mod(n, h_q * width)
    there, narrow = sympy.floor(width / w_q), sympy.Mod(width, w_q)
    done = sympy.floor(beyond / (h_q * w_q))
    column = done * w_q  # where the last rectangle begins
    last = beyond - h_q * column  # its pixels
    lines, here = ramp(bands, h_q, h_m), sympy.Min(bands * h_q, h_m)  # lines seen above
    # Pairs of columns in a whole band, and those of the whole rectangles of the last one.
    left = w_q * ramp(there, w_q, w_m) + narrow * sympy.Min(there * w_q, w_m)
    all_columns = (
        left + there * w_q**2 + narrow**2 + w_q * ramp(there, w_q, w_m, narrow)  # left, own, right
    )
    left_done = w_q * ramp(done, w_q, w_m)
    columns_done = left_done + done * w_q**2 + w_q * ramp(done, w_q, w_m, width - column)
    of_last = sympy.Min(width, column + w_q + w_m) - sympy.Max(0, column - w_m)
    above = h_q * (lines * all_columns + here * columns_done) + last * here * of_last
    before = h_q**2 * (bands * left + left_done) + last * h_q * sympy.Min(column, w_m)
    size, short = h_q * w_q, h_q * narrow
    inside = (bands * there + done) * size * (size + 1) / 2 + bands * short * (short + 1) / 2
    causal = above + before + inside + last * (last + 1) / 2
    squares = (bands * there + done) * size**2 + bands * short**2 + last**2
    right = h_q**2 * w_q * (bands * ramp(there, w_q, w_m, narrow) + ramp(done, w_q, w_m))
    breadth = sympy.Min(w_q, width - column)
    whole_lines, rest = sympy.floor(last / breadth), sympy.Mod(last, breadth)
    of_margin = whole_lines * _falling(done, breadth) + _falling(done, rest)
    return {"full": above + before + squares + right + size * of_margin, "causal": causal}


def _falling(terms: sympy.Expr, most: sympy.Expr) -> sympy.Expr:
    r"""$\sum_{s < terms} \min(most, \max(w_m - s w_q, 0))$: of a margin, what reaches so far."""
    beyond = sympy.Max(w_m - most, 0)
    return terms * (w_m - beyond) - ramp(terms, w_q, w_m) + ramp(terms, w_q, beyond)
