"""Who may see whom: windows and global positions, and how many pairs that is."""

from collections.abc import Sequence

import sympy

from attnlab.core import patterns
from attnlab.core.card import letters
from attnlab.core.patterns import Pattern

n, w = letters("n w")


def pattern(
    *,
    window: int = 512,
    dilation: int | Sequence[int] = 1,
    global_positions: Sequence[int] = (),
    causal: bool = False,
) -> Pattern:
    """Who may see whom; one window per head where ``dilation`` is a sequence, one step per head."""
    radius = _radius(window)
    _refuse(global_positions, causal)
    if isinstance(dilation, Sequence):
        seen = patterns.per_head(*(_window(radius, step) for step in dilation))
    else:
        seen = _window(radius, dilation)
    seen = seen | patterns.global_(global_positions) if global_positions else seen
    return seen.causal() if causal else seen


def _window(radius: int, step: int) -> Pattern:
    return patterns.local(radius) if step == 1 else patterns.dilated(radius, step)


def _radius(window: int) -> int:
    if isinstance(window, bool) or not isinstance(window, int):
        raise TypeError(f"window should be a whole number, got {window!r}")
    if window < 2 or window % 2:
        raise ValueError(
            "window is the paper's total w, half of it to each side of a position, so it is even "
            f"and at least 2; got {window}"
        )
    return window // 2


def _refuse(global_positions: Sequence[int], causal: bool) -> None:
    if global_positions and causal:
        raise ValueError(
            "a causal Longformer has no global tokens: what sees all and is seen by all carries "
            "the future to everybody. Leave global_positions out, or compose a pattern: "
            "(local(r) | global_([0])).causal()"
        )
    if any(position < 0 for position in global_positions):
        raise ValueError(
            "global positions count from the start (padded sequences of a batch have no common "
            f"end); got {list(global_positions)}"
        )
    if len(set(global_positions)) < len(global_positions):
        raise ValueError(f"a global position is named twice: {list(global_positions)}")


def refuse_heads(seen: Pattern, heads: int) -> None:
    if (made_for := seen.heads() or heads) != heads:
        raise ValueError(f"dilation gives a step to {made_for} heads, but there are {heads}")


def pairs(
    *, dilation: int | Sequence[int] = 1, global_positions: Sequence[int] = ()
) -> dict[str, sympy.Expr]:
    """How many pairs are seen, over all heads where they differ; else by each head."""
    steps = dilation if isinstance(dilation, Sequence) else (dilation,)
    if not global_positions:
        return {
            "full": sympy.Add(*(n + 2 * _side(step) for step in steps)),
            "causal": sympy.Add(*(n + _side(step) for step in steps)),
        }
    crosses = 2 * len(global_positions) * n - len(global_positions) ** 2
    seen = (crosses + n + 2 * _side(step) - _inside(global_positions, step) for step in steps)
    return {"full": sympy.Add(*seen)}


def _side(step: int) -> sympy.Expr:
    """Pairs of the window before the diagonal: Σ (n − k·step) over its offsets."""
    offsets = sympy.Min(w / 2, sympy.floor((n - 1) / sympy.Integer(step)))
    return offsets * n - step * offsets * (offsets + 1) / 2


def _inside(chosen: Sequence[int], step: int) -> sympy.Expr:
    """Pairs of the window that are in the row or the column of a global position."""
    radius = w / 2 * step
    rows = sum(
        sympy.floor(sympy.Min(side, radius) / step)
        for p in chosen
        for side in (sympy.Integer(p), n - 1 - p)
    )
    shared = sum(
        sympy.Piecewise((1, abs(p - other) <= radius), (0, True))
        for p in chosen
        for other in chosen
        if (p - other) % step == 0
    )
    return 2 * (rows + len(chosen)) - shared
