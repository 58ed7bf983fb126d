"""Scores of many models on many tasks: a row per model, a column per task, a mark per seed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from attnlab.core.arguments import check_mapping, check_positive, check_texts
from attnlab.core.arrays import Array, numbers
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis, label_width, layout, note, text_width
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import MARKERS, SERIES, Theme, colours, theme_name

NARROWEST, LINE, REACH = 60, 32, 0.42  # pixels of a column and a row; half a scale, in columns
_LEARNED, _BETWEEN, _GUESSING = range(3)
_LOOK = ((SERIES[2], MARKERS[0]), (SERIES[0], MARKERS[1]), (SERIES[1], MARKERS[4]))

Scores = Mapping[str, Mapping[str, Sequence[float]]]


def score_table(
    scores: Scores,
    *,
    title: str,
    guesses: Mapping[str, float],
    learned: float = 95,
    near: float = 5,
    theme: str | None = None,
) -> Picture:
    """In each cell the mean in per cent; under it a scale from 0 to 100 with a mark for each seed.

    ``scores`` maps a column (a task) to rows (a model) to one number per seed, ``guesses`` a column
    to what a guess gets, which is a stroke on the scale. Three kinds of cells differ by colour and
    symbol: every seed has ``learned`` or more; the mean is at most ``near`` points above the guess;
    all others. Rows stand in the order in which they first come; a cell that was not measured has
    a dash.
    """
    check_texts(title=title)
    example = '{"copying": {"full": [99.0, 98.5]}}'
    for task, rows in check_mapping("scores", scores, example).items():
        check_mapping(task, rows, '{"full": [99.0, 98.5]}')
    found = {
        task: {name: _percent(f"{task}, {name}", seeds) for name, seeds in rows.items()}
        for task, rows in scores.items()
    }
    floors = check_mapping("guesses", guesses, '{"copying": 6.25}')
    if missing := sorted(set(found) - set(floors)):
        raise ValueError(f"`guesses` should say what a guess gets in {', '.join(missing)}")
    floor = {task: float(_percent(f"guesses, {task}", [floors[task]])[0]) for task in found}
    learned, near = check_positive("learned", learned), check_positive("near", near)
    names = list(dict.fromkeys(name for rows in found.values() for name in rows))
    kinds = {
        (task, name): _kind(seeds, floor[task], learned, near)
        for task, rows in found.items()
        for name, seeds in rows.items()
    }
    theme = theme_name(theme)
    look = colours(theme)
    table = _rows(found, kinds)
    key = (
        f"● {learned:g} % or more in every seed   ◆ between   ✕ at most {near:g} points above "
        "guessing, which is the stroke"
    )
    return Picture(
        _traces(look, found, floor, names, kinds),
        _page(look, title, list(found), names, key),
        description=_description(title, found, names, kinds, learned),
        rows=table,
        theme=theme,
    )


def _percent(what: str, seeds: Any) -> Array:
    values = numbers(what, seeds, "seeds")
    if values.min() < 0 or values.max() > 100:
        raise ValueError(
            f"{what} should be per cent, from 0 to 100, got {float(values.min()):g} to "
            f"{float(values.max()):g}"
        )
    return values


def _kind(seeds: Array, floor: float, learned: float, near: float) -> int:
    if seeds.min() >= learned:
        return _LEARNED
    return _GUESSING if seeds.mean() <= floor + near else _BETWEEN


def _traces(
    look: Theme, found: Mapping[str, Mapping[str, Array]], floor: Mapping[str, float],
    names: list[str], kinds: Mapping[tuple[str, str], int],
) -> list[go.Scatter]:  # fmt: skip
    scales, strokes = _Points(), _Points()
    means, dashes = _Points(), _Points()
    marks = [_Points() for _ in _LOOK]
    for column, (task, rows) in enumerate(found.items()):
        for at, name in enumerate(names):
            if name not in rows:
                dashes.add(column, at, "–")
                continue
            low, line = at + 0.16, at + 0.28
            scales.add(_place(column, 0), line).add(_place(column, 100), line).gap()
            guess = _place(column, floor[task])
            strokes.add(guess, low).add(guess, at + 0.4).gap()
            means.add(column, at - 0.16, f"{float(rows[name].mean()):.0f}")
            for value in rows[name].tolist():
                marks[kinds[task, name]].add(_place(column, value), line, f"{name}: {value:.4g} %")
    traces = [
        scales.lines(look.quiet, 1),
        strokes.lines(look.quiet, 2),
        *(points.marks(*style) for points, style in zip(marks, _LOOK, strict=True)),
        means.texts(look.ink, 13),
        dashes.texts(look.quiet, 13),
    ]
    return [trace for trace in traces if trace is not None]


def _place(column: int, value: float) -> float:
    return round(column + REACH * (value / 50 - 1), 4)


class _Points:
    """Points of one trace, with a text each."""

    def __init__(self) -> None:
        self.x: list[float] = []
        self.y: list[float] = []
        self.text: list[str] = []

    def add(self, x: float, y: float, text: str = "") -> "_Points":
        self.x.append(x)
        self.y.append(y)
        self.text.append(escaped(text) if text else "")
        return self

    def gap(self) -> None:
        self.add(math.nan, math.nan)

    def lines(self, colour: str, width: float) -> go.Scatter | None:
        return self._trace(mode="lines", line={"color": colour, "width": width}, hoverinfo="skip")

    def marks(self, colour: str, symbol: str) -> go.Scatter | None:
        return self._trace(
            mode="markers",
            marker={"color": colour, "size": 8, "symbol": symbol},
            text=self.text,
            hovertemplate="%{text}<extra></extra>",
        )

    def texts(self, colour: str, size: int) -> go.Scatter | None:
        font = {"color": colour, "size": size}
        return self._trace(mode="text", text=self.text, textfont=font, hoverinfo="skip")

    def _trace(self, **given: Any) -> go.Scatter | None:
        return go.Scatter(x=self.x, y=self.y, showlegend=False, **given) if self.x else None


def _page(
    look: Theme, title: str, tasks: list[str], names: list[str], key: str
) -> dict[str, Any]:  # fmt: skip
    left = 22 + round(max(label_width(escaped(name), 11) for name in names))
    column = max(NARROWEST, *(label_width(escaped(task), 11) + 4 for task in tasks))
    wide = column * len(tasks)
    full = max(left + wide + 20, text_width(title, 16.5) + 16, text_width(key, 10) + left)
    page = layout(
        look,
        title,
        width=full,
        height=62 + LINE * len(names) + 34,
        margin={"l": left, "r": full - left - wide, "t": 62, "b": 34},
        xaxis=axis(
            look,
            range=[-0.5, len(tasks) - 0.5],
            side="top",
            tickmode="array",
            tickvals=list(range(len(tasks))),
            ticktext=[escaped(task) for task in tasks],
            showgrid=False,
            ticks="",
            fixedrange=True,
        ),
        yaxis=axis(
            look,
            range=[len(names) - 0.5, -0.5],
            tickmode="array",
            tickvals=list(range(len(names))),
            ticktext=[escaped(name) for name in names],
            showgrid=False,
            ticks="",
            fixedrange=True,
        ),
    )
    below = note(look, key, 0, 0, xanchor="left", yanchor="top")
    page["annotations"] = [below | {"yshift": -8}]
    return page


def _rows(
    found: Mapping[str, Mapping[str, Array]], kinds: Mapping[tuple[str, str], int]
) -> list[Row]:
    words = ("learned", "between", "guessing")
    return [
        {
            "task": task,
            "model": name,
            "mean": round(float(seeds.mean()), 1),
            "smallest": round(float(seeds.min()), 1),
            "largest": round(float(seeds.max()), 1),
            "seeds": len(seeds),
            "kind": words[kinds[task, name]],
        }
        for task, rows in found.items()
        for name, seeds in rows.items()
    ]


def _description(
    title: str, found: Mapping[str, Mapping[str, Array]], names: list[str],
    kinds: Mapping[tuple[str, str], int], learned: float,
) -> str:  # fmt: skip
    sentences = [
        f"{title}. {len(names)} models, {len(found)} tasks, right answers in per cent, a mark for "
        f"each seed."
    ]
    for task, rows in found.items():
        able = [name for name in rows if kinds[task, name] == _LEARNED]
        said = f"{learned:g} % or more in every seed: {', '.join(able)}" if able else "none"
        best = max(rows, key=lambda name: float(rows[name].mean()))
        most = "" if able else f" has {learned:g} % in every seed; the best mean is that of {best}"
        sentences.append(f"{task}: {said}{most}.")
    return " ".join(sentences)
