"""Figures of patterns: which pairs a mask allows, for one pattern or several heads, and how many.

A pattern is drawn as one small bitmap, whatever its length, which keeps notebooks small. Blocks can
be told apart without colours: an empty one is hatched, a full one is framed, and a mixed one shows
its cells.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from attnlab.core.arguments import (
    check_list,
    check_mapping,
    check_names,
    check_size,
    check_texts,
)
from attnlab.core.arrays import booleans
from attnlab.core.integers import check_integer
from attnlab.core.patterns import Pattern
from attnlab.figures.costs import cost_curves
from attnlab.figures.labels import sentence
from attnlab.figures.pattern_drawing import (
    SIDE,
    Blocks,
    Mask,
    blocks_of,
    hover_texts,
    legend,
    numbered,
    one_panel,
    overlays,
    panel_layout,
    panel_side,
    percent,
)
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import colours, theme_name

LARGEST = 512
MOST_PANELS = 16


def pattern_map(
    pattern: Pattern | Any,
    n: int,
    *,
    title: str,
    block: int | None = None,
    theme: str | None = None,
) -> Picture:
    """Which of n positions may attend to which, with boundaries of blocks of ``block`` positions.

    ``pattern`` may also be a mask (n, n), True = may attend. By default the size of a block is the
    power of two that gives eight to sixteen blocks to a side.
    """
    check_texts(title=title)
    mask, blocks = _drawable("pattern", pattern, n, block)
    theme = theme_name(theme)
    look = colours(theme)
    page = one_panel(look, title, n)
    page["images"] = overlays(mask, blocks, "x", "y", theme, SIDE)
    page["annotations"] = [legend(look)]
    return Picture(
        list(hover_texts(blocks, "x", "y")),
        page,
        description=f"{sentence(title)} {_summary(mask, blocks)} {_described(pattern)}".strip(),
        rows=_rows(mask),
        theme=theme,
    )


def head_patterns(
    patterns: Pattern | Sequence[Pattern],
    n: int,
    *,
    title: str,
    names: Sequence[str] | None = None,
    block: int | None = None,
    theme: str | None = None,
) -> Picture:
    """A small panel for each head (of a ``per_head`` pattern) or each pattern of a list.

    ``names`` are the panels' titles, by default heads 0, 1, 2, …
    """
    check_texts(title=title)
    several = _several(patterns)
    captions = (
        [f"head {h}" for h in range(len(several))] if names is None else check_names("names", names)
    )
    if len(captions) != len(several):
        raise ValueError(f"`names` has {len(captions)} names for {len(several)} patterns")
    panels = [_drawable(name, one, n, block) for name, one in zip(captions, several, strict=True)]
    theme = theme_name(theme)
    page = panel_layout(colours(theme), title, captions, [mask for mask, _ in panels])
    traces: list[go.Scatter] = []
    for at, (mask, blocks) in enumerate(panels):
        axes = numbered("x", at), numbered("y", at)
        page["images"] += overlays(mask, blocks, *axes, theme, panel_side(len(panels)))
        traces += hover_texts(blocks, *axes)
    description = f"{sentence(title)} {len(panels)} patterns of {n} positions. " + " ".join(
        f"{name}: {_summary(mask, blocks)}"
        for name, (mask, blocks) in zip(captions, panels, strict=True)
    )
    rows = [_head_row(name, *panel) for name, panel in zip(captions, panels, strict=True)]
    return Picture(traces, page, description=description, rows=rows, theme=theme)


def density_curves(
    patterns: Mapping[str, Pattern | Callable[[int], Pattern]],
    lengths: Sequence[int],
    *,
    title: str,
    theme: str | None = None,
) -> Picture:
    """The share of the pairs that each pattern allows against the length, both axes logarithmic.

    A pattern that depends on the length is given as a function of it: ``lambda n:
    local(isqrt(n))``. A slope of −1 means a cost proportional to n, a slope of 0 one proportional
    to n². Pairs are counted block by block, so that lengths may be large.
    """
    check_texts(title=title)
    patterns = check_mapping("patterns", patterns, '{"window": local(8)}')
    lengths = [check_integer("a length", n, at_least=1) for n in check_list("lengths", lengths)]
    series = {
        name: [(n, _density(name, one, n)) for n in lengths] for name, one in patterns.items()
    }
    quantity = "share of the pairs that may be attended to"
    return cost_curves(series, quantity=quantity, title=title, theme=theme)


# the masks that are drawn


def _drawable(name: str, pattern: Any, n: int, block: int | None) -> tuple[Mask, Blocks]:
    n = check_size("n", n, LARGEST, "positions")
    mask = _mask(name, pattern, n)
    size = max(1, 2 ** (n // 8).bit_length() // 2) if block is None else block
    return mask, blocks_of(mask, check_size("block", size, LARGEST, "positions"))


def _mask(name: str, pattern: Any, n: int) -> Mask:
    if not isinstance(pattern, Pattern):
        return booleans(name, pattern, (n, n))
    dense = pattern.dense(n)
    if dense.dim() > 2:
        raise ValueError(
            f"{pattern} differs between heads or sequences: draw it with head_patterns, or one of "
            "them, as in pattern.of_head(0)"
        )
    return np.asarray(dense.numpy())


def _several(patterns: Pattern | Sequence[Pattern]) -> list[Pattern]:
    if isinstance(patterns, Pattern):
        heads = patterns.heads()
        patterns = [patterns] if heads is None else [patterns.of_head(h) for h in range(heads)]
    patterns = check_list("patterns", patterns)
    if not 1 <= len(patterns) <= MOST_PANELS:
        raise ValueError(f"one to {MOST_PANELS} patterns have room, got {len(patterns)}")
    return patterns


def _density(name: str, pattern: Pattern | Callable[[int], Pattern], n: int) -> float:
    found = pattern(n) if callable(pattern) else pattern
    if not isinstance(found, Pattern):
        raise TypeError(f"{name!r} should be a pattern, or a function from n to one, got {found!r}")
    share = found.density(n)
    if share == 0:
        raise ValueError(f"{name!r} allows no pair at n = {n}, which no log axis can show")
    return share


# descriptions


def _summary(mask: Mask, blocks: Blocks) -> str:
    n, pairs = len(mask), int(mask.sum())
    text = (
        f"{pairs:,} of {n * n:,} pairs may be attended to ({percent(mask.mean())}). Of "
        f"{blocks.pairs.size} blocks of {blocks.size} positions {int(blocks.full.sum())} are full, "
        f"{int(blocks.mixed.sum())} mixed and {int(blocks.empty.sum())} empty."
    )
    masked = np.flatnonzero(~mask.any(1))
    if len(masked):
        positions = (
            f"Position {masked[0]} attends"
            if len(masked) == 1
            else f"Positions {runs(masked)} attend"
        )
        text += f" {positions} to nothing."
    return text


def runs(places: Sequence[int] | NDArray[Any]) -> str:
    """Sorted positions as a short text: 0, 3–7."""
    parts: list[list[int]] = []
    for place in (int(p) for p in places):
        if parts and place == parts[-1][1] + 1:
            parts[-1][1] = place
        else:
            parts.append([place, place])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in parts)


def _described(pattern: Any) -> str:
    if not isinstance(pattern, Pattern):
        return ""
    return f"In words: {pattern.description}."


def _rows(mask: Mask) -> list[Row]:
    return [
        {
            "query": i,
            "keys attended to": int(row.sum()),
            "which": runs(np.flatnonzero(row)) or "none",
        }
        for i, row in enumerate(mask)
    ]


def _head_row(name: str, mask: Mask, blocks: Blocks) -> Row:
    return {
        "pattern": name,
        "pairs": int(mask.sum()),
        "share": round(float(mask.mean()), 4),
        "full blocks": int(blocks.full.sum()),
        "mixed": int(blocks.mixed.sum()),
        "empty": int(blocks.empty.sum()),
        "positions that attend to nothing": runs(np.flatnonzero(~mask.any(1))) or "none",
    }
