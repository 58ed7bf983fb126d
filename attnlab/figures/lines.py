"""Lines on plain axes: a function, the path of a state, branches of fixed points."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_mapping, check_texts
from attnlab.core.arrays import Array, numbers
from attnlab.figures.curves import curve_layout, packed, padded, series_style
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import colours, theme_name


def line_curves(
    series: Mapping[str, Sequence[Sequence[float]]],
    *,
    title: str,
    across: str,
    quantity: str,
    theme: str | None = None,
) -> Picture:
    """``series`` maps a name to pairs (x, y), which a line joins in their order.

    ``across`` names the horizontal axis, ``quantity`` the vertical one. Lines differ in colour and
    dash. Both axes are linear; costs and lengths over powers of ten are ``cost_curves``.
    """
    check_texts(title=title, across=across, quantity=quantity)
    given = check_mapping("series", series, '{"a = 1.5": [(-1, -0.9), (0, 0), (1, 0.9)]}')
    points = {name: _points(name, pairs) for name, pairs in given.items()}
    theme = theme_name(theme)
    look = colours(theme)
    traces = [
        go.Scatter(
            x=packed(pairs[:, 0]),
            y=packed(pairs[:, 1]),
            name=escaped(name),
            mode="lines",
            line=series_style(place)["line"],
            hovertemplate="%{x:.4~g}: %{y:.4~g}",
        )
        for place, (name, pairs) in enumerate(points.items())
    ]
    together = np.concatenate(list(points.values()))
    page = curve_layout(
        look,
        title,
        xaxis=axis(look, across, range=padded(together[:, 0], log=False)),
        yaxis=axis(look, quantity, range=padded(together[:, 1], log=False)),
        names=[*map(escaped, points)],
    )
    page["hovermode"] = "closest"
    rows: list[Row] = [
        {"series": name, across: float(x), quantity: float(y)}
        for name, pairs in points.items()
        for x, y in pairs
    ]
    sentences = [f"{title}. {quantity} against {across}."]
    sentences += [_sentence(name, pairs) for name, pairs in points.items()]
    return Picture(traces, page, description=" ".join(sentences), rows=rows, theme=theme)


def _points(name: str, pairs: Sequence[Sequence[float]]) -> Array:
    points = numbers(f"series {name!r}", pairs, "points 2")
    if points.shape[1] != 2:
        raise ValueError(f"series {name!r} should hold pairs (x, y), got {points.shape[1]} numbers")
    return points


def _sentence(name: str, pairs: Array) -> str:
    (x, y), (last_x, last_y) = pairs[0], pairs[-1]
    low, high = pairs[:, 1].min(), pairs[:, 1].max()
    return (
        f"{name}: from {y:.3g} at {x:.3g} to {last_y:.3g} at {last_x:.3g}, "
        f"between {low:.3g} and {high:.3g}."
    )
