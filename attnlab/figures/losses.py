"""Training and validation losses over the steps of a training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_flag, check_list, check_mapping, check_texts
from attnlab.core.arrays import Array, numbers
from attnlab.figures.curves import (
    curve_layout,
    packed,
    padded,
    series_style,
    spread_band,
    value_axis,
    whole_number,
)
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import SERIES, colours, theme_name

MOST_POINTS = 300

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
    check_texts(title=title, unit=unit)
    check_flag("log", log)
    runs = check_mapping("runs", runs, '{"full": history.rows}')
    curves = [curve for name, run in runs.items() for curve in _loss_curves(name, run)]
    if log and min(curve["low"].min() for curve in curves) <= 0:
        raise ValueError("a loss of zero or below has no place on a log axis: use log=False")
    theme = theme_name(theme)
    look = colours(theme)
    order = list(runs)
    traces = [t for curve in curves for t in _curve_traces(curve, order.index(curve["run"]))]
    steps = padded(np.concatenate([curve["steps"] for curve in curves]), log=False)
    losses = np.concatenate([np.r_[c["low"], c["high"]] for c in curves])
    page = curve_layout(
        look,
        title,
        xaxis=axis(look, "training step", range=steps),
        yaxis=axis(look, f"loss ({unit})", **value_axis(losses, log=log)),
        names=[curve["name"] for curve in curves],
    )
    return Picture(
        traces,
        page,
        description=_loss_description(title, curves, unit),
        rows=_loss_rows(curves),
        theme=theme,
    )


def _loss_curves(name: str, run: Run | Sequence[Run]) -> list[dict[str, Any]]:
    """The training curve and, where there is one, the validation curve of a run or its seeds."""
    if hasattr(run, "rows"):
        raise TypeError(f"run {name!r} is a {type(run).__name__}: give its rows, as history.rows")
    rows = check_list(name, run)
    if not rows:
        raise ValueError(f"run {name!r} is empty: it has no rows")
    seeds = [rows] if isinstance(rows[0], Mapping) else [check_list(name, seed) for seed in rows]
    if any(not isinstance(row, Mapping) for seed in seeds for row in seed):
        raise TypeError(f"the rows of run {name!r} should be dicts with 'step' and 'loss'")
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
    label = "training" if kind == "loss" else "validation"
    several = f", {len(seeds)} seeds" if len(seeds) > 1 else ""
    return {
        "run": name,
        "name": f"{name}, {label}{several}",
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
    style = series_style(place)
    if not curve["validation"]:
        style = {"line": {"color": SERIES[place % len(SERIES)], "width": 1.3, "dash": "solid"}}
    few = curve["validation"] or len(curve["steps"]) == 1
    line = go.Scatter(
        x=packed(curve["steps"]),
        y=packed(curve["mean"]),
        name=escaped(curve["name"]),
        mode="lines+markers" if few else "lines",
        hovertemplate="step %{x:,.0f}<br>loss %{y:.4~g}",
        **style,
    )
    return [line] if curve["seeds"] == 1 else [spread_band(curve, place), line]


def _loss_description(title: str, curves: list[dict[str, Any]], unit: str) -> str:
    sentences = [f"{title}. Loss in {unit} over training steps."]
    for curve in curves:
        spread = ""
        if curve["seeds"] > 1:
            spread = f" (from {curve['low'][-1]:.3g} to {curve['high'][-1]:.3g} across seeds)"
        each = f", drawn as means of {curve['block']} steps" if curve["block"] > 1 else ""
        sentences.append(
            f"{curve['name']}: from {curve['first']:.3g} to {curve['last']:.3g}{spread}{each}."
        )
    return " ".join(sentences)


def _loss_rows(curves: list[dict[str, Any]]) -> list[Row]:
    """At most a dozen evenly spaced points of each curve."""
    rows: list[Row] = []
    for curve in curves:
        count = len(curve["steps"])
        for i in np.unique(np.linspace(0, count - 1, min(count, 12)).round().astype(int)):
            rows.append(
                {
                    "curve": curve["name"],
                    "step": whole_number(curve["steps"][i]),
                    "mean": float(curve["mean"][i]),
                    "smallest": float(curve["low"][i]),
                    "largest": float(curve["high"][i]),
                }
            )
    return rows
