"""The parts of a sum as bars: which of them make the whole, and which work against it."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_mapping, check_texts
from attnlab.core.arrays import Array, numbers
from attnlab.core.integers import check_integer
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis, label_width, layout, text_width
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import MARKERS, SERIES, Theme, colours, theme_name

LINE, BAR, PLOT, NUMBER = 22, 12, 460, 52  # pixels: a row, its bar, the plot, a number beside it
FOR, AGAINST = SERIES[0], SERIES[1]


def part_bars(
    parts: Mapping[str, Sequence[float] | float],
    *,
    title: str,
    quantity: str = "part of the logit",
    most: int = 20,
    theme: str | None = None,
) -> Picture:
    """A bar for each part, from 0 to its mean, and the sum of all below them.

    ``parts`` maps a name to one number, or to several, such as one for each text or position: a
    thin line then goes from the smallest to the largest. Bars stand in the order given; of more
    than ``most`` parts those whose means are smallest in size are drawn as one, "all others".
    Positive and negative parts differ by colour and by the side on which they stand.

    Raises a ValueError for a part called "sum", and for parts of different lengths.
    """
    check_texts(title=title, quantity=quantity)
    most = check_integer("most", most, at_least=1)
    given = check_mapping("parts", parts, '{"head 0.1": 2.5, "embedding": -0.3}')
    if "sum" in given:
        raise ValueError('`parts` has a part called "sum", which is the name of the last bar')
    found = {name: _values(name, value) for name, value in given.items()}
    if len({len(values) for values in found.values()}) > 1:
        raise ValueError("`parts` should have equally many numbers each, one for each text")
    whole = np.sum([*found.values()], axis=0)
    shown = _few(found, most) | {"sum": whole}
    theme = theme_name(theme)
    look = colours(theme)
    rows = [_row(name, values) for name, values in shown.items()]
    return Picture(
        _traces(look, shown),
        _page(look, title, quantity, shown),
        description=_description(title, quantity, shown, len(found)),
        rows=rows,
        theme=theme,
    )


def _values(name: str, given: Sequence[float] | float) -> Array:
    one = isinstance(given, int | float) and not isinstance(given, bool)
    return numbers(f"parts, {name}", [given] if one else given, "texts")


def _few(found: Mapping[str, Array], most: int) -> dict[str, Array]:
    """The largest means, in the order given, and the sum of the others."""
    order = sorted(found, key=lambda name: -abs(float(found[name].mean())))
    kept = set(order if len(order) <= most else order[: most - 1])
    others = [values for name, values in found.items() if name not in kept]
    few = {name: values for name, values in found.items() if name in kept}
    return few if not others else few | {f"all {len(others)} others": np.sum(others, axis=0)}


def _row(name: str, values: Array) -> Row:
    row: Row = {"part": name, "mean": round(float(values.mean()), 4)}
    if len(values) == 1:
        return row
    ends = {"smallest": values.min(), "largest": values.max()}
    return {**row, **{word: round(float(end), 4) for word, end in ends.items()}}


def _traces(look: Theme, shown: Mapping[str, Array]) -> list[go.Scatter]:
    bars: dict[str, tuple[list[float], list[float]]] = {}
    spread: tuple[list[float], list[float]] = ([], [])
    for at, (name, values) in enumerate(shown.items()):
        mean = float(values.mean())
        colour = look.ink if name == "sum" else FOR if mean >= 0 else AGAINST
        x, y = bars.setdefault(colour, ([], []))
        x += [0.0, mean, math.nan]
        y += [at, at, math.nan]
        if len(values) > 1:
            spread[0].extend((float(values.min()), float(values.max()), math.nan))
            spread[1].extend((at, at, math.nan))
    traces = [_line(x, y, colour, BAR) for colour, (x, y) in bars.items()]
    if spread[0]:
        traces.append(_line(*spread, look.quiet, 2))
    means = [float(values.mean()) for values in shown.values()]
    every = np.concatenate([*shown.values(), [0.0]])
    high, span = float(every.max()), float(np.ptp(every)) or 1.0
    column = [high + (NUMBER / 2 + 4) * span / PLOT] * len(shown)  # right of every bar
    places = [*range(len(shown))]
    traces.append(
        go.Scatter(
            x=means,
            y=places,
            mode="markers",
            text=[escaped(name) for name in shown],
            marker={"color": look.ink, "size": 6, "symbol": MARKERS[1]},
            showlegend=False,
            hovertemplate="%{text}: %{x:.4~g}<extra></extra>",
        )
    )
    traces.append(
        go.Scatter(
            x=column,
            y=places,
            mode="text",
            text=[f"{mean:+.2f}" for mean in means],
            textfont={"color": look.ink, "size": 11},
            showlegend=False,
            hoverinfo="skip",
        )
    )
    return traces


def _line(x: list[float], y: list[float], colour: str, width: float) -> go.Scatter:
    line = {"color": colour, "width": width}
    return go.Scatter(x=x, y=y, mode="lines", line=line, showlegend=False, hoverinfo="skip")


def _page(look: Theme, title: str, quantity: str, shown: Mapping[str, Array]) -> dict[str, object]:
    left = 22 + round(max(label_width(escaped(name), 11) for name in shown))
    every = np.concatenate([*shown.values(), [0.0]])
    low, high = float(every.min()), float(every.max())
    unit = (high - low or 1.0) / PLOT
    full = max(left + PLOT + 24, round(text_width(title, 16.5)) + 16)
    return layout(
        look,
        title,
        width=full,
        height=44 + LINE * len(shown) + 52,
        margin={"l": left, "r": full - left - PLOT, "t": 44, "b": 52},
        xaxis=axis(look, quantity, range=[low - 10 * unit, high + NUMBER * unit], nticks=7)
        | {"zeroline": True, "zerolinecolor": look.quiet},
        yaxis=axis(
            look,
            range=[len(shown) - 0.5, -0.5],
            tickmode="array",
            tickvals=[*range(len(shown))],
            ticktext=[escaped(name) for name in shown],
            showgrid=False,
            ticks="",
        ),
    )


def _description(title: str, quantity: str, shown: Mapping[str, Array], count: int) -> str:
    means = {name: float(values.mean()) for name, values in shown.items() if name != "sum"}
    total = float(shown["sum"].mean())
    sign = math.copysign(1, total)  # of a negative sum the negative parts are those that make it
    order = sorted(means, key=lambda name: -sign * means[name])
    largest = "; ".join(f"{name} {means[name]:+.3g}" for name in order[:3])
    said = f"{title}. {quantity}: {count} parts, which sum to {total:+.3g}. Largest: {largest}."
    against = [name for name in reversed(order) if sign * means[name] < 0]
    if against:
        said += f" Most against it: {against[0]} {means[against[0]]:+.3g}."
    return said
