"""Scores of several trainings: a panel per task, a row per model, a dot per seed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_limits, check_mapping, check_texts
from attnlab.core.arrays import Array, numbers
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis, label_width, layout, note, text_width
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import SERIES, colours, theme_name

NARROW, WIDE, GAP, LINE = 96, 420, 14, 30
PAGE = 720

Scores = Mapping[str, Mapping[str, Sequence[float]]]


def score_dots(
    scores: Scores,
    *,
    title: str,
    quantity: str = "right answers (%)",
    limits: tuple[float, float] | None = None,
    theme: str | None = None,
) -> Picture:
    """Each score as a small dot, their mean as a diamond, a line from the smallest to the largest.

    ``scores`` maps a panel (a task) to rows (a model) to one number per seed. All panels have the
    rows of the first, in its order; a row that a panel lacks stays empty. Each panel has its own
    scale unless ``limits`` gives one to all.
    """
    check_texts(title=title, quantity=quantity)
    example = '{"copying": {"full": [0.9, 0.8]}}'
    for panel, rows in check_mapping("scores", scores, example).items():
        check_mapping(panel, rows, '{"full": [0.9, 0.8]}')
    names = list(next(iter(scores.values())))
    panels = {
        panel: {row: numbers(f"{panel}, {row}", values, "seeds") for row, values in rows.items()}
        for panel, rows in scores.items()
    }
    unknown = {row for rows in panels.values() for row in rows} - set(names)
    if unknown:
        raise ValueError(f"{sorted(unknown)} stand in no row of the first panel: {names}")
    theme = theme_name(theme)
    look = colours(theme)
    left = 24 + round(max(label_width(escaped(name)) for name in names))
    panel_width = _panel_width(len(panels), left)
    wide = len(panels) * panel_width + (len(panels) - 1) * GAP
    full = max(left + wide + 24, text_width(escaped(title), 16.5) + 16)
    page = layout(
        look,
        title,
        width=full,
        height=118 + LINE * len(names),
        margin={"l": left, "r": full - left - wide, "t": 66, "b": 52},
    )
    traces: list[go.Scatter] = []
    page["annotations"] = []
    for place, (panel, rows) in enumerate(panels.items()):
        start = place * (panel_width + GAP) / wide
        number = "" if place == 0 else str(place + 1)
        page[f"xaxis{number}"] = axis(
            look,
            quantity if place == len(panels) // 2 else "",
            range=_range(rows.values(), limits),
            domain=[start, start + panel_width / wide],
            anchor=f"y{number}",
            nticks=3 if panel_width < 150 else 6,
        )
        page[f"yaxis{number}"] = axis(
            look,
            range=[len(names) - 0.5, -0.5],
            tickmode="array",
            tickvals=list(range(len(names))),
            ticktext=[escaped(name) for name in names] if place == 0 else [""] * len(names),
            anchor=f"x{number}",
            ticks="",
        )
        page["annotations"].append(
            note(look, f"<b>{escaped(panel)}</b>", start, 1, xanchor="left", yanchor="bottom")
        )
        traces += _panel(rows, names, f"x{number}", f"y{number}")
    table = _rows(panels)
    return Picture(
        traces, page, description=_description(title, quantity, table), rows=table, theme=theme
    )


def _panel_width(count: int, left: int) -> float:
    """Narrower for more panels, so that the figure is about as wide as others."""
    room = (PAGE - left - 24 - (count - 1) * GAP) / count
    return min(max(room, NARROW), WIDE)


def _range(rows: Any, limits: tuple[float, float] | None) -> list[float]:
    values = np.concatenate(list(rows))
    low, high = float(values.min()), float(values.max())
    if limits is not None:
        limits = check_limits(limits)
        if not limits[0] <= low <= high <= limits[1]:
            raise ValueError(f"`limits` {limits} leave out scores, which go from {low} to {high}")
        room = 0.04 * (limits[1] - limits[0])
        return [limits[0] - room, limits[1] + room]
    room = max(0.12 * (high - low), 0.5)
    return [low - room, high + room]


def _panel(rows: Mapping[str, Array], names: list[str], x: str, y: str) -> list[go.Scatter]:
    bars: tuple[list[float], list[float]] = ([], [])
    seeds: tuple[list[float], list[float]] = ([], [])
    means: tuple[list[float], list[float]] = ([], [])
    for row, values in rows.items():
        at, mean = float(names.index(row)), float(values.mean())
        bars[0].extend((float(values.min()), float(values.max()), math.nan))
        bars[1].extend((at, at, math.nan))
        seeds[0].extend(values.tolist())
        seeds[1].extend(at + 0.24 for _ in values)
        means[0].append(mean)
        means[1].append(at)
    shared = {"xaxis": x, "yaxis": y, "showlegend": False}
    return [
        go.Scatter(
            x=bars[0],
            y=bars[1],
            mode="lines",
            line={"color": SERIES[0], "width": 3},
            hoverinfo="skip",
            **shared,
        ),
        go.Scatter(
            x=seeds[0],
            y=seeds[1],
            mode="markers",
            marker={"color": SERIES[4], "size": 5, "symbol": "circle"},
            hovertemplate="one seed: %{x:.4~g}<extra></extra>",
            **shared,
        ),
        go.Scatter(
            x=means[0],
            y=means[1],
            mode="markers",
            marker={"color": SERIES[1], "size": 9, "symbol": "diamond"},
            hovertemplate="mean %{x:.4~g}<extra></extra>",
            **shared,
        ),
    ]


def _rows(panels: Mapping[str, Mapping[str, Array]]) -> list[Row]:
    values = np.concatenate([got for rows in panels.values() for got in rows.values()])
    digits = 1 if np.abs(values).max() >= 10 else 3
    return [
        {
            "task": panel,
            "model": row,
            "mean": round(float(values.mean()), digits),
            "smallest": round(float(values.min()), digits),
            "largest": round(float(values.max()), digits),
            "seeds": len(values),
        }
        for panel, rows in panels.items()
        for row, values in rows.items()
    ]


def _description(title: str, quantity: str, table: list[Row]) -> str:
    sentences = [f"{title}. {quantity}: a panel per task, means over seeds."]
    for panel in dict.fromkeys(row["task"] for row in table):
        rows = sorted((r for r in table if r["task"] == panel), key=lambda r: -r["mean"])
        best, worst = rows[0], rows[-1]
        sentences.append(
            f"{panel}: from {worst['model']} with {worst['mean']:g} to {best['model']} with "
            f"{best['mean']:g}."
        )
    return " ".join(sentences)
