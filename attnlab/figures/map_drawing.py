"""How attention maps are laid out and coloured: one map, or a grid of small ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arrays import Array
from attnlab.figures.labels import escaped, labels, tick_step
from attnlab.figures.layout import (
    axis,
    bare_axis,
    hatching,
    label_width,
    layout,
    note,
    text_width,
)
from attnlab.figures.theme import MONO, Theme, colours

_CAPTION = 10
"""Letters of a caption are 11 pixels high and narrower than the estimate of ``text_width``."""


def packed(cells: Array) -> Array:
    """A map in the smallest dtype that holds it: plotly writes numpy arrays as base64.

    (In a notebook file every number of a list would take a line of its own.) Hidden cells become
    0; hatching covers them.
    """
    cells = np.nan_to_num(cells, nan=0.0)
    integers = bool(np.all(cells == np.round(cells)))
    for kind in (np.uint8, np.int8, np.uint16, np.int16) if integers else ():
        if cells.min() >= np.iinfo(kind).min and cells.max() <= np.iinfo(kind).max:
            return cells.astype(kind)
    return cells.astype(np.float32)


def _names(tokens: Sequence[Any]) -> list[str]:
    """Category names: one per position, so that repeated tokens stay apart."""
    if list(tokens) == list(range(len(tokens))):
        return [str(place) for place in tokens]
    return [f"{place}: {label}" for place, label in enumerate(labels(tokens))]


def _hover(one: str, other: str) -> str:
    return f"{escaped(one)} %{{y}}<br>{escaped(other)} %{{x}}<br>"


def trace(cells: Array, quantity: str, unit: int | None, each: tuple[str, str]) -> go.Heatmap:
    """``each``: what one row and one column are called."""
    return go.Heatmap(
        z=packed(cells),
        coloraxis="coloraxis",
        xgap=_gap(cells),
        ygap=_gap(cells),
        hovertemplate=f"{_hover(*each)}{escaped(quantity)} {_value(unit)}<extra></extra>",
    )


def small_map(cells: Array, layer: int, head: int, unit: int | None) -> go.Heatmap:
    return go.Heatmap(
        z=packed(cells),
        xaxis=_numbered("x", head + 1),
        yaxis=_numbered("y", layer + 1),
        coloraxis="coloraxis",
        name=f"layer {layer}, head {head}",
        hovertemplate=f"layer {layer}, head {head}<br>{_hover('query', 'key')}weight "
        f"{_value(unit)}<extra></extra>",
    )


def _value(unit: int | None) -> str:
    """The hover text for a value: exact, or a rounded one stored as a whole number of 1/unit."""
    if unit is None:
        return "%{z:.4~f}"
    if unit == 1:
        return "%{z}"
    return "%{z}" + {100: " %", 1000: " ‰"}.get(unit, f" / {unit:,}")


def _gap(cells: Array) -> int:
    return 1 if max(cells.shape) <= 48 else 0


def _cell(n: int, m: int) -> float:
    return max(1.0, min(32.0, 430 / max(n, m)))


def one_map_layout(
    theme: str,
    title: str,
    queries: Sequence[Any],
    keys: Sequence[Any],
    hidden: Array,
    only: Array,
    axes: tuple[str, str],
) -> dict[str, Any]:
    """``only`` is True at the only key of a query, which is framed in place of its colour."""
    look, hatched, framed = colours(theme), bool(hidden.any()), bool(only.any())
    n, m = hidden.shape
    cell = _cell(n, m)
    rows, columns = _ticks(queries), _ticks(keys)
    turned = max(map(label_width, columns["ticktext"])) > cell * tick_step(m) - 3
    columns["tickangle"] = -90 if turned else 0
    top = 66 + (max(map(label_width, columns["ticktext"])) if turned else 14)
    left = 44 + max(map(label_width, rows["ticktext"]))
    margin: dict[str, float] = {"l": left, "r": 116, "t": top, "b": 14 + 20 * hatched + 15 * framed}
    width = max(m * cell, 150) + left + margin["r"]
    width = max(width, text_width(title, 16.5) + 16)
    margin["r"] = width - left - max(m * cell, 150)
    height = max(n * cell, 120) + top + margin["b"]
    shared = {"type": "category", "showgrid": False, "ticks": ""}
    lines = ["hatched: the mask does not allow it"] if hatched else []
    lines += ["framed: the only key of its query, always 1"] if framed else []
    return layout(
        look,
        title,
        width=width,
        height=height,
        margin=margin,
        xaxis=axis(look, axes[1], side="top", range=[-0.5, m - 0.5], **shared, **columns),
        yaxis=axis(look, axes[0], range=[n - 0.5, -0.5], **shared, **rows),
        images=[hatching(hidden, "x", "y", theme, only=only)] if hatched else [],
        annotations=[
            note(look, line, 0, 0, yanchor="top", xanchor="left", yshift=-8 - 15 * at)
            for at, line in enumerate(lines)
        ],
    )


def borders(look: Theme, rows: Sequence[Any], columns: Sequence[Any]) -> list[dict[str, Any]]:
    """Lines between neighbouring rows and columns of different groups."""
    line = {"color": look.ink, "width": 1}
    ends = {"x": (-0.5, len(columns) - 0.5), "y": (-0.5, len(rows) - 0.5)}
    found = []
    for along, across, groups in (("x", "y", rows), ("y", "x", columns)):
        for at in range(1, len(groups)):
            if groups[at] != groups[at - 1]:
                first, last = ends[along]
                spots = {f"{across}0": at - 0.5, f"{across}1": at - 0.5}
                spots |= {f"{along}0": first, f"{along}1": last}
                found.append({"type": "line", "xref": "x", "yref": "y", "line": line, **spots})
    return found


def _ticks(tokens: Sequence[Any]) -> dict[str, Any]:
    step = tick_step(len(tokens))
    names = labels(tokens) if step == 1 else _names(tokens)
    return {
        "tickmode": "array",
        "tickvals": list(range(0, len(tokens), step)),
        "ticktext": names[::step],
        "tickfont": {"family": MONO, "size": 11},
        "categoryorder": "array",
        "categoryarray": _names(tokens),
    }


def bar_length(page: dict[str, Any]) -> float:
    inner = page["height"] - page["margin"]["t"] - page["margin"]["b"]
    return round(max(90, min(inner, 240)))


def _numbered(letter: str, number: int) -> str:
    return letter if number == 1 else f"{letter}{number}"


def grid_layout(
    theme: str,
    title: str,
    queries: Sequence[Any],
    keys: Sequence[Any],
    size: float,
    hidden: Array,
    only: Array,
) -> dict[str, Any]:
    look = colours(theme)
    layers, heads, n, m = hidden.shape
    gap = 8
    wide, high = max(48, size * min(1, m / n)), max(24, size * min(1, n / m))
    across, down = heads * (wide + gap) - gap, layers * (high + gap) - gap
    margin: dict[str, float] = {"l": 66, "r": 116, "t": 62, "b": 34}
    width = max(across + 182, text_width(title, 16.5) + 16)
    margin["r"] = width - across - margin["l"]
    page = layout(look, title, width=width, height=down + 96, margin=margin)
    for head in range(heads):
        left = head * (wide + gap) / across
        page[f"xaxis{_count(head)}"] = _small_axis(
            look, keys, [-0.5, m - 0.5], left, left + wide / across, head, "x"
        )
    for layer in range(layers):
        top = 1 - layer * (high + gap) / down
        page[f"yaxis{_count(layer)}"] = _small_axis(
            look, queries, [n - 0.5, -0.5], top - high / down, top, layer, "y"
        )
    page["images"] = [
        hatching(hidden[i, j], _numbered("x", j + 1), _numbered("y", i + 1), theme, only=only[i, j])
        for i, j in np.ndindex(layers, heads)
        if hidden[i, j].any()
    ]
    parts = ["rows: queries", "columns: keys"] + ["hatched: masked"] * bool(page["images"])
    parts += ["framed: only key, always 1"] * bool(only.any())
    page["annotations"] = _grid_notes(look, layers, heads, wide, high, gap)
    page["annotations"] += _caption(page, look, parts)
    return page


def _caption(page: dict[str, Any], look: Theme, parts: Sequence[str]) -> list[dict[str, Any]]:
    """The caption below the maps, in lines that end before the bar, and room for them."""
    margin = page["margin"]
    down = page["height"] - margin["t"] - margin["b"]
    across = page["width"] - margin["l"] - margin["r"]
    out = 8 - margin["l"]  # a caption of several lines begins at the edge of the page
    room = across - out + (4 if down < 200 else margin["r"] - 16)
    lines = [" · ".join(parts)]
    if text_width(lines[0], _CAPTION) > room + out:
        lines = [parts[0]]
        for part in parts[1:]:
            if text_width(f"{lines[-1]} · {part}", _CAPTION) <= room:
                lines[-1] += f" · {part}"
            else:
                lines.append(part)
    more = 15 * (len(lines) - 1)
    margin["b"] += more
    page["height"] += more
    page["title"]["y"] = 1 - 18 / page["height"]
    place = {"xanchor": "left", "yanchor": "top", "xshift": out if more else 0}
    return [note(look, line, 0, 0, yshift=-8 - 15 * at, **place) for at, line in enumerate(lines)]


def _small_axis(
    look: Theme,
    tokens: Sequence[Any],
    ends: list[float],
    start: float,
    end: float,
    place: int,
    letter: str,
) -> dict[str, Any]:
    """An axis of one row or column of small maps; all of them zoom together."""
    return bare_axis(
        look,
        type="category",
        categoryorder="array",
        categoryarray=_names(tokens),
        range=ends,
        domain=_domain(start, end),
        anchor="y" if letter == "x" else "x",
        **({"matches": letter} if place else {}),
    )


def _count(place: int) -> str:
    return str(place + 1) if place else ""


def _domain(start: float, end: float) -> list[float]:
    return [round(max(0.0, start), 5), round(min(1.0, end), 5)]


def _grid_notes(
    look: Theme, layers: int, heads: int, wide: float, high: float, gap: float
) -> list[dict[str, Any]]:
    inner = heads * (wide + gap) - gap, layers * (high + gap) - gap
    columns = [
        note(
            look,
            f"head {head}" if wide > 46 else str(head),
            (head * (wide + gap) + wide / 2) / inner[0],
            1,
            xanchor="center",
            yanchor="bottom",
            yshift=3,
        )
        for head in range(heads)
    ]
    rows = [
        note(
            look,
            f"layer {layer}",
            0,
            1 - (layer * (high + gap) + high / 2) / inner[1],
            xanchor="right",
            yanchor="middle",
            xshift=-6,
        )
        for layer in range(layers)
    ]
    return [*columns, *rows]
