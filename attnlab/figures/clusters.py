"""Points of the plane and the clusters found among them: a column per set, a row per method."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_grid_names, check_mapping, check_texts
from attnlab.core.arrays import Array, numbers
from attnlab.figures.labels import escaped
from attnlab.figures.layout import bare_axis, label_width, layout, note, text_width
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import SERIES, Theme, colours, theme_name

MOST_PANELS, MOST_POINTS, MOST_CLUSTERS = 24, 20_000, 400
DEVIATIONS = 2  # an ellipse holds 86 % of its Gaussian
_SIDE, _GAP = 150, 8
_CORNERS = np.linspace(0, 2 * math.pi, 33)


def cluster_grid(
    points: Any,
    found: Mapping[str, Any],
    *,
    true: Any,
    title: str,
    columns: Sequence[str] = (),
    theme: str | None = None,
) -> Picture:
    """Points (columns, n, 2), and an ellipse at two standard deviations around each cluster.

    ``true`` holds the clusters that the points came from, (columns, k, 4): x and y of the centre,
    then the standard deviations along x and y. ``found`` maps the name of a row to the clusters
    that one method found, of the same form; the number of clusters may differ.
    """
    check_texts(title=title)
    points = numbers("points", points, "columns n pair")
    _refuse_unlike("points", points, len(points), 2)
    drawn = {"true": numbers("true", true, "columns clusters four")}
    rows = check_mapping("found", found, '{"after training": clusters}')
    drawn |= {f"found: {row}": numbers(row, each, "columns k four") for row, each in rows.items()}
    for name, clusters in drawn.items():
        _refuse_unlike(name, clusters, len(points), 4)
        if (clusters[..., 2:] <= 0).any():
            raise ValueError(f"`{name}` has a standard deviation that is not above 0")
    _refuse_many(points, drawn)
    _, columns = check_grid_names("points", (len(rows), len(points)), list(rows), columns)
    theme = theme_name(theme)
    look = colours(theme)
    true_ones, *others = drawn.values()
    traces = [
        trace
        for down, clusters in enumerate(others)
        for across in range(len(points))
        for trace in _panel(
            points[across], true_ones[across], clusters[across], down * len(points) + across, look
        )
    ]
    table = _table(points, dict(zip(rows, others, strict=True)), columns)
    return Picture(
        traces,
        _page(look, title, list(rows), columns, len(points), _limits(points, drawn)),
        description=_description(title, points, table),
        rows=table,
        theme=theme,
    )


def _refuse_unlike(name: str, array: Array, columns: int, last: int) -> None:
    if array.shape[0] != columns or array.shape[2] != last:
        wanted = f"({columns}, any number, {last})"
        raise ValueError(f"`{name}` should have shape {wanted}, got {array.shape}")


def _refuse_many(points: Array, drawn: Mapping[str, Array]) -> None:
    panels = len(points) * (len(drawn) - 1)
    clusters = sum(each.shape[0] * each.shape[1] for each in drawn.values())
    if panels > MOST_PANELS or points.size > MOST_POINTS or clusters > MOST_CLUSTERS:
        raise ValueError(
            f"at most {MOST_PANELS} panels, {MOST_POINTS:,} coordinates and {MOST_CLUSTERS} "
            f"clusters have room, got {panels}, {points.size:,} and {clusters:,}"
        )


def _outlines(clusters: Array) -> tuple[Array, Array]:
    """x and y along all ellipses, a NaN after each."""
    x, y, wide, high = (part[:, None] for part in clusters.T)
    gap = np.full((len(clusters), 1), np.nan)
    across = np.hstack([x + DEVIATIONS * wide * np.cos(_CORNERS), gap])
    return across.ravel(), np.hstack([y + DEVIATIONS * high * np.sin(_CORNERS), gap]).ravel()


def _limits(points: Array, drawn: Mapping[str, Array]) -> tuple[float, float, float, float]:
    """Left, right, low and high of the smallest square that shows everything, with some room."""
    ends = [points.reshape(-1, 2)]
    for each in drawn.values():
        flat = each.reshape(-1, 4)
        ends += [flat[:, :2] + sign * DEVIATIONS * flat[:, 2:] for sign in (-1, 1)]
    low, high = np.vstack(ends).min(0), np.vstack(ends).max(0)
    middle, half = (low + high) / 2, 0.53 * float((high - low).max())
    return middle[0] - half, middle[0] + half, middle[1] - half, middle[1] + half


def _panel(
    points: Array, true: Array, found: Array, place: int, look: Theme
) -> list[go.Scatter]:  # fmt: skip
    number = "" if place == 0 else str(place + 1)
    shared = {"xaxis": f"x{number}", "yaxis": f"y{number}", "showlegend": False}
    (true_x, true_y), (found_x, found_y) = _outlines(true), _outlines(found)
    return [
        go.Scatter(
            x=points[:, 0].astype(np.float32),
            y=points[:, 1].astype(np.float32),
            mode="markers",
            marker={"color": SERIES[0], "size": 3, "symbol": "circle"},
            hovertemplate="point %{x:.2f}, %{y:.2f}<extra></extra>",
            **shared,
        ),
        go.Scatter(
            x=true_x.astype(np.float32),
            y=true_y.astype(np.float32),
            mode="lines",
            line={"color": look.quiet, "width": 1.5, "dash": "dot"},
            hoverinfo="skip",
            **shared,
        ),
        go.Scatter(
            x=found_x.astype(np.float32),
            y=found_y.astype(np.float32),
            mode="lines",
            line={"color": SERIES[1], "width": 2},
            hoverinfo="skip",
            **shared,
        ),
    ]


def _page(
    look: Theme, title: str, rows: list[str], columns: Sequence[str], across: int,
    limits: tuple[float, float, float, float],
) -> dict[str, Any]:  # fmt: skip
    down = len(rows)
    left = 20 + max(round(label_width(escaped(row))) for row in rows)
    wide, tall = (count * (_SIDE + _GAP) - _GAP for count in (across, down))
    legend = "dots: points · dotted: true clusters · solid: found, at two standard deviations"
    full = max(left + wide + 20, text_width(title, 16.5) + 16, left + text_width(legend, 11))
    top = 66 if columns else 46
    page = layout(
        look,
        title,
        width=full,
        height=tall + top + 34,
        margin={"l": left, "r": full - left - wide, "t": top, "b": 34},
    )
    page["annotations"] = [
        note(look, legend, 0, 0, xanchor="left", yanchor="top", yshift=-8),
        *(
            note(look, escaped(row), 0, 1 - (at * (_SIDE + _GAP) + _SIDE / 2) / tall)
            | {"xanchor": "right", "yanchor": "middle", "xshift": -8}
            for at, row in enumerate(rows)
        ),
        *(
            note(look, escaped(column), (at * (_SIDE + _GAP) + _SIDE / 2) / wide, 1)
            | {"xanchor": "center", "yanchor": "bottom", "yshift": 2}
            for at, column in enumerate(columns)
        ),
    ]
    for place in range(down * across):
        number = "" if place == 0 else str(place + 1)
        x, y = place % across * (_SIDE + _GAP), place // across * (_SIDE + _GAP)
        page[f"xaxis{number}"] = bare_axis(
            look,
            range=list(limits[:2]),
            domain=[x / wide, (x + _SIDE) / wide],
            anchor=f"y{number}",
            fixedrange=True,
        )
        page[f"yaxis{number}"] = bare_axis(
            look,
            range=list(limits[2:]),
            domain=[1 - (y + _SIDE) / tall, 1 - y / tall],
            anchor=f"x{number}",
            fixedrange=True,
        )
    return page


def _table(
    points: Array, rows: Mapping[str, Array], columns: Sequence[str]
) -> list[Row]:  # fmt: skip
    return [
        {
            "row": row,
            "column": columns[at] if columns else at,
            "clusters": each.shape[1],
            "points inside an ellipse (%)": round(100 * _inside(points[at], each[at]), 1),
        }
        for row, each in rows.items()
        for at in range(len(points))
    ]


def _inside(points: Array, clusters: Array) -> float:
    away = (points[:, None] - clusters[:, :2]) / (DEVIATIONS * clusters[:, 2:])
    return float(((away**2).sum(-1) <= 1).any(1).mean())


def _description(title: str, points: Array, table: list[Row]) -> str:
    shares: dict[str, list[float]] = {}
    for row in table:
        shares.setdefault(str(row["row"]), []).append(float(row["points inside an ellipse (%)"]))
    sentences = [f"{title}. {len(points)} sets of {points.shape[1]} points."]
    for name, values in shares.items():
        mean = sum(values) / len(values)
        sentences.append(f"{name}: {mean:.0f} % of the points lie in an ellipse that was found.")
    return " ".join(sentences)
