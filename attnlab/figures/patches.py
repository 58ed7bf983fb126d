"""Small maps of a grid of patches, one per head: attention on an image, mean attention by offset.

A row of an attention matrix has one number for each key. Where the keys are the patches of an
image, the row is drawn as an image itself: brighter patches get more attention, the query's patch
carries a circle, and a line goes around the ink, so that strokes are seen through the colours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_grid_names, check_list, check_texts
from attnlab.core.arrays import Array, booleans, numbers
from attnlab.core.integers import check_integer
from attnlab.figures.labels import escaped, sentence
from attnlab.figures.layout import bare_axis, label_width, layout, note, text_width
from attnlab.figures.map_drawing import bar_length
from attnlab.figures.picture import Picture, Row
from attnlab.figures.scales import colour_axis, named, scale_end
from attnlab.figures.theme import QUERY, Theme, colours, theme_name

MOST_PATCHES = 40_000
HALO = ("#101114", "#fdfdfc")  # dark under light: seen on every colour of the scale
_GAP = 1  # empty patches between two maps

Place = tuple[int, int]
"""The row and the column of a patch."""


def patch_maps(
    maps: Any,
    *,
    title: str,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    query: Any = None,
    ink: Any = None,
    largest: float | None = None,
    quantity: str | None = None,
    root: bool | None = None,
    theme: str | None = None,
) -> Picture:
    """Maps (rows, columns, height, width) of a grid of patches, on one colour scale from 0.

    ``rows`` and ``columns`` name them, where given. ``query`` is the (row, column) of the patch
    that gets a circle, or a list of them, one for each row of maps; for mean attention by offset,
    it is the middle. ``ink`` (height, width) is True for the patches that a line goes around. The
    colours of weights of attention follow the square root, up to 1; those of another ``quantity``
    are linear, up to the largest value. ``root`` chooses between the two scales whatever the
    quantity, and ``largest`` is another end of it.
    """
    check_texts(title=title)
    quantity, root = named(quantity, root)
    maps = numbers("maps", maps, "rows columns height width")
    rows, columns = check_grid_names("maps", maps.shape[:2], rows, columns)
    _refuse(maps)
    height, width = maps.shape[2:]
    at = None if query is None else _queries(query, maps.shape)
    seen = None if ink is None else booleans("ink", ink, (height, width))
    high = scale_end(float(maps.max()), root, largest)
    theme = theme_name(theme)
    look = colours(theme)
    page = _page(look, title, maps.shape, rows, columns, _caption(at, seen))
    page["coloraxis"] = colour_axis(look, 0, high, None, quantity, bar_length(page), root=root)
    traces: list[Any] = [_cells(maps, quantity)]
    if seen is not None:
        traces += _outline(maps.shape, seen)
    if at is not None:
        traces += _marks(maps.shape, at)
    table = _table(maps, rows, columns)
    return Picture(
        traces,
        page,
        description=_description(title, maps, table, at, quantity),
        rows=table,
        theme=theme,
    )


# what may be drawn


def _refuse(maps: Array) -> None:
    if maps.size > MOST_PATCHES:
        raise ValueError(f"{maps.size:,} patches are too many to draw: at most {MOST_PATCHES:,}")
    if maps.min() < 0:
        raise ValueError("`maps` are negative somewhere, and the colours begin at 0")


def _queries(query: Any, shape: tuple[int, ...]) -> list[Place]:
    """The query's patch in each row of maps."""
    down, _, height, width = shape
    given = check_list("query", query)
    if not any(np.ndim(one) for one in given):
        return [_inside(given, height, width)] * down
    if len(given) != down:
        raise ValueError(
            f"`query` should be one (row, column), or {down} of them, one for each row of maps, "
            f"got {len(given)}"
        )
    return [_inside(one, height, width) for one in given]


def _inside(query: Any, height: int, width: int) -> Place:
    place = check_list("query", query)
    if len(place) != 2:
        raise ValueError(f"`query` should be (row, column), got {query!r:.80}")
    row, column = (check_integer("a row or column of `query`", number) for number in place)
    if not (0 <= row < height and 0 <= column < width):
        raise ValueError(f"the query {(row, column)} is outside of a map of {height} × {width}")
    return row, column


# how it is drawn


def _cells(maps: Array, quantity: str) -> go.Heatmap:
    down, across, height, width = maps.shape
    room = ((0, 0), (0, 0), (0, _GAP), (0, _GAP))
    parted = np.pad(maps, room, constant_values=np.nan).swapaxes(1, 2)
    mosaic = parted.reshape(down * (height + _GAP), across * (width + _GAP))
    return go.Heatmap(
        z=mosaic[:-_GAP, :-_GAP].astype(np.float32),
        coloraxis="coloraxis",
        hoverongaps=False,
        hovertemplate=f"{escaped(quantity)} %{{z:.4~f}}<extra></extra>",
    )


def _corners(shape: tuple[int, ...]) -> list[Place]:
    """The upper left patch of each map in the mosaic."""
    down, across, height, width = shape
    return [(i * (height + _GAP), j * (width + _GAP)) for i in range(down) for j in range(across)]


def _outline(shape: tuple[int, ...], ink: Array) -> list[go.Scatter]:
    """The edges between patches with ink and patches without."""
    padded = np.pad(ink, 1)
    x: list[float] = []
    y: list[float] = []
    for top, left in _corners(shape):
        for row, column in np.argwhere(padded[1:] != padded[:-1]).tolist():
            x += [left + column - 1.5, left + column - 0.5, np.nan]
            y += [top + row - 0.5] * 2 + [np.nan]
        for row, column in np.argwhere(padded[:, 1:] != padded[:, :-1]).tolist():
            x += [left + column - 0.5] * 2 + [np.nan]
            y += [top + row - 1.5, top + row - 0.5, np.nan]
    places = {"x": np.array(x, np.float32), "y": np.array(y, np.float32)}
    return [
        go.Scatter(**places, mode="lines", line={"color": colour, "width": width}, hoverinfo="skip")
        for colour, width in zip(HALO, (3.2, 1.4), strict=True)
    ]


def _marks(shape: tuple[int, ...], at: Sequence[Place]) -> list[go.Scatter]:
    across = shape[1]
    places = [
        (top + at[number // across][0], left + at[number // across][1])
        for number, (top, left) in enumerate(_corners(shape))
    ]
    colour, symbol = QUERY
    size = max(5, round(0.7 * _side(shape)))
    return [
        go.Scatter(
            x=[column for _, column in places],
            y=[row for row, _ in places],
            mode="markers",
            marker={"color": shade, "symbol": symbol, "size": wide},
            hoverinfo="skip",
        )
        for shade, wide in ((HALO[1], size + 3), (colour, size))
    ]


def _side(shape: tuple[int, ...]) -> float:
    """The side of a patch on the page, in pixels."""
    down, across, height, width = shape
    wide, tall = across * (width + _GAP) - _GAP, down * (height + _GAP) - _GAP
    return max(2.0, min(20.0, 640 / wide, 460 / tall))


def _page(
    look: Theme,
    title: str,
    shape: tuple[int, ...],
    rows: Sequence[str],
    columns: Sequence[str],
    caption: str,
) -> dict[str, Any]:
    down, across, height, width = shape
    tall, wide = down * (height + _GAP) - _GAP, across * (width + _GAP) - _GAP
    side = _side(shape)
    left = 20 + max((round(label_width(escaped(row))) for row in rows), default=0)
    full = max(left + wide * side + 116, text_width(title, 16.5) + 16)
    margin = {"l": left, "r": full - left - wide * side, "t": 74 if columns else 52}
    margin["b"] = 34 if caption else 16
    edges: dict[str, Any] = {"fixedrange": True, "visible": False}
    page = layout(
        look,
        title,
        width=full,
        height=tall * side + margin["t"] + margin["b"],
        margin=margin,
        xaxis=bare_axis(look, range=[-0.5, wide - 0.5]) | edges,
        yaxis=bare_axis(look, range=[tall - 0.5, -0.5]) | edges,
    )
    page["plot_bgcolor"] = look.paper
    page["annotations"] = [
        note(look, escaped(row), 0, 1 - (at * (height + _GAP) + height / 2) / tall)
        | {"xanchor": "right", "yanchor": "middle", "xshift": -8}
        for at, row in enumerate(rows)
    ] + [
        note(look, escaped(column), (at * (width + _GAP) + width / 2) / wide, 1)
        | {"xanchor": "center", "yanchor": "bottom", "yshift": 2}
        for at, column in enumerate(columns)
    ]
    if caption:
        words = {"xanchor": "left", "yanchor": "top", "yshift": -8}
        page["annotations"].append(note(look, caption, 0, 0, **words))
    return page


def _caption(at: Sequence[Place] | None, ink: Array | None) -> str:
    parts = ["● the query's patch"] * (at is not None) + ["line: around the ink"] * (
        ink is not None
    )
    return " · ".join(parts)


# descriptions


def _table(maps: Array, rows: Sequence[str], columns: Sequence[str]) -> list[Row]:
    found: list[Row] = []
    for i, j in np.ndindex(maps.shape[:2]):
        top, left = np.unravel_index(maps[i, j].argmax(), maps.shape[2:])
        found.append(
            {
                "row": rows[i] if rows else i,
                "column": columns[j] if columns else j,
                "largest": round(float(maps[i, j].max()), 4),
                "at row of the map": int(top),
                "at column of the map": int(left),
            }
        )
    return found


def _description(
    title: str, maps: Array, table: Sequence[Row], at: Sequence[Place] | None, quantity: str
) -> str:
    down, across, height, width = maps.shape
    most = max(table, key=lambda row: row["largest"])
    places = dict.fromkeys(f"row {row}, column {column}" for row, column in at or ())
    query = f" The query's patch is in {'; '.join(places)}." if places else ""
    return (
        f"{sentence(title)} {down * across} maps of {height} × {width} patches, {quantity}.{query} "
        f"Largest: {most['largest']:.4g}, in the map {most['row']}, {most['column']}, at row "
        f"{most['at row of the map']}, column {most['at column of the map']}."
    )
