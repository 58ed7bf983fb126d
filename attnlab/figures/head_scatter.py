"""All heads of a model as points: two numbers of each over a corpus, and how far they spread."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_mapping, check_texts
from attnlab.core.arrays import Array, numbers
from attnlab.figures.curves import curve_layout, padded, series_style
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis, label_width
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import Theme, colours, theme_name

Values = Sequence[float] | float
POINT = 5.0  # pixels: half the width of a point


def head_scatter(
    heads: Mapping[str, tuple[Values, Values]],
    *,
    across: str,
    up: str,
    title: str,
    kinds: Mapping[str, str] | None = None,
    theme: str | None = None,
) -> Picture:
    """A point for each head at the medians of two statistics, with its name beside it where there
    is room.

    ``heads`` maps a name, such as "1.0", to two statistics, each one number or one for each text:
    thin lines then go from the first to the ninth decile of the texts, so that a head that does the
    same in every text is a point, and one that works in some texts alone is a cross with long arms.
    NaN, as of a text that says nothing about the statistic, is left out; a head without any number
    has no point, and the picture says so. ``kinds`` maps names to kinds of heads, which differ by
    colour and by symbol. ``across`` and ``up`` name the axes.
    """
    check_texts(title=title, across=across, up=up)
    given = check_mapping("heads", heads, '{"0.1": ([0.9, 0.7], [0.1, 0.2])}')
    points = {name: _both(name, pair) for name, pair in given.items()}
    known = {} if kinds is None else check_mapping("kinds", kinds, '{"0.1": "induction"}')
    check_texts(**{f"kind of {name}": kind for name, kind in known.items()})
    if missing := [name for name in points if known and name not in known]:
        raise ValueError(f"`kinds` should have the kind of every head, and lacks {missing}")
    placed = {name: both for name, both in points.items() if all(len(each) for each in both)}
    if not placed:
        raise ValueError("`heads` has no head with a number for both axes")
    theme = theme_name(theme)
    look = colours(theme)
    groups = {name: known.get(name, "heads") for name in placed}
    traces = [_arms(look, placed)]
    for place, kind in enumerate(dict.fromkeys(groups.values())):
        own = {name: both for name, both in placed.items() if groups[name] == kind}
        traces.append(_points(place, kind, own))
    every = [
        np.concatenate([_deciles(both[axis_]) for both in placed.values()]) for axis_ in (0, 1)
    ]
    page = curve_layout(
        look,
        title,
        xaxis=axis(look, across, range=padded(every[0], log=False)),
        yaxis=axis(look, up, range=padded(every[1], log=False)),
        names=[*map(escaped, dict.fromkeys(groups.values()))],
    ) | {"hovermode": "closest"}
    traces.append(_names(look, page, placed))
    return Picture(
        traces,
        page,
        description=_description(title, across, up, placed, groups, len(points) - len(placed)),
        rows=[_row(name, across, up, placed[name], groups[name]) for name in placed],
        theme=theme,
    )


def _both(name: str, pair: tuple[Values, Values]) -> tuple[Array, Array]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise TypeError(f"head {name!r} should have two statistics, as ([0.9, 0.7], [0.1, 0.2])")
    across, up = (_values(name, values) for values in pair)
    return across, up


def _values(name: str, values: Values) -> Array:
    """The numbers that are known."""
    one = isinstance(values, int | float) and not isinstance(values, bool)
    given: Any = [values] if one else values
    try:
        known = [value for value in given if not math.isnan(value)]
    except TypeError as error:
        raise TypeError(f"head {name!r} should have numbers as statistics, {error}") from None
    return numbers(f"heads, {name}", known, "texts") if known else np.zeros(0)


def _deciles(values: Array) -> Array:
    """The first decile, the median and the ninth."""
    return np.quantile(values, (0.1, 0.5, 0.9))


def _arms(look: Theme, placed: Mapping[str, tuple[Array, Array]]) -> go.Scatter:
    x: list[float] = []
    y: list[float] = []
    for across, up in placed.values():
        (left, middle, right), (low, centre, high) = _deciles(across), _deciles(up)
        x += [left, right, math.nan, middle, middle, math.nan]
        y += [centre, centre, math.nan, low, high, math.nan]
    line = {"color": look.quiet, "width": 1}
    return go.Scatter(x=x, y=y, mode="lines", line=line, showlegend=False, hoverinfo="skip")


def _points(place: int, kind: str, own: Mapping[str, tuple[Array, Array]]) -> go.Scatter:
    return go.Scatter(
        x=[float(np.median(across)) for across, _ in own.values()],
        y=[float(np.median(up)) for _, up in own.values()],
        mode="markers",
        name=escaped(kind),
        text=[f" {escaped(name)}" for name in own],
        marker={**series_style(place)["marker"], "size": 9},
        hovertemplate="head%{text}: %{x:.3~g}, %{y:.3~g}<extra></extra>",
    )


def _names(
    look: Theme, page: Mapping[str, Any], placed: Mapping[str, tuple[Array, Array]]
) -> go.Scatter:
    """The name of each head beside its point, where it covers no other point and no other name;
    in a crowd without room it is left out, and stands in the table and under the pointer."""
    room = (
        page["width"] - page["margin"]["l"] - page["margin"]["r"],
        page["height"] - page["margin"]["t"] - page["margin"]["b"],
    )
    units = [
        float(np.ptp(page[axis_]["range"])) / size
        for axis_, size in zip(("xaxis", "yaxis"), room, strict=True)
    ]
    points = [
        (float(np.median(across)) / units[0], float(np.median(up)) / units[1])
        for across, up in placed.values()
    ]
    taken = [(x, y, POINT, POINT) for x, y in points]
    found: list[tuple[str, float, float]] = []
    for name, (x, y) in zip(placed, points, strict=True):
        wide, high = label_width(escaped(name), 10) / 2, 6.0
        for side, above in ((0, 1), (1, 0), (-1, 0), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
            at = (x + side * (wide + POINT + 2), y + above * (high + POINT + 1), wide, high)
            if not any(_overlap(at, other) for other in taken):
                taken.append(at)
                found.append((escaped(name), at[0] * units[0], at[1] * units[1]))
                break
    return go.Scatter(
        x=[x for _, x, _ in found],
        y=[y for _, _, y in found],
        mode="text",
        text=[name for name, _, _ in found],
        textfont={"color": look.ink, "size": 10},
        showlegend=False,
        hoverinfo="skip",
    )


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Whether two boxes (middle x, middle y, half width, half height) in pixels have an area in
    common."""
    return abs(a[0] - b[0]) < a[2] + b[2] and abs(a[1] - b[1]) < a[3] + b[3]


def _row(name: str, across: str, up: str, both: tuple[Array, Array], kind: str) -> Row:
    row: Row = {"head": name, "kind": kind}
    for axis_name, values in ((across, both[0]), (up, both[1])):
        low, middle, high = (round(float(each), 3) for each in _deciles(values))
        row = {**row, axis_name: middle, f"{axis_name}, 10 % to 90 %": f"{low:g} to {high:g}"}
    return row


def _description(
    title: str, across: str, up: str, placed: Mapping[str, tuple[Array, Array]],
    groups: Mapping[str, str], absent: int,
) -> str:  # fmt: skip
    sentences = [f"{title}. {len(placed)} heads, {up} against {across}, medians over the texts."]
    for word, values in ((across, 0), (up, 1)):
        medians = {name: float(np.median(both[values])) for name, both in placed.items()}
        best = max(medians, key=lambda name: medians[name])
        spread = {name: float(np.ptp(_deciles(both[values]))) for name, both in placed.items()}
        widest = max(spread, key=lambda name: spread[name])
        said = f"{word}: largest in head {best} ({groups[best]}), {medians[best]:.3g}"
        far = f"; spread most over the texts in head {widest}, by {spread[widest]:.3g}"
        sentences.append(said + (far if spread[widest] > 0 else "") + ".")
    if absent:
        are = "1 head has" if absent == 1 else f"{absent} heads have"
        sentences.append(f"{are} no number for one of the axes, and no point.")
    return " ".join(sentences)
