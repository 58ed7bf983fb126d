"""Singular values of attention maps: which share the largest of them hold."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_list, check_mapping, check_number, check_texts
from attnlab.core.arrays import Array, numbers
from attnlab.figures.curves import curve_layout, packed, series_style, spread_band
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import Theme, colours, theme_name


def spectrum_curves(
    series: Mapping[str, Sequence[float] | Array],
    *,
    title: str,
    share: float = 0.9,
    quantity: str = "share of the energy kept",
    theme: str | None = None,
) -> Picture:
    """How much of a map its largest singular values hold: one cumulative curve per layer or head.

    ``series`` maps a name to cumulative shares, the first of the largest direction alone
    (``Spectrum.cumulative()``, averaged over the heads of a layer, say); several rows are
    averaged, and the band reaches from the smallest to the largest. A dotted line marks ``share``;
    the legend says how many directions reach it.
    """
    check_texts(title=title, quantity=quantity)
    series = check_mapping("series", series, '{"layer 0": [0.6, 0.9, 1.0]}')
    if not 0 < check_number("share", share) <= 1:
        raise ValueError(f"`share` is a part of the whole, 0 < share ≤ 1, got {share}")
    curves = [_spectrum_curve(name, values, share) for name, values in series.items()]
    theme = theme_name(theme)
    look = colours(theme)
    traces = [t for place, c in enumerate(curves) for t in _spectrum_traces(c, place)]
    most = max(len(curve["mean"]) for curve in curves)
    traces.append(_level(share, most, look))
    page = curve_layout(
        look,
        title,
        xaxis=axis(look, "directions kept (rank)", range=[0, most * 1.02]),
        yaxis=axis(look, quantity, range=[0, 1.03]),
        names=[curve["name"] for curve in curves],
    )
    rows: list[Row] = [
        {"series": c["run"], "largest alone": float(c["mean"][0]), f"rank for {share:g}": c["rank"]}
        for c in curves
    ]
    sentences = [f"{title}. {quantity} against the number of singular directions kept."]
    sentences += [
        f"{c['run']}: the largest alone holds {c['mean'][0]:.3g}; {_rank_words(c['rank'], share)}."
        for c in curves
    ]
    return Picture(traces, page, description=" ".join(sentences), rows=rows, theme=theme)


def _spectrum_curve(name: str, values: Sequence[float] | Array, share: float) -> dict[str, Any]:
    array = _shares(name, values)
    if array.min() < 0 or array.max() > 1 + 1e-9:
        raise ValueError(f"series {name!r} should hold shares between 0 and 1")
    every = np.atleast_2d(array)
    if (np.diff(every, axis=1) < -1e-9).any():
        raise ValueError(f"series {name!r} falls: cumulative shares only grow")
    mean = every.mean(0)
    reached = np.flatnonzero(mean >= share - 1e-12)
    rank = int(reached[0]) + 1 if len(reached) else None
    return {
        "run": name,
        "name": f"{name}, {_rank_words(rank, share)}",
        "steps": np.arange(1, len(mean) + 1, dtype=float),
        "mean": mean,
        "low": every.min(0),
        "high": every.max(0),
        "several": len(every) > 1,
        "rank": rank,
    }


def _shares(name: str, values: Sequence[float] | Array) -> Array:
    """Shares as an array (rank,) or (maps, rank)."""
    first: Any = next(iter(check_list(name, values)), None)
    return numbers(f"series {name}", values, "rank" if np.ndim(first) == 0 else "maps rank")


def _rank_words(rank: int | None, share: float) -> str:
    return f"{share:g} is not reached" if rank is None else f"{rank} reach {share:g}"


def _spectrum_traces(curve: dict[str, Any], place: int) -> list[go.Scatter]:
    style = series_style(place)
    line = go.Scatter(
        x=packed(curve["steps"]),
        y=packed(curve["mean"]),
        name=escaped(curve["name"]),
        mode="lines",
        hovertemplate="%{x:,.0f} directions<br>%{y:.3f}",
        line=style["line"],
    )
    return [spread_band(curve, place), line] if curve["several"] else [line]


def _level(share: float, most: int, look: Theme) -> go.Scatter:
    return go.Scatter(
        x=[0, most * 1.02],
        y=[share, share],
        mode="lines",
        line={"color": look.ink, "width": 1, "dash": "dot"},
        hoverinfo="skip",
        showlegend=False,
        name=f"{share:g}",
    )
