"""Measured costs, against the length and against scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import (
    check_flag,
    check_list,
    check_mapping,
    check_number,
    check_positive,
    check_texts,
)
from attnlab.core.arrays import Array, numbers
from attnlab.core.suggest import choose
from attnlab.figures import cost_marks as marks
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
from attnlab.figures.theme import Theme, colours, theme_name

Spent = tuple[float, Sequence[float]]


def cost_curves(
    series: Mapping[str, Sequence[Sequence[float]]],
    *,
    quantity: str,
    title: str,
    length: str = "sequence length n (tokens)",
    letter: str = "n",
    exponents: Mapping[str, float] | None = None,
    claims: Mapping[str, marks.Claim] | None = None,
    intervals: Mapping[str, tuple[float, float]] | None = None,
    crossovers: Mapping[str, marks.Place] | None = None,
    limits: Mapping[str, float] | None = None,
    theme: str | None = None,
) -> Picture:
    """Measured costs against n, both axes logarithmic, one marker shape per series.

    ``series`` maps a name to pairs (n, cost), or to (n, cost, low, high), which shows the spread of
    each; ``quantity`` names the cost with its unit ("time (ms)"). A straight line of slope 2 is a
    cost that grows with n². The legend shows each slope: the one given in ``exponents``, or else
    the least-squares slope through all points of a series that has at least two lengths ({} shows
    none). If the cost is measured against another size, such as the head width, name that size in
    ``length`` and ``letter``.

    ``claims``      name → the claimed exponent, or "n", "n log n", "n√n", "n²": a dotted line of
                    that growth through the middle of the points
    ``intervals``   name → (lowest, highest) exponent of a fit: a band between these slopes
    ``crossovers``  what happens there → the length n, or (n, low, high): a vertical line
    ``limits``      what it is → a cost: a horizontal line, such as the memory of a machine
    """
    check_texts(quantity=quantity, title=title, length=length, letter=letter)
    series = check_mapping("series", series, '{"full": [(64, 1.5), (128, 6.1)]}')
    if exponents is not None:
        exponents = marks.of_series("exponents", exponents, series, '{"full": 2.0}')
        exponents = {name: check_number(name, slope) for name, slope in exponents.items()}
    points = {name: _points(name, given) for name, given in series.items()}
    drawn = _Beside(
        marks.of_series("claims", claims, series, '{"longformer": "n"}'),
        {
            name: marks.interval_of(name, ends)
            for name, ends in marks.of_series(
                "intervals", intervals, series, '{"full": (1.9, 2.1)}'
            ).items()
        },
        {said: marks.place_of(said, n) for said, n in _named("crossovers", crossovers).items()},
        {said: check_positive(said, cost) for said, cost in _named("limits", limits).items()},
    )
    slopes = {name: _slope(name, pairs, exponents) for name, pairs in points.items()}
    theme = theme_name(theme)
    look = colours(theme)
    names = [
        _with_slope(name, slope, letter, drawn.intervals.get(name))
        for name, slope in slopes.items()
    ]
    measured = [
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
    together = np.concatenate([pairs[:, :2] for pairs in points.values()])
    heights = np.concatenate(
        [*(pairs[:, 1:].ravel() for pairs in points.values()), [*drawn.limits.values()]]
    )
    lengths = np.r_[together[:, 0], [n for place in drawn.crossovers.values() for n in place]]
    behind, before = drawn.traces(points, letter, lengths, heights, look)
    traces = [*behind, *measured, *before]
    page = curve_layout(
        look,
        title,
        xaxis=axis(look, length, range=padded(lengths, log=True), **_powers(together)),
        yaxis=axis(look, quantity, **value_axis(heights, log=True)),
        names=[trace.name for trace in traces if trace.showlegend is not False],
    )
    label_ends(page, look, {escaped(name): float(p[-1, 1]) for name, p in points.items()})
    spread = any(pairs.shape[1] == 4 for pairs in points.values())
    rows = [
        {"series": name, letter: whole_number(n), quantity: float(cost)} | _ends(ends, spread)
        for name, pairs in points.items()
        for n, cost, *ends in pairs
    ]
    description = _cost_description(title, quantity, letter, points, slopes) + drawn.said(letter)
    return Picture(traces, page, description=description, rows=rows, theme=theme)


@dataclass(frozen=True)
class _Beside:
    """What is drawn beside the points, checked."""

    claims: Mapping[str, marks.Claim]
    intervals: Mapping[str, tuple[float, float]]
    crossovers: Mapping[str, tuple[float, float, float]]
    limits: Mapping[str, float]

    def traces(
        self, points: Mapping[str, Array], letter: str, lengths: Array, heights: Array, look: Theme
    ) -> tuple[list[Any], list[Any]]:
        """The marks behind the curves, and the marks in front of them."""
        places = {name: place for place, name in enumerate(points)}
        behind = [
            marks.fitted(name, ends, points[name], places[name])
            for name, ends in self.intervals.items()
        ]
        before = [
            marks.spread(name, pairs, places[name])
            for name, pairs in points.items()
            if pairs.shape[1] == 4
        ]
        before += [
            marks.claimed(name, claim, points[name], places[name], letter)
            for name, claim in self.claims.items()
        ]
        for said, place in self.crossovers.items():
            before += marks.crossing(said, place, heights, look)
        before += [marks.limit(said, cost, lengths, look) for said, cost in self.limits.items()]
        return behind, before

    def said(self, letter: str) -> str:
        """All of it in sentences, each after a space."""
        powers = {name: x if isinstance(x, str) else f"n^{x:g}" for name, x in self.claims.items()}
        sentences = [
            *(
                f"{name} is claimed to grow like {x.replace('n', letter)}."
                for name, x in powers.items()
            ),
            *(
                f"The fitted exponent of {name} is between {low:.2f} and {high:.2f}."
                for name, (low, high) in self.intervals.items()
            ),
            *(
                f"{said}: {letter} = {marks.summary_of(place)}."
                for said, place in self.crossovers.items()
            ),
            *(f"{said}: {cost:.3g}." for said, cost in self.limits.items()),
        ]
        return "".join(f" {one}" for one in sentences)


def _ends(ends: Sequence[float], shown: bool) -> dict[str, Any]:
    """The columns of the spread, where there are any."""
    return (
        dict(zip(("low", "high"), map(float, ends) if ends else "––", strict=True)) if shown else {}
    )


def _named(name: str, given: object) -> Mapping[str, Any]:
    if given is None:
        return {}
    return check_mapping(name, given, '{"longformer is cheaper": 1900}', may_be_empty=True)


def _points(name: str, given: Sequence[Sequence[float]]) -> Array:
    array = numbers(f"series {name}", given, "points pair")
    if array.shape[1] not in (2, 4):
        raise ValueError(
            f"series {name!r} should hold pairs (n, cost), or (n, cost, low, high), got "
            f"{array.shape[1]} numbers"
        )
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


def _with_slope(
    name: str, slope: float | None, letter: str, ends: tuple[float, float] | None
) -> str:
    between = "" if ends is None else f"  ({ends[0]:.2f} to {ends[1]:.2f})"
    grows = "" if slope is None else f"  ∝ {letter}<sup>{slope:.2f}</sup>"
    return escaped(name) + grows + between


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
        (first, cost), (last, end) = pairs[0, :2], pairs[-1, :2]
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
    front: str | None = None,
    log: bool = False,
    theme: str | None = None,
) -> Picture:
    """Score against cost: a small mark for each seed, a large one for their mean.

    ``points`` maps a name to (cost, one score per seed), or to several of these, in order of cost:
    sizes of one thing, joined by a line. ``cost`` and ``score`` name the axes with their units.
    ``front`` joins the Pareto front, those means that no cheaper one equals: "highest" where high
    scores are good, "lowest" where low ones are. ``log`` makes the axis of costs logarithmic.
    """
    check_texts(cost=cost, score=score, title=title)
    check_flag("log", log)
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
    if log and costs.min() <= 0:
        raise ValueError(f"a cost of {costs.min():g} has no place on a logarithmic axis")
    best = [] if front is None else _front(every, choose("front", front, _BETTER))
    if best:
        traces.insert(0, _front_line(best, look))
    scores = np.concatenate([values for _, values in every])
    page = curve_layout(
        look,
        title,
        xaxis=axis(look, cost, **value_axis(costs, log=log)),
        yaxis=axis(look, score, range=padded(scores, log=False)),
        names=[*points, *(["front"] if best else [])],
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
        | ({"on the front": "yes" if (spent, values.mean()) in best else "no"} if best else {})
        for name, got in sizes.items()
        for spent, values in got
    ]
    means = "; ".join(f"{row['name']}: {row[score]} at {row[cost]:,}" for row in table)
    description = f"{title}. {score} against {cost}, means over seeds. {means}."
    if best:
        reached = dict.fromkeys(row["name"] for row in table if row["on the front"] == "yes")
        description += f" On the Pareto front: {', '.join(reached)}."
    return Picture(traces, page, description=description, rows=table, theme=theme)


_BETTER = {"highest": 1.0, "lowest": -1.0}


def _front(every: Sequence[tuple[float, Array]], sign: float) -> list[tuple[float, float]]:
    """(cost, mean score) of those that nothing cheaper, or as cheap, equals; by cost."""
    found: list[tuple[float, float]] = []
    means = [(spent, float(values.mean())) for spent, values in every]
    for spent, mean in sorted(means, key=lambda one: (one[0], -sign * one[1])):
        if not found or sign * mean > sign * found[-1][1]:
            found.append((spent, mean))
    return found


def _front_line(best: Sequence[tuple[float, float]], look: Theme) -> go.Scatter:
    """The front as steps: a score costs what it costs until the next one is reached."""
    costs, scores = np.array(best).T
    return go.Scatter(
        x=np.repeat(costs, 2)[1:],
        y=np.repeat(scores, 2)[:-1],
        name="Pareto front",
        mode="lines",
        line={"color": look.quiet, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )


def _sizes(name: str, given: Spent | Sequence[Spent]) -> list[tuple[float, Array]]:
    """The cost of each size of what is called ``name``, and its scores."""
    several = check_list(name, given)
    several = several if several and isinstance(several[0], Sequence) else [several]
    found = []
    for pair in several:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(
                f"{name!r} should hold (cost, scores) or several of these, got {pair!r}"
            )
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
