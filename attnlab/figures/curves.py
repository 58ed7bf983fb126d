"""Curves and bars: losses over training, measured costs against n, costs that cards claim."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import sympy

from attnlab.core.card import Card
from attnlab.core.suggest import choose
from attnlab.figures.arrays import Array, numbers
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis, label_width, layout, text_width
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import DASHES, MARKERS, SERIES, Theme, colours, rgb, theme_name

MOST_POINTS = 300
WIDTH, HEIGHT = 720, 400
COSTS = {
    "time": "multiply-adds and additions (FLOPs)",
    "memory": "largest tensor (elements)",
}

Run = Sequence[Mapping[str, Any]]


def loss_curves(
    runs: Mapping[str, Run | Sequence[Run]],
    *,
    title: str,
    unit: str = "nats per token",
    log: bool = False,
    theme: str | None = None,
) -> Picture:
    """Training and validation loss over steps.

    ``runs`` maps a name to the rows of one run (dicts with "step", "loss" and, where measured,
    "validation_loss"), or to several such lists, one per seed: then the line is their mean and the
    band reaches from the smallest to the largest. Training loss is a thin line, validation loss has
    markers. Long runs are drawn as means of equally many steps; the description says of how many.
    """
    if not isinstance(runs, Mapping):
        raise TypeError('`runs` must map names to rows, such as {"full": history.rows}')
    if not runs:
        raise ValueError("`runs` is empty: give at least one name with its rows")
    curves = [curve for name, run in runs.items() for curve in _loss_curves(name, run)]
    if log and min(curve["low"].min() for curve in curves) <= 0:
        raise ValueError("a loss of zero or below has no place on a log axis: use log=False")
    theme = theme_name(theme)
    look = colours(theme)
    order = list(runs)
    traces = [t for curve in curves for t in _curve_traces(curve, order.index(curve["run"]))]
    steps = _padded(np.concatenate([curve["steps"] for curve in curves]), log=False)
    losses = np.concatenate([np.r_[c["low"], c["high"]] for c in curves])
    page = _curve_layout(
        look,
        title,
        xaxis=axis(look, "training step", range=steps),
        yaxis=axis(look, f"loss ({unit})", **_scale(losses, log=log)),
        names=[curve["name"] for curve in curves],
    )
    return Picture(
        traces,
        page,
        description=_loss_description(title, curves, unit),
        rows=_loss_rows(curves),
        theme=theme,
    )


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
    that has at least two lengths ({} shows none). Costs of something else than the length, such as
    the head width, say so in ``length`` and ``letter``.
    """
    if not series:
        raise ValueError("`series` is empty: give at least one name with its (n, cost) pairs")
    points = {name: _pairs(name, pairs) for name, pairs in series.items()}
    if exponents is not None and set(exponents) - set(points):
        raise ValueError(f"`exponents` names {sorted(set(exponents) - set(points))}, not a series")
    slopes = {name: _slope(name, pairs, exponents) for name, pairs in points.items()}
    theme = theme_name(theme)
    look = colours(theme)
    names = [_with_slope(name, slope, letter) for name, slope in slopes.items()]
    traces = [
        go.Scatter(
            x=_packed(pairs[:, 0]),
            y=_packed(pairs[:, 1]),
            name=name,
            mode="lines+markers",
            hovertemplate=f"{letter} = %{{x:,}}<br>{escaped(quantity)} %{{y:.4~g}}",
            **_style(place),
        )
        for place, (name, pairs) in enumerate(zip(names, points.values(), strict=True))
    ]
    together = np.concatenate(list(points.values()))
    page = _curve_layout(
        look,
        title,
        xaxis=axis(look, length, range=_padded(together[:, 0], log=True), **_powers(together)),
        yaxis=axis(look, quantity, **_scale(together[:, 1], log=True)),
        names=names,
    )
    rows = [
        {"series": name, letter: _whole(n), quantity: float(cost)}
        for name, pairs in points.items()
        for n, cost in pairs
    ]
    description = _cost_description(title, quantity, letter, points, slopes)
    return Picture(traces, page, description=description, rows=rows, theme=theme)


Spent = tuple[float, Sequence[float]]


def trade_off(
    points: Mapping[str, Spent | Sequence[Spent]],
    *,
    cost: str,
    score: str,
    title: str,
    theme: str | None = None,
) -> Picture:
    """What each name costs against what it scores: its mean over seeds, a bar of ± one deviation.

    ``points`` maps a name to (cost, one score per seed), or to several of these, in order of cost:
    sizes of one thing, joined by a line. ``cost`` and ``score`` name the axes with their units. The
    standard deviation is that of a sample (n − 1); a single seed has none.
    """
    if not points:
        raise ValueError("`points` is empty: give at least one name with (cost, scores)")
    sizes = {name: _sizes(name, given) for name, given in points.items()}
    theme = theme_name(theme)
    look = colours(theme)
    traces = [
        _sizes_trace(p, name, got, cost, score) for p, (name, got) in enumerate(sizes.items())
    ]
    every = [size for got in sizes.values() for size in got]
    ends = [mean + side * spread for _, mean, spread, _ in every for side in (-1, 1)]
    page = _curve_layout(
        look,
        title,
        xaxis=axis(look, cost, range=_padded(np.array([size[0] for size in every]), log=False)),
        yaxis=axis(look, score, range=_padded(np.array(ends), log=False)),
        names=list(points),
    ) | {"hovermode": "closest"}
    table: list[Row] = [
        {
            "name": name,
            cost: _whole(spent),
            score: round(mean, 4),
            "standard deviation": round(spread, 4),
            "seeds": seeds,
        }
        for name, got in sizes.items()
        for spent, mean, spread, seeds in got
    ]
    said = "; ".join(f"{row['name']}: {row[score]} at {row[cost]:,}" for row in table)
    description = f"{title}. {score} against {cost}, means over seeds. {said}."
    return Picture(traces, page, description=description, rows=table, theme=theme)


def _sizes(name: str, given: Spent | Sequence[Spent]) -> list[tuple[float, float, float, int]]:
    """Cost, mean, deviation and number of seeds of each size of what is called ``name``."""
    several: Any = given if isinstance(given[0], Sequence) else [given]
    found = []
    for spent, scores in several:
        values = numbers(f"{name}: scores", scores, "seeds")
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        found.append((float(spent), float(values.mean()), spread, len(values)))
    return found


def _sizes_trace(
    place: int, name: str, sizes: list[tuple[float, float, float, int]], cost: str, score: str
) -> go.Scatter:
    style = _style(place)
    costs, means, spreads, _ = zip(*sizes, strict=True)
    return go.Scatter(
        x=costs,
        y=means,
        error_y={"array": spreads, "width": 5, "thickness": 1.5},
        name=escaped(name),
        mode="lines+markers" if len(sizes) > 1 else "markers",
        hovertemplate=f"{escaped(cost)} %{{x:,}}<br>{escaped(score)} %{{y:.4~g}}",
        line=style["line"],
        marker={**style["marker"], "size": 11},
    )


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
    (``Spectrum.cumulative()``, averaged over what is not told apart); several rows are averaged,
    and the band reaches from the smallest to the largest. A dotted line marks ``share``; the legend
    says how many directions reach it.
    """
    if not series:
        raise ValueError("`series` is empty: give at least one name with its cumulative shares")
    if not 0 < share <= 1:
        raise ValueError(f"`share` is a part of the whole, 0 < share ≤ 1; got {share}")
    curves = [_spectrum_curve(name, values, share) for name, values in series.items()]
    theme = theme_name(theme)
    look = colours(theme)
    traces = [t for place, c in enumerate(curves) for t in _spectrum_traces(c, place)]
    most = max(len(curve["mean"]) for curve in curves)
    traces.append(_level(share, most, look))
    page = _curve_layout(
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
    words = [f"{title}. {quantity} against the number of singular directions kept."]
    words += [
        f"{c['run']}: the largest alone holds {c['mean'][0]:.3g}; {_reach(c['rank'], share)}."
        for c in curves
    ]
    return Picture(traces, page, description=" ".join(words), rows=rows, theme=theme)


def claimed_costs(
    cards: Sequence[Card],
    *,
    n: int,
    title: str,
    what: str = "time",
    form: str = "naive",
    values: Mapping[str, int] | None = None,
    theme: str | None = None,
) -> Picture:
    """What cards claim for one length: a bar per mechanism, with its order of growth.

    ``what`` is "time" or "memory"; ``values`` gives the other letters that the claims need
    (default d = 64, h = 4, m = n), for example ``{"w": 32}`` for a window.
    """
    if not cards:
        raise ValueError("`cards` is empty: give at least one, for example attnlab.cards()")
    unit = choose("cost", what, COSTS)
    known = {"n": n, "m": n, "d": 64, "e": 64, "h": 4, **(values or {})}
    costs = sorted((_claim(card, what, form, known) for card in cards), key=lambda c: -c[1])
    theme = theme_name(theme)
    look = colours(theme)
    names = [f"{escaped(card.title)}  {escaped(order)}" for card, _, order in costs]
    trace = go.Bar(
        x=[cost for _, cost, _ in costs],
        y=list(range(len(costs))),
        orientation="h",
        marker={"color": SERIES[0]},
        width=0.62,
        text=[_power(cost) for _, cost, _ in costs],
        textposition="outside",
        textfont={"size": 11, "color": look.ink},
        cliponaxis=False,
        customdata=names,
        hovertemplate="%{customdata}<br>%{x:,} " + unit + "<extra></extra>",
    )
    margin = {"l": 20 + max(map(label_width, names)), "r": 70, "t": 48, "b": 52}
    page = layout(
        look,
        title,
        width=max(WIDTH, margin["l"] + 380),
        height=100 + 30 * len(costs),
        margin=margin,
        xaxis=axis(look, f"{unit} at n = {n:,}", **_bar_ticks(costs[0][1])),
        yaxis=axis(
            look,
            range=[len(costs) - 0.5, -0.5],
            tickmode="array",
            tickvals=list(range(len(costs))),
            ticktext=names,
            showgrid=False,
            ticks="",
        ),
    )
    rows = [
        {"mechanism": card.title, "order": order, unit: cost, "paper": str(card.paper)}
        for card, cost, order in costs
    ]
    most, least = costs[0], costs[-1]
    description = (
        f"{title}. Bars: {unit} as claimed for n = {n:,}, form {form}. Most: {most[0].title} "
        f"with {most[1]:.3g}; least: {least[0].title} with {least[1]:.3g}."
    )
    return Picture([trace], page, description=description, rows=rows, theme=theme)


# losses


def _loss_curves(name: str, run: Run | Sequence[Run]) -> list[dict[str, Any]]:
    """The training curve and, where there is one, the validation curve of a run or its seeds."""
    if hasattr(run, "rows"):
        raise TypeError(f"run {name!r} is a {type(run).__name__}: give its rows, as history.rows")
    if not len(run):
        raise ValueError(f"run {name!r} is empty: it has no rows")
    seeds: Any = [run] if isinstance(run[0], Mapping) else run
    found = [_one_curve(name, kind, seeds) for kind in ("loss", "validation_loss")]
    curves = [curve for curve in found if curve is not None]
    if not curves:
        raise ValueError(f"run {name!r} has neither 'loss' nor 'validation_loss' in any row")
    return curves


def _one_curve(name: str, kind: str, seeds: Sequence[Run]) -> dict[str, Any] | None:
    series = [_series(name, kind, run) for run in seeds]
    if not any(len(steps) for steps, _ in series):
        return None
    steps = series[0][0]
    if any(not np.array_equal(steps, other) for other, _ in series):
        raise ValueError(
            f"run {name!r}: its seeds measured {kind!r} at different steps, so no mean or band "
            "can be drawn; give them as separate runs"
        )
    values = np.stack([losses for _, losses in series])
    block = -(-len(steps) // MOST_POINTS)
    words = "training" if kind == "loss" else "validation"
    several = f", {len(seeds)} seeds" if len(seeds) > 1 else ""
    return {
        "run": name,
        "name": f"{name}, {words}{several}",
        "validation": kind == "validation_loss",
        "steps": _blocks(steps, block),
        "mean": _blocks(values.mean(0), block),
        "low": _blocks(values.min(0), block),
        "high": _blocks(values.max(0), block),
        "seeds": len(seeds),
        "block": block,
        "last": float(values.mean(0)[-1]),
        "first": float(values.mean(0)[0]),
    }


def _series(name: str, kind: str, run: Run) -> tuple[Array, Array]:
    rows = [row for row in run if row.get(kind) is not None]
    if any("step" not in row for row in rows):
        raise ValueError(f"run {name!r} has rows without 'step'")
    if not rows:
        return np.empty(0), np.empty(0)
    steps = numbers(f"{name}: step", [row["step"] for row in rows], "rows")
    return steps, numbers(f"{name}: {kind}", [row[kind] for row in rows], "rows")


def _blocks(values: Array, block: int) -> Array:
    """Means of ``block`` neighbours (the last may be shorter)."""
    if block == 1:
        return values
    return np.array([values[i : i + block].mean() for i in range(0, len(values), block)])


def _curve_traces(curve: dict[str, Any], place: int) -> list[go.Scatter]:
    style = _style(place)
    if not curve["validation"]:
        style = {"line": {"color": SERIES[place % len(SERIES)], "width": 1.3, "dash": "solid"}}
    few = curve["validation"] or len(curve["steps"]) == 1
    line = go.Scatter(
        x=_packed(curve["steps"]),
        y=_packed(curve["mean"]),
        name=escaped(curve["name"]),
        mode="lines+markers" if few else "lines",
        hovertemplate="step %{x:,.0f}<br>loss %{y:.4~g}",
        **style,
    )
    return [line] if curve["seeds"] == 1 else [_band(curve, place), line]


def _band(curve: dict[str, Any], place: int) -> go.Scatter:
    red, green, blue = rgb(SERIES[place % len(SERIES)])
    steps = _packed(curve["steps"])
    return go.Scatter(
        x=np.r_[steps, steps[::-1]],
        y=_packed(np.r_[curve["high"], curve["low"][::-1]]),
        mode="lines",
        line={"width": 0, "color": SERIES[place % len(SERIES)]},
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.22)",
        hoverinfo="skip",
        showlegend=False,
        name=escaped(f"{curve['name']}: spread"),
    )


def _loss_description(title: str, curves: list[dict[str, Any]], unit: str) -> str:
    words = [f"{title}. Loss in {unit} over training steps."]
    for curve in curves:
        spread = ""
        if curve["seeds"] > 1:
            spread = f" (from {curve['low'][-1]:.3g} to {curve['high'][-1]:.3g} across seeds)"
        each = f", drawn as means of {curve['block']} steps" if curve["block"] > 1 else ""
        words.append(
            f"{curve['name']}: from {curve['first']:.3g} to {curve['last']:.3g}{spread}{each}."
        )
    return " ".join(words)


def _loss_rows(curves: list[dict[str, Any]]) -> list[Row]:
    """At most a dozen evenly spaced points of each curve."""
    rows: list[Row] = []
    for curve in curves:
        count = len(curve["steps"])
        for i in np.unique(np.linspace(0, count - 1, min(count, 12)).round().astype(int)):
            rows.append(
                {
                    "curve": curve["name"],
                    "step": _whole(curve["steps"][i]),
                    "mean": float(curve["mean"][i]),
                    "smallest": float(curve["low"][i]),
                    "largest": float(curve["high"][i]),
                }
            )
    return rows


# measured costs


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
    # Two digits are shown, and no zero with a sign.
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
        "ticktext": [f"{_whole(value):,}" for value in kept[::-1]],
    }


def _cost_description(
    title: str,
    quantity: str,
    letter: str,
    points: Mapping[str, Array],
    slopes: Mapping[str, float | None],
) -> str:
    words = [f"{title}. {quantity} against {letter}, both axes logarithmic."]
    for name, pairs in points.items():
        grows = (
            ""
            if slopes[name] is None
            else f", growing like {letter} to the power {slopes[name]:.2f}"
        )
        (first, cost), (last, end) = pairs[0], pairs[-1]
        words.append(
            f"{name}: {cost:.3g} at {letter} = {_whole(first):,}, "
            f"{end:.3g} at {letter} = {_whole(last):,}{grows}."
        )
    return " ".join(words)


# spectra


def _spectrum_curve(name: str, values: Sequence[float] | Array, share: float) -> dict[str, Any]:
    array = np.asarray(values, dtype=float)
    if array.ndim not in (1, 2) or not array.size:
        raise ValueError(
            f"series {name!r} must hold shares (rank,) or (maps, rank), got shape {array.shape}"
        )
    if not np.isfinite(array).all() or array.min() < 0 or array.max() > 1 + 1e-9:
        raise ValueError(f"series {name!r} must hold shares between 0 and 1")
    every = np.atleast_2d(array)
    if (np.diff(every, axis=1) < -1e-9).any():
        raise ValueError(f"series {name!r} falls: cumulative shares only grow")
    mean = every.mean(0)
    reached = np.flatnonzero(mean >= share - 1e-12)
    rank = int(reached[0]) + 1 if len(reached) else None
    return {
        "run": name,
        "name": f"{name}, {_reach(rank, share)}",
        "steps": np.arange(1, len(mean) + 1, dtype=float),
        "mean": mean,
        "low": every.min(0),
        "high": every.max(0),
        "several": len(every) > 1,
        "rank": rank,
    }


def _reach(rank: int | None, share: float) -> str:
    return f"{share:g} is not reached" if rank is None else f"{rank} reach {share:g}"


def _spectrum_traces(curve: dict[str, Any], place: int) -> list[go.Scatter]:
    style = _style(place)
    line = go.Scatter(
        x=_packed(curve["steps"]),
        y=_packed(curve["mean"]),
        name=escaped(curve["name"]),
        mode="lines",
        hovertemplate="%{x:,.0f} directions<br>%{y:.3f}",
        line=style["line"],
    )
    return [_band(curve, place), line] if curve["several"] else [line]


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


# claimed costs


def _claim(card: Card, what: str, form: str, known: Mapping[str, int]) -> tuple[Card, float, str]:
    choose(f"form of {card.name!r}", form, card.forms)
    claim = sympy.sympify(card.cost(what, form))
    missing = sorted(str(letter) for letter in claim.free_symbols if str(letter) not in known)
    if missing:
        raise ValueError(
            f"the {what} of {card.name!r} also depends on {', '.join(missing)}: "
            f"give values={{{missing[0]!r}: …}}"
        )
    cost = float(claim.subs({letter: known[str(letter)] for letter in claim.free_symbols}))
    return card, cost, f"O({_readable(card.order(what, form))})"


def _bar_ticks(largest: float) -> dict[str, Any]:
    step = 10.0 ** math.floor(math.log10(largest))
    step = next(step * share for share in (1, 0.5, 0.2) if largest / (step * share) >= 3)
    ticks = [i * step for i in range(int(largest / step) + 1)]
    return {
        "range": [0, largest * 1.02],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [_power(tick) for tick in ticks],
    }


def _power(value: float) -> str:
    """4.29·10⁹ for large numbers."""
    if value < 1e5:
        return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    power = math.floor(math.log10(value))
    return f"{value / 10.0**power:.3g}·10<sup>{power}</sup>"


def _readable(order: sympy.Expr) -> str:
    powers = str.maketrans("23456789", "²³⁴⁵⁶⁷⁸⁹")
    parts = str(order).split("**")
    text = parts[0] + "".join(p[0].translate(powers) + p[1:] for p in parts[1:])
    return text.replace("*", "·")


# what they share


def _style(place: int) -> dict[str, Any]:
    """Colour, dash and marker of the series at this place; all three change together."""
    colour = SERIES[place % len(SERIES)]
    round_ = place // len(SERIES)
    return {
        "line": {"color": colour, "width": 2, "dash": DASHES[(place + round_) % len(DASHES)]},
        "marker": {
            "color": colour,
            "size": 8,
            "symbol": MARKERS[(place + round_) % len(MARKERS)],
        },
    }


def _curve_layout(look: Theme, title: str, *, names: list[str], **axes: Any) -> dict[str, Any]:
    """Axes below the title, the legend under them, one line per curve so that none is cut."""
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


def _scale(values: Array, *, log: bool) -> dict[str, Any]:
    """Type, range and, on a log axis, ticks: powers of ten, or finer where there are few."""
    ends = _padded(values, log=log)
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


def _padded(values: Array, *, log: bool) -> list[float]:
    """A range with a little room at both ends; in powers of ten for a log axis."""
    values = np.log10(values) if log else values
    low, high = float(values.min()), float(values.max())
    room = 0.04 * (high - low) or 0.5
    return [low - room, high + room]


def _packed(values: Array) -> Array:
    """Single precision: plotly writes numpy arrays as base64, which keeps notebooks small."""
    return values.astype(np.float32)


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else float(value)
