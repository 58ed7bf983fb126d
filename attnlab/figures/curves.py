"""Shared by the figures of curves: styles, layout, ranges and ticks of axes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arrays import Array
from attnlab.figures.labels import escaped
from attnlab.figures.layout import label_width, layout, note, text_width
from attnlab.figures.theme import DASHES, MARKERS, SERIES, Theme, rgb

WIDTH, HEIGHT = 720, 400


def series_style(place: int) -> dict[str, Any]:
    """Colour, dash and marker of the series at this place; all three change together."""
    series = (*SERIES, "#8a5a00")  # the sixth, as in the widgets
    colour = series[place % len(series)]
    round_ = place // len(series)
    return {
        "line": {"color": colour, "width": 2, "dash": DASHES[(place + round_) % len(DASHES)]},
        "marker": {
            "color": colour,
            "size": 8,
            "symbol": MARKERS[(place + round_) % len(MARKERS)],
        },
    }


def spread_band(curve: dict[str, Any], place: int) -> go.Scatter:
    red, green, blue = rgb(SERIES[place % len(SERIES)])
    steps = packed(curve["steps"])
    return go.Scatter(
        x=np.r_[steps, steps[::-1]],
        y=packed(np.r_[curve["high"], curve["low"][::-1]]),
        mode="lines",
        line={"width": 0, "color": SERIES[place % len(SERIES)]},
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.22)",
        hoverinfo="skip",
        showlegend=False,
        name=escaped(f"{curve['name']}: spread"),
    )


def curve_layout(look: Theme, title: str, *, names: list[str], **axes: Any) -> dict[str, Any]:
    """Title, axes and, below them, the legend with one line per curve, so that none is cut off."""
    below = 62 + 20 * len(names)
    return layout(
        look,
        title,
        width=max(WIDTH, text_width(title, 16.5) + 16),
        height=HEIGHT - 60 + below,
        margin={"l": 72, "r": 24, "t": 44, "b": below},
        hovermode="x unified",
        **axes,
    ) | {
        "showlegend": True,
        "legend": {
            "orientation": "v",
            "x": 0,
            "xanchor": "left",
            "y": -54 / (HEIGHT - 104),
            "yanchor": "top",
            "font": {"size": 12, "color": look.ink},
            "bgcolor": "rgba(0,0,0,0)",
        },
    }


def label_ends(page: dict[str, Any], look: Theme, ends: Mapping[str, float]) -> None:
    """Write each name beside the end of its curve, where there are more curves than colours.

    ``ends`` maps an escaped name to the last value of its curve.
    """
    if len(ends) <= len(SERIES):
        return
    inner = page["height"] - page["margin"]["t"] - page["margin"]["b"]
    heights = [_share(page["yaxis"], end) * inner for end in ends.values()]
    page["annotations"] = [
        note(look, name, 1, height / inner) | {"xanchor": "left", "yanchor": "middle", "xshift": 8}
        for name, height in zip(ends, spaced(heights, 14, inner), strict=True)
    ]
    room = round(max(label_width(name, 11) for name in ends)) + 8
    page["width"], page["margin"]["r"] = page["width"] + room, page["margin"]["r"] + room


def spaced(places: list[float], gap: float, most: float) -> list[float]:
    """The places, in order, moved as little as needed to be ``gap`` apart, from 0 to ``most``.

    Neighbours that would overlap form a group around the mean of their places.
    """
    order = sorted(range(len(places)), key=lambda at: places[at])
    groups: list[list[int]] = []
    centres: list[float] = []
    for at in order:
        group, centre = [at], places[at]
        while groups and centres[-1] + (len(groups[-1]) + len(group)) * gap / 2 > centre:
            group = groups.pop() + group
            centres.pop()
            half = (len(group) - 1) * gap / 2
            mean = sum(places[one] for one in group) / len(group)
            centre = max(half, min(mean, most - half))
        groups.append(group)
        centres.append(centre)
    moved = list(places)
    for group, centre in zip(groups, centres, strict=True):
        for rank, at in enumerate(group):
            moved[at] = centre + (rank - (len(group) - 1) / 2) * gap
    return moved


def _share(axis: Mapping[str, Any], value: float) -> float:
    """Where a value lies on an axis, from 0 at its start to 1 at its end."""
    low, high = axis["range"]
    value = math.log10(value) if axis.get("type") == "log" else value
    return float((value - low) / (high - low))


def value_axis(values: Array, *, log: bool) -> dict[str, Any]:
    """Type, range and, on a log axis, ticks: powers of ten, or finer where there are few."""
    ends = padded(values, log=log)
    if not log:
        return {"type": "linear", "range": ends}
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        powers = range(math.floor(ends[0]), math.ceil(ends[1]) + 1)
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if ends[0] <= math.log10(tick) <= ends[1]]
        if len(ticks) >= 4:
            break
    step = -(-len(ticks) // 9)
    return {
        "type": "log",
        "range": ends,
        "tickmode": "array",
        "tickvals": ticks[::step],
        "ticktext": [_tick(tick) for tick in ticks[::step]],
    }


def _tick(value: float) -> str:
    if 1e-3 <= value < 1e5:
        return f"{value:,.10g}"
    power = math.floor(math.log10(value) + 1e-9)
    digit = round(value / 10.0**power)
    return f"{'' if digit == 1 else f'{digit}·'}10<sup>{power}</sup>"


def padded(values: Array, *, log: bool) -> list[float]:
    """The range of an axis with a margin at both ends; as exponents of ten for a log axis."""
    values = np.log10(values) if log else values
    low, high = float(values.min()), float(values.max())
    room = 0.04 * (high - low) or 0.5
    return [low - room, high + room]


def packed(values: Array) -> Array:
    """Single precision: plotly writes numpy arrays as base64, which keeps notebooks small."""
    return values.astype(np.float32)


def whole_number(value: float) -> float | int:
    return int(value) if value == int(value) else float(value)
