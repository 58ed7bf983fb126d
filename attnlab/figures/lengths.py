"""Scores at several lengths: a mark for each seed, a line through their medians."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import (
    check_limits,
    check_mapping,
    check_positive,
    check_texts,
)
from attnlab.core.arrays import Array, numbers
from attnlab.figures.curves import curve_layout, label_ends, packed, series_style, whole_number
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import Theme, colours, theme_name

Seeds = Mapping[float, Sequence[float]]


def length_scores(
    scores: Mapping[str, Seeds],
    *,
    title: str,
    quantity: str = "right tokens (%)",
    length: str = "sequence length (tokens)",
    trained: float | None = None,
    limits: tuple[float, float] = (0, 100),
    theme: str | None = None,
) -> Picture:
    """What each model scores at each length, lengths on a logarithmic axis.

    ``scores`` maps a name to lengths, and a length to one number per seed. Every number is a mark;
    the line goes through the medians. A vertical line stands at ``trained``, the longest length in
    training.
    """
    check_texts(title=title, quantity=quantity, length=length)
    check_mapping("scores", scores, '{"rope": {32: [99.0, 98.5], 64: [40.0, 35.2]}}')
    points = {name: _points(name, seeds) for name, seeds in scores.items()}
    lengths = sorted({n for of_name in points.values() for n in of_name})
    theme = theme_name(theme)
    look = colours(theme)
    traces = [
        trace
        for place, (name, of_name) in enumerate(points.items())
        for trace in _traces(name, of_name, place)
    ]
    low, high = check_limits(limits)
    margin = 0.04 * (high - low)
    across = [float(np.log10(lengths[0]) - 0.06), float(np.log10(lengths[-1]) + 0.06)]
    page = curve_layout(
        look,
        title,
        xaxis=axis(
            look,
            length,
            type="log",
            range=across,
            tickmode="array",
            tickvals=lengths,
            ticktext=[f"{whole_number(n):,}" for n in lengths],
        ),
        yaxis=axis(look, quantity, range=[low - margin, high + margin]),
        names=[*map(escaped, points), *([] if trained is None else [""])],
    )
    page["hovermode"] = "closest"
    last = {name: list(of_name.values())[-1] for name, of_name in points.items()}
    label_ends(page, look, {escaped(x): float(np.median(values)) for x, values in last.items()})
    if trained is not None:
        traces.append(
            _border(check_positive("trained", trained), [low - margin, high + margin], look)
        )
    rows: list[Row] = [
        {"series": name, "length": whole_number(n), quantity: ", ".join(f"{x:g}" for x in values)}
        for name, of_name in points.items()
        for n, values in of_name.items()
    ]
    said = _description(title, quantity, points, trained)
    return Picture(traces, page, description=said, rows=rows, theme=theme)


def _points(name: str, seeds: Seeds) -> dict[float, Array]:
    if not isinstance(seeds, Mapping) or not seeds:
        raise TypeError(f"{name!r} should map lengths to one number per seed: {{32: [99.0, 98.5]}}")
    found = {
        check_positive(f"a length of {name}", n): numbers(f"{name}, {n}", values, "seeds")
        for n, values in seeds.items()
    }
    return dict(sorted(found.items()))


def _traces(name: str, points: Mapping[float, Array], place: int) -> list[go.Scatter]:
    style = series_style(place)
    line = go.Scatter(
        x=packed(np.array(list(points))),
        y=packed(np.array([np.median(values) for values in points.values()])),
        name=escaped(name),
        mode="lines+markers",
        line=style["line"],
        marker=style["marker"],
        hoverinfo="skip",
        legendgroup=name,
    )
    marks = go.Scatter(
        x=packed(np.concatenate([np.full(len(values), n) for n, values in points.items()])),
        y=packed(np.concatenate(list(points.values()))),
        name=escaped(name),
        mode="markers",
        marker={**style["marker"], "size": 5, "opacity": 0.8},
        showlegend=False,
        hovertemplate="%{x:,}: %{y:.1f}",
        legendgroup=name,
    )
    return [line, marks]


def _border(trained: float, ends: list[float], look: Theme) -> go.Scatter:
    """The longest length in training, from the bottom of the picture to its top."""
    return go.Scatter(
        x=[trained, trained],
        y=ends,
        name=f"the longest in training: {whole_number(trained):,}",
        mode="lines",
        line={"color": look.quiet, "width": 1.5, "dash": "dot"},
        hoverinfo="skip",
    )


def _description(
    title: str, quantity: str, points: Mapping[str, Mapping[float, Array]], trained: float | None
) -> str:
    sentences = [f"{title}. {quantity} against the length, one mark for each seed."]
    if trained is not None:
        sentences.append(f"Trained up to {whole_number(trained):,}.")
    for name, of_name in points.items():
        medians = ", ".join(
            f"{np.median(values):.3g} at {whole_number(n):,}" for n, values in of_name.items()
        )
        sentences.append(f"{name}: medians {medians}.")
    return " ".join(sentences)
