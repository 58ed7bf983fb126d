"""Maps of several mechanisms on one text side by side, whatever their units."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_list, check_mapping, check_size, check_texts
from attnlab.core.arrays import Array, numbers, tokens_for
from attnlab.figures.labels import escaped, labels, sentence
from attnlab.figures.layout import (
    bare_axis,
    hatching,
    label_width,
    layout,
    note,
    text_width,
    untrained_note,
)
from attnlab.figures.picture import Picture, Row
from attnlab.figures.scales import colour_bar
from attnlab.figures.theme import CIVIDIS, Theme, colours, theme_name

MOST_MAPS, MOST_TOKENS, MOST_COLUMNS = 24, 64, 8
_SIDE, _GAP, _NAME, _LABEL, _LEVELS = 160, 14, 20, 18, 255


def map_gallery(
    maps: Mapping[str, Any],
    tokens: Sequence[Any] | None = None,
    *,
    title: str,
    columns: int = 4,
    untrained: Collection[str] = (),
    theme: str | None = None,
) -> Picture:
    """One small map (n, n) for each name, rows take from columns: ``{"FNet": map, "full": map}``.

    Weights of attention, kernels and Jacobian norms have different units, so every map has a colour
    scale of its own, from 0 to its largest magnitude, which the table gives; colours grow with the
    square root, so that small numbers show. Cells that are exactly 0 are hatched: no softmax gives
    them, so they are out of reach. ``untrained`` holds the names of maps whose weights nobody
    trained: a label above the name says so. ``lens.side_by_side.map_of`` and ``lens.mixing``
    compute maps.
    """
    check_texts(title=title)
    found = check_mapping("maps", maps, '{"FNet": map}')
    if len(found) > MOST_MAPS:
        raise ValueError(f"at most {MOST_MAPS} maps have room, got {len(found)}")
    across = min(check_size("columns", columns, MOST_COLUMNS, "maps side by side"), len(found))
    sizes = {name: _square(name, values) for name, values in found.items()}
    n = len(next(iter(sizes.values())))
    for name, values in sizes.items():
        if len(values) != n:
            raise ValueError(
                f"the map {name!r} should be of {n} tokens like the first one, got {len(values)}"
            )
    texts = labels(tokens_for("tokens", tokens, n, "tokens (rows of each map)"))
    of_nobody = check_list("untrained", untrained)
    if strange := [name for name in of_nobody if not (isinstance(name, str) and name in sizes)]:
        raise ValueError(f"`untrained` should hold names of `maps`, got {strange[0]!r:.80}")
    theme = theme_name(theme)
    look = colours(theme)
    traces = [
        _trace(values, name, place, texts) for place, (name, values) in enumerate(sizes.items())
    ]
    rows = [_row(name, values) for name, values in sizes.items()]
    return Picture(
        traces,
        _page(theme, look, title, sizes, across, of_nobody),
        description=_description(title, rows, n, of_nobody),
        rows=rows,
        theme=theme,
    )


def _square(name: str, values: Any) -> Array:
    array = np.abs(numbers(name, values, "n n"))
    n, m = array.shape
    if n != m or n > MOST_TOKENS:
        raise ValueError(
            f"the map {name!r} should have as many rows as columns, at most {MOST_TOKENS}, got "
            f"{n} × {m}"
        )
    return array


def _trace(values: Array, name: str, place: int, texts: Sequence[str]) -> go.Heatmap:
    """Levels 0 … 255 in a byte each; 0 is for zero alone."""
    levels = np.rint(_LEVELS * np.sqrt(values / max(float(values.max()), 1e-30)))
    levels = np.maximum(levels, values > 0).astype(np.uint8)
    number = "" if place == 0 else str(place + 1)
    return go.Heatmap(
        z=levels,
        x=[f"{at}: {text}" for at, text in enumerate(texts)],
        y=[f"{at}: {text}" for at, text in enumerate(texts)],
        xaxis=f"x{number}",
        yaxis=f"y{number}",
        coloraxis="coloraxis",
        name=escaped(name),
        hovertemplate=f"{escaped(name)}<br>%{{y}} takes of %{{x}}<extra></extra>",
    )


def _page(
    theme: str,
    look: Theme,
    title: str,
    maps: Mapping[str, Array],
    across: int,
    untrained: list[str],
) -> dict[str, Any]:
    down = -(-len(maps) // across)
    n = len(next(iter(maps.values())))
    above = _NAME + (_LABEL if untrained else 0)
    inner = across * (_SIDE + _GAP) - _GAP, down * (_SIDE + above + _GAP) - _GAP
    margin: dict[str, float] = {"l": 16, "r": 120, "t": 44, "b": 30}
    width = max(inner[0] + margin["l"] + margin["r"], text_width(title, 16.5) + 16)
    margin["r"] = width - inner[0] - margin["l"]
    height = inner[1] + margin["t"] + margin["b"]
    page = layout(look, title, width=width, height=height, margin=margin)
    notes, images = [], []
    for place, (name, values) in enumerate(maps.items()):
        row, column = divmod(place, across)
        left, top = column * (_SIDE + _GAP), row * (_SIDE + above + _GAP) + above
        number = "" if place == 0 else str(place + 1)
        ends = {"range": [-0.5, n - 0.5], "anchor": f"y{number}"}
        page[f"xaxis{number}"] = bare_axis(
            look, domain=_domain(left, left + _SIDE, inner[0]), type="category", **ends
        )
        page[f"yaxis{number}"] = bare_axis(
            look, domain=_domain(inner[1] - top - _SIDE, inner[1] - top, inner[1]),
            type="category", range=[n - 0.5, -0.5], anchor=f"x{number}",
        )  # fmt: skip
        places = {"xanchor": "left", "yanchor": "bottom", "yshift": 2}
        shown = _fitting(name)
        notes.append(note(look, shown, left / inner[0], 1 - top / inner[1], **places))
        if name in untrained:
            place_of = {"yanchor": "bottom", "xshift": 3, "yshift": _NAME}
            notes.append(untrained_note(look, left / inner[0], 1 - top / inner[1], **place_of))
        if (values == 0).any():
            images.append(hatching(values == 0, f"x{number}", f"y{number}", theme))
    caption = "rows take from columns" + (" · hatched: exactly 0" if images else "")
    notes.append(note(look, caption, 0, 0, xanchor="left", yanchor="top", yshift=-8))
    bar = colour_bar(
        look,
        "share of the map's largest, square root",
        [0, _LEVELS / 2, _LEVELS],
        ["0", "¼", "1"],
        180,
    )
    page["coloraxis"] = {
        "colorscale": [[at / (len(CIVIDIS) - 1), colour] for at, colour in enumerate(CIVIDIS)],
        "cmin": 0,
        "cmax": _LEVELS,
        "colorbar": bar,
    }
    page["annotations"], page["images"] = notes, images
    return page


def _fitting(name: str) -> str:
    """A name above a map; where it is wider than the map, what stands before its colon or bracket,
    with as many letters as fit."""
    text = name if _fits(name) else re.split(r":| \(", name)[0]
    while not _fits(text) and len(text) > 1:
        text = f"{text.rstrip('…')[:-1]}…"
    return escaped(text)


def _fits(text: str) -> bool:
    return label_width(text, 11) <= _SIDE + _GAP


def _domain(start: float, end: float, whole: float) -> list[float]:
    return [round(max(0.0, start / whole), 5), round(min(1.0, end / whole), 5)]


def _row(name: str, values: Array) -> Row:
    n = len(values)
    back = np.arange(n)[:, None] - np.arange(n)
    total = float(values.sum()) or 1.0
    return {
        "map": name,
        "largest": float(f"{values.max():.3g}"),
        "mean distance (tokens)": round(float((values * np.abs(back)).sum() / total), 2),
        "of tokens to come": f"{round(100 * float(values[back < 0].sum()) / total)} %",
        "same along each diagonal": "yes" if _toeplitz(values) else "no",
    }


def _toeplitz(values: Array) -> bool:
    """Whether it depends on the distance alone, up to a thousandth of the largest."""
    apart = np.abs(values[1:, 1:] - values[:-1, :-1])
    return bool((apart <= 1e-3 * max(float(values.max()), 1e-30)).all())


def _description(title: str, rows: Sequence[Row], n: int, untrained: list[str]) -> str:
    same = [str(row["map"]) for row in rows if row["same along each diagonal"] == "yes"]
    words = "None of them is" if not same else f"{', '.join(same)}:"
    known = [str(row["map"]) for row in rows if row["map"] in untrained]
    nobody = f" Nobody trained the weights of {', '.join(known)}." if known else ""
    ends = "the same along each diagonal, so that it depends on the distance alone."
    return (
        f"{sentence(title)} {len(rows)} maps of {n} tokens, each on a colour scale of its own. "
        f"{words} {ends}{nobody}"
    )
