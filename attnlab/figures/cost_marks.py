"""What is drawn beside measured costs: spreads, claimed growth, fitted slopes, crossovers, limits.

Each function gives traces; those with a name stand in the legend.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_list, check_mapping, check_number, check_positive
from attnlab.core.arrays import Array
from attnlab.core.growths import GROWTHS
from attnlab.core.suggest import choose
from attnlab.figures.curves import packed, series_style, whole_number
from attnlab.figures.labels import escaped
from attnlab.figures.theme import SERIES, Theme, rgb

Claim = str | float
Place = float | Sequence[float]


def of_series(
    name: str, given: object, series: Mapping[str, Any], example: str
) -> Mapping[str, Any]:
    """A mapping from names of ``series``; none where nothing is given."""
    if given is None:
        return {}
    found = check_mapping(name, given, example, may_be_empty=True)
    if strangers := sorted(set(found) - set(series)):
        raise ValueError(f"`{name}` names {strangers}, not a series")
    return found


def interval_of(name: str, given: object) -> tuple[float, float]:
    """The smallest and largest exponent of a fit."""
    ends = [check_number(name, end) for end in check_list(name, given)]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise ValueError(f"`{name}` should be (lowest, highest) exponent, got {given!r}")
    return ends[0], ends[1]


def place_of(name: str, given: object) -> tuple[float, float, float]:
    """A length with its interval, (n, low, high); of a number alone, that number three times."""
    if isinstance(given, int | float):
        given = (given,) * 3
    ends = [check_positive(name, end) for end in check_list(name, given)]
    if len(ends) != 3 or not ends[1] <= ends[0] <= ends[2]:
        raise ValueError(f"`{name}` should be n or (n, low, high) with n between, got {given!r}")
    return ends[0], ends[1], ends[2]


def claimed(name: str, claim: Claim, points: Array, place: int, letter: str) -> go.Scatter:
    """A line of the claimed growth, as high as the points are on the geometric mean."""
    if isinstance(claim, str):
        grows, said = choose("claim", claim, GROWTHS), claim.replace("n", letter)
    else:
        power = check_number(f"claim of {name}", claim)
        grows, said = (lambda n: n**power), f"{letter}<sup>{power:g}</sup>"
    n = points[:, 0]
    if isinstance(claim, str) and "log" in claim and n[0] <= 1:
        raise ValueError(f"{name!r} has a point at {letter} = 1, where {said} is 0; leave it out")
    height = np.exp(np.mean(np.log(points[:, 1]) - np.log(grows(n))))
    look = {"color": SERIES[place % len(SERIES)], "width": 1.5, "dash": "dot"}
    return _line(n, height * grows(n), f"{escaped(name)}: claimed ∝ {said}", look)


def fitted(name: str, ends: tuple[float, float], points: Array, place: int) -> go.Scatter:
    """The band between the lowest and the highest slope, through the middle of the points."""
    x, y = np.log(points[:, 0]), np.log(points[:, 1])
    around = np.array([x.min(), x.mean(), x.max()])
    slopes = np.array(ends)[:, None] * (around - x.mean())
    low, high = np.exp(y.mean() + slopes.min(0)), np.exp(y.mean() + slopes.max(0))
    red, green, blue = rgb(SERIES[place % len(SERIES)])
    return go.Scatter(
        x=packed(np.exp(np.r_[around, around[::-1]])),
        y=packed(np.r_[high, low[::-1]]),
        mode="lines",
        line={"width": 0, "color": SERIES[place % len(SERIES)]},
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.22)",
        hoverinfo="skip",
        showlegend=False,
        name=f"{escaped(name)}: fitted slopes",
    )


def spread(name: str, points: Array, place: int) -> go.Scatter:
    """From the lower to the upper end of each measurement."""
    gap = np.full(len(points), np.nan)
    line = {**series_style(place)["line"], "width": 1.5, "dash": "solid"}
    return _line(
        np.c_[points[:, 0], points[:, 0], gap].ravel(),
        np.c_[points[:, 2:], gap].ravel(),
        f"{escaped(name)}: spread",
        line,
    ).update(showlegend=False)


def crossing(
    said: str, place: tuple[float, float, float], heights: Array, look: Theme
) -> list[Any]:
    """A vertical line where two curves meet, with the interval of that length."""
    n, low, high = place
    ends = np.array([heights.min(), heights.max()])
    style = {"color": look.quiet, "width": 1.5, "dash": "longdash"}
    line = _line(np.full(2, n), ends, f"{escaped(said)}: {summary_of(place)}", style)
    if low == high:
        return [line]
    box = go.Scatter(
        x=[low, high, high, low],
        y=packed(np.repeat(ends, 2)),
        mode="lines",
        line={"width": 0, "color": look.quiet},
        fill="toself",
        fillcolor="rgba(128,128,128,0.16)",
        hoverinfo="skip",
        showlegend=False,
        name=f"{escaped(said)}: interval",
    )
    return [box, line]


def limit(said: str, height: float, lengths: Array, look: Theme) -> go.Scatter:
    """A horizontal line at a cost that must not be passed."""
    line = {"color": look.ink, "width": 1.5, "dash": "dash"}
    ends = np.array([lengths.min(), lengths.max()])
    return _line(ends, np.full(2, height), escaped(said), line)


def _line(x: Array, y: Array, name: str, line: dict[str, Any]) -> go.Scatter:
    return go.Scatter(
        x=packed(x), y=packed(y), name=name, mode="lines", line=line, hoverinfo="skip"
    )


def summary_of(place: tuple[float, float, float]) -> str:
    """A length and its interval: 1,900 (1,500 to 2,400)."""
    n, low, high = map(_shown, place)
    return n if low == high else f"{n} ({low} to {high})"


def _shown(n: float) -> str:
    """A length in at most three digits."""
    return f"{whole_number(float(f'{n:.3g}')):,}"
