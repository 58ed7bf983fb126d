"""Measured costs, against the length and against scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.figures.arguments import check_list, check_mapping, check_number, check_texts
from attnlab.figures.arrays import Array, numbers
from attnlab.figures.curves import (
    curve_layout,
    label_ends,
    packed,
    padded,
    series_style,
    value_axis,
    whole_number,
)
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import colours, theme_name

Spent = tuple[float, Sequence[float]]


def cost_curves(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    quantity: str,
    title: str,
    length: str = "sequence length n (tokens)",
    letter: str = "n",
    exponents: Mapping[str, float] | None = None,
    theme: str | None = None,
) -> Picture:
    """Measured costs against n, both axes logarithmic, one marker shape per series.

    ``series`` maps a name to pairs (n, cost); ``quantity`` names the cost with its unit ("time
    (ms)"). A straight line of slope 2 is a cost that grows with n². The legend shows each slope:
    the one given in ``exponents``, or else the least-squares slope through all points of a series
    that has at least two lengths ({} shows none). If the cost is measured against another size,
    such as the head width, name that size in ``length`` and ``letter``.
    """
    check_texts(quantity=quantity, title=title, length=length, letter=letter)
    series = check_mapping("series", series, '{"full": [(64, 1.5), (128, 6.1)]}')
    if exponents is not None:
        exponents = check_mapping("exponents", exponents, '{"full": 2.0}', may_be_empty=True)
        exponents = {name: check_number(name, slope) for name, slope in exponents.items()}
    points = {name: _pairs(name, pairs) for name, pairs in series.items()}
    if exponents is not None and set(exponents) - set(points):
        raise ValueError(f"`exponents` names {sorted(set(exponents) - set(points))}, not a series")
    slopes = {name: _slope(name, pairs, exponents) for name, pairs in points.items()}
    theme = theme_name(theme)
    look = colours(theme)
    names = [_with_slope(name, slope, letter) for name, slope in slopes.items()]
    traces = [
        go.Scatter(
            x=packed(pairs[:, 0]),
            y=packed(pairs[:, 1]),
            name=name,
            mode="lines+markers",
            hovertemplate=f"{letter} = %{{x:,}}<br>{escaped(quantity)} %{{y:.4~g}}",
            **series_style(place),
        )
        for place, (name, pairs) in enumerate(zip(names, points.values(), strict=True))
    ]
    together = np.concatenate(list(points.values()))
    page = curve_layout(
        look,
        title,
        xaxis=axis(look, length, range=padded(together[:, 0], log=True), **_powers(together)),
        yaxis=axis(look, quantity, **value_axis(together[:, 1], log=True)),
        names=names,
    )
    label_ends(page, look, {escaped(name): float(p[-1, 1]) for name, p in points.items()})
    rows = [
        {"series": name, letter: whole_number(n), quantity: float(cost)}
        for name, pairs in points.items()
        for n, cost in pairs
    ]
    description = _cost_description(title, quantity, letter, points, slopes)
    return Picture(traces, page, description=description, rows=rows, theme=theme)


def _pairs(name: str, pairs: Sequence[tuple[float, float]]) -> Array:
    array = numbers(f"series {name}", pairs, "points pair")
    if array.shape[1] != 2:
        raise ValueError(f"series {name!r} must hold pairs (n, cost), got {array.shape[1]} numbers")
    if (array <= 0).any():
        raise ValueError(f"series {name!r} has a value of 0 or below, which no log axis can show")
    return array[np.argsort(array[:, 0], kind="stable")]


def _slope(name: str, pairs: Array, exponents: Mapping[str, float] | None) -> float | None:
    if exponents is not None:
        return exponents.get(name)
    if len(np.unique(pairs[:, 0])) < 2:
        return None
    # Two digits are shown; adding 0.0 turns -0.0 into 0.0.
    return round(float(np.polyfit(np.log(pairs[:, 0]), np.log(pairs[:, 1]), 1)[0]), 2) + 0.0


def _with_slope(name: str, slope: float | None, letter: str) -> str:
    return escaped(name) + ("" if slope is None else f"  ∝ {letter}<sup>{slope:.2f}</sup>")


def _powers(together: Array) -> dict[str, Any]:
    """Ticks at the lengths that were measured, thinned where they would touch."""
    lengths = np.unique(together[:, 0])
    kept: list[float] = []
    room = np.log10(lengths[-1] / lengths[0]) / 10
    for value in lengths[::-1]:
        if not kept or np.log10(kept[-1] / value) >= room:
            kept.append(float(value))
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": kept[::-1],
        "ticktext": [f"{whole_number(value):,}" for value in kept[::-1]],
    }


def _cost_description(
    title: str,
    quantity: str,
    letter: str,
    points: Mapping[str, Array],
    slopes: Mapping[str, float | None],
) -> str:
    sentences = [f"{title}. {quantity} against {letter}, both axes logarithmic."]
    for name, pairs in points.items():
        grows = (
            ""
            if slopes[name] is None
            else f", growing like {letter} to the power {slopes[name]:.2f}"
        )
        (first, cost), (last, end) = pairs[0], pairs[-1]
        sentences.append(
            f"{name}: {cost:.3g} at {letter} = {whole_number(first):,}, "
            f"{end:.3g} at {letter} = {whole_number(last):,}{grows}."
        )
    return " ".join(sentences)


def trade_off(
    points: Mapping[str, Spent | Sequence[Spent]],
    *,
    cost: str,
    score: str,
    title: str,
    theme: str | None = None,
) -> Picture:
    """Score against cost: a small mark for each seed, a large one for their mean.

    ``points`` maps a name to (cost, one score per seed), or to several of these, in order of cost:
    sizes of one thing, joined by a line. ``cost`` and ``score`` name the axes with their units.
    """
    check_texts(cost=cost, score=score, title=title)
    points = check_mapping("points", points, '{"full": (128, [0.9, 0.8])}')
    sizes = {name: _sizes(name, given) for name, given in points.items()}
    theme = theme_name(theme)
    look = colours(theme)
    traces = [
        trace
        for place, (name, got) in enumerate(sizes.items())
        for trace in _sizes_traces(place, name, got, cost, score)
    ]
    every = [size for got in sizes.values() for size in got]
    costs = np.array([spent for spent, _ in every])
    scores = np.concatenate([values for _, values in every])
    page = curve_layout(
        look,
        title,
        xaxis=axis(look, cost, range=padded(costs, log=False)),
        yaxis=axis(look, score, range=padded(scores, log=False)),
        names=list(points),
    ) | {"hovermode": "closest"}
    table: list[Row] = [
        {
            "name": name,
            cost: whole_number(spent),
            score: round(float(values.mean()), 4),
            "smallest": round(float(values.min()), 4),
            "largest": round(float(values.max()), 4),
            "seeds": len(values),
        }
        for name, got in sizes.items()
        for spent, values in got
    ]
    means = "; ".join(f"{row['name']}: {row[score]} at {row[cost]:,}" for row in table)
    description = f"{title}. {score} against {cost}, means over seeds. {means}."
    return Picture(traces, page, description=description, rows=table, theme=theme)


def _sizes(name: str, given: Spent | Sequence[Spent]) -> list[tuple[float, Array]]:
    """The cost of each size of what is called ``name``, and its scores."""
    several = check_list(name, given)
    several = several if several and isinstance(several[0], Sequence) else [several]
    found = []
    for pair in several:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"{name!r} must hold (cost, scores) or several of these, got {pair!r}")
        spent, scores = check_number(f"{name}: cost", pair[0]), pair[1]
        found.append((float(spent), numbers(f"{name}: scores", scores, "seeds")))
    return found


def _sizes_traces(
    place: int, name: str, sizes: list[tuple[float, Array]], cost: str, score: str
) -> list[go.Scatter]:
    style = series_style(place)
    hover = f"{escaped(cost)} %{{x:,}}<br>{escaped(score)} %{{y:.4~g}}"
    means = go.Scatter(
        x=[spent for spent, _ in sizes],
        y=[float(values.mean()) for _, values in sizes],
        name=escaped(name),
        mode="lines+markers" if len(sizes) > 1 else "markers",
        hovertemplate=hover,
        line=style["line"],
        marker={**style["marker"], "size": 11},
        legendgroup=name,
    )
    if all(len(values) == 1 for _, values in sizes):
        return [means]
    seeds = go.Scatter(
        x=np.concatenate([np.full(len(values), spent) for spent, values in sizes]),
        y=np.concatenate([values for _, values in sizes]),
        name=escaped(name),
        mode="markers",
        hovertemplate=f"one seed<br>{hover}",
        marker={**style["marker"], "size": 5, "opacity": 0.75},
        showlegend=False,
        legendgroup=name,
    )
    return [seeds, means]
