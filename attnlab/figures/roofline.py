"""How fast a computation can be on a machine, and how fast it was.

The roofline of Williams, Waterman and Patterson (Communications of the ACM 52:4, 2009): a
computation that does I floating-point operations for every byte that it moves reaches at most
min(peak, I · bandwidth) operations a second.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_list, check_mapping, check_positive, check_texts
from attnlab.figures.curves import curve_layout, packed, series_style, value_axis
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import colours, theme_name

_INTENSITY, _SPEED = "arithmetic intensity (FLOPs per byte)", "speed (GFLOP/s)"


def roofline(
    points: Mapping[str, Sequence[float]],
    *,
    peak: float,
    bandwidth: float,
    title: str,
    theme: str | None = None,
) -> Picture:
    """Measured speeds under the roof of a machine, both axes logarithmic.

    ``points`` maps a name to (FLOPs, bytes moved, seconds) of one call. ``peak`` is in FLOPs and
    ``bandwidth`` in bytes per second, as ``attnlab.measure.peak_rates`` measures them. Left of the
    ridge the memory is the bound, right of it the arithmetic.
    """
    check_texts(title=title)
    peak, bandwidth = check_positive("peak", peak), check_positive("bandwidth", bandwidth)
    points = check_mapping("points", points, '{"full": (2.1e9, 4.2e6, 0.03)}')
    found = {name: _place(name, given) for name, given in points.items()}
    theme = theme_name(theme)
    look = colours(theme)
    ridge = peak / bandwidth
    intensities = np.array([ridge / 4, ridge * 4, *(x for x, _ in found.values())])
    ends = np.array([intensities.min(), intensities.max()])
    across = np.array([ends[0], ridge, ends[1]])
    roof = np.minimum(peak, across * bandwidth) / 1e9
    said = f"the machine: {peak / 1e9:.3g} GFLOP/s, {bandwidth / 1e9:.3g} GB/s"
    line = go.Scatter(
        x=packed(across),
        y=packed(roof),
        name=said,
        mode="lines",
        line={"color": look.ink, "width": 2},
        hoverinfo="skip",
    )
    dots = [
        go.Scatter(
            x=[x],
            y=[y / 1e9],
            name=escaped(name),
            mode="markers",
            marker={**series_style(place)["marker"], "size": 11},
            hovertemplate="%{x:.3~g} FLOPs per byte<br>%{y:.3~g} GFLOP/s",
        )
        for place, (name, (x, y)) in enumerate(found.items())
    ]
    heights = np.r_[roof, [y / 1e9 for _, y in found.values()]]
    page = curve_layout(
        look,
        title,
        xaxis=axis(look, _INTENSITY, **value_axis(ends, log=True)),
        yaxis=axis(look, _SPEED, **value_axis(heights, log=True)),
        names=[said, *found],
    ) | {"hovermode": "closest"}
    rows: list[Row] = [_row(name, x, y, peak, bandwidth) for name, (x, y) in found.items()]
    sentences = " ".join(
        f"{row['name']}: {row[_SPEED]} GFLOP/s at {row[_INTENSITY]} FLOPs per byte, "
        f"{row['of what is possible (%)']} % of what is possible there, where {row['bound']}."
        for row in rows
    )
    description = f"{title}. {_SPEED} against {_INTENSITY}; {said}. {sentences}"
    return Picture([line, *dots], page, description=description, rows=rows, theme=theme)


def _place(name: str, given: Sequence[float]) -> tuple[float, float]:
    """(FLOPs per byte, FLOPs per second) of a call."""
    three = [check_positive(f"points of {name}", one) for one in check_list(name, given)]
    if len(three) != 3:
        raise ValueError(f"{name!r} should be (FLOPs, bytes, seconds), got {len(three)} numbers")
    flops, moved, seconds = three
    return flops / moved, flops / seconds


def _row(name: str, x: float, y: float, peak: float, bandwidth: float) -> dict[str, Any]:
    roof = min(peak, x * bandwidth)
    return {
        "name": name,
        _INTENSITY: float(f"{x:.3g}"),
        _SPEED: float(f"{y / 1e9:.3g}"),
        "of what is possible (%)": float(f"{100 * y / roof:.3g}"),
        "bound": "the memory is the bound"
        if x * bandwidth < peak
        else "the arithmetic is the bound",
    }
