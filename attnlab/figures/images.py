"""Small grey images side by side: samples of several models, masks of single pixels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_grid_names, check_positive, check_texts
from attnlab.core.arrays import Array, numbers
from attnlab.figures.examples import GREYS
from attnlab.figures.labels import escaped
from attnlab.figures.layout import bare_axis, label_width, layout, note, text_width
from attnlab.figures.picture import Picture
from attnlab.figures.theme import Theme, colours, theme_name

MOST_PIXELS = 40_000
GAP = 1  # empty pixels between two images


def image_grid(
    images: Any,
    *,
    title: str,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    largest: float | None = None,
    theme: str | None = None,
) -> Picture:
    """Images (rows, columns, height, width), zero is light, on one scale up to ``largest``.

    ``rows`` and ``columns`` name them, where given; ``largest`` is by default the largest value.
    """
    check_texts(title=title)
    images = numbers("images", images, "rows columns height width")
    rows, columns = check_grid_names("images", images.shape[:2], rows, columns)
    down, across, height, width = images.shape
    _refuse(images)
    theme = theme_name(theme)
    look = colours(theme)
    cells = _mosaic(images)
    high = float(images.max()) if largest is None else check_positive("largest", largest)
    trace = go.Heatmap(
        z=cells.astype(np.float32),
        coloraxis="coloraxis",
        hoverongaps=False,
        hovertemplate="value %{z:.4~g}<extra></extra>",
    )
    size = f"{down * across} images of {height} × {width} pixels"
    named = f", rows: {', '.join(rows)}" if rows else ""
    named += f", columns: {', '.join(columns)}" if columns else ""
    return Picture(
        [trace],
        _page(look, title, images.shape, rows, columns, high),
        description=f"{title}. {size}, from 0 (light) to {high:.4g} (dark){named}.",
        rows=_table(images, rows, columns),
        theme=theme,
    )


def _refuse(images: Array) -> None:
    if images.size > MOST_PIXELS:
        raise ValueError(f"{images.size:,} pixels are too many to draw: at most {MOST_PIXELS:,}")


def _mosaic(images: Array) -> Array:
    """All images in one array, with gaps of NaN between them."""
    down, across, height, width = images.shape
    room = ((0, 0), (0, 0), (0, GAP), (0, GAP))
    parted = np.pad(images.astype(float), room, constant_values=np.nan).swapaxes(1, 2)
    mosaic = parted.reshape(down * (height + GAP), across * (width + GAP))
    return np.asarray(mosaic[:-GAP, :-GAP])


def _page(
    look: Theme,
    title: str,
    shape: tuple[int, ...],
    rows: Sequence[str],
    columns: Sequence[str],
    high: float,
) -> dict[str, Any]:
    down, across, height, width = shape
    tall, wide = down * (height + GAP) - GAP, across * (width + GAP) - GAP
    pixel = max(2.0, min(12.0, 640 / wide, 420 / tall))
    left = 20 + max((round(label_width(escaped(row))) for row in rows), default=0)
    full = max(left + wide * pixel + 20, text_width(title, 16.5) + 16)
    edges: dict[str, Any] = {"fixedrange": True, "showline": False}
    page = layout(
        look,
        title,
        width=full,
        height=tall * pixel + (74 if columns else 52) + 16,
        margin={"l": left, "r": full - left - wide * pixel, "t": 74 if columns else 52, "b": 16},
        coloraxis={
            "colorscale": [[i / (len(GREYS) - 1), grey] for i, grey in enumerate(GREYS)],
            "cmin": 0,
            "cmax": high or 1,
            "showscale": False,
        },
        xaxis=bare_axis(look, range=[-0.5, wide - 0.5]) | edges,
        yaxis=bare_axis(look, range=[tall - 0.5, -0.5]) | edges,
    )
    page["plot_bgcolor"] = look.paper
    page["annotations"] = [
        note(look, escaped(row), 0, 1 - (at * (height + GAP) + height / 2) / tall)
        | {"xanchor": "right", "yanchor": "middle", "xshift": -8}
        for at, row in enumerate(rows)
    ] + [
        note(look, escaped(column), (at * (width + GAP) + width / 2) / wide, 1)
        | {"xanchor": "center", "yanchor": "bottom", "yshift": 2}
        for at, column in enumerate(columns)
    ]
    return page


def _table(
    images: Array, rows: Sequence[str], columns: Sequence[str]
) -> list[dict[str, str | float]]:
    down, across = images.shape[:2]
    return [
        {
            "row": rows[i] if rows else i,
            "column": columns[j] if columns else j,
            "mean": round(float(images[i, j].mean()), 3),
            "pixels above zero": int((images[i, j] > 0).sum()),
        }
        for i in range(down)
        for j in range(across)
    ]
