"""The receptive field of one pixel, drawn on the image, for several mechanisms side by side.

A mask (n, n) does not show distances in the image: the neighbour above a pixel is a whole image row
away from it in the sequence. Here each panel has the shape of the image. The query is a blue
circle, its receptive field is orange, darker where fewer layers are needed; pixels that are not
generated yet are hatched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from attnlab.core.arguments import check_list, check_mapping, check_texts
from attnlab.core.arrays import Array, plain
from attnlab.core.integers import check_integer
from attnlab.figures.labels import escaped, sentence
from attnlab.figures.layout import add_player, bare_axis, hatching, layout, note, text_width
from attnlab.figures.picture import Picture, Row
from attnlab.figures.scales import colour_bar
from attnlab.figures.theme import QUERY, Theme, blend, colours, theme_name

MOST_PANELS = 12
MOST_LAYERS = 6
LARGEST = 64  # pixels on a side
SOON, LATE = "#d55e00", "#f3d3bd"
_SIDE, _ABOVE, _BETWEEN = 136, 26, 17  # of a panel, the room for its name, beside it

Mask = NDArray[np.bool_]


def pixel_receptive_field(
    panels: Mapping[str, Any],
    pixel: tuple[int, int],
    *,
    title: str,
    future: Mapping[str, Any] | None = None,
    blocks: Mapping[str, Any] | None = None,
    theme: str | None = None,
) -> Picture:
    """The pixels that can influence the pixel (row, column), in a panel for each name.

    ``panels`` maps a name to a mask (height, width), True = in the receptive field, or to several
    of them (layers, height, width), one after each layer: then a slider shows the layers.
    ``future`` holds masks of pixels that are not generated yet, ``blocks`` whole numbers (height,
    width) that number the blocks; both are keyed by the names of panels, and may lack some.
    """
    check_texts(title=title)
    fields = _fields(check_mapping("panels", panels, '{"window": mask}'))
    layers, height, width = next(iter(fields.values())).shape
    pixel = _inside(pixel, height, width)
    for name, given in (("future", future), ("blocks", blocks)):
        _known_names(name, given, fields)
    theme = theme_name(theme)
    look = colours(theme)
    where = _Places(len(fields), height, width)
    page = _page(look, title, where, fields, layers)
    hidden = [_like(f"future: {n}", (future or {}).get(n), height, width) for n in fields]
    if any(mask.any() for mask in hidden):
        cover = hatching(where.mosaic(hidden) > 0, "x", "y", theme, lines=26 * where.across)
        page["images"] = [cover | {"layer": "below"}]
        page["annotations"][-1]["text"] += " · hatched: not generated yet"
    first = [np.where(field.any(0), field.argmax(0) + 1, 0) for field in fields.values()]
    films = [
        where.mosaic([np.where(one <= layer, one, 0) for one in first])
        for layer in range(1, layers + 1)
    ]
    labels = [_like(f"blocks: {n}", (blocks or {}).get(n), height, width) for n in fields]
    traces = [_cells(films[-1], where), _lines(where, look), _edges(where, labels, look)]
    traces.append(_query_markers(where, pixel))
    frames = []
    if layers > 1:
        add_player(page, look, range(1, layers + 1), "after layer")
        frames = [
            go.Frame(name=str(layer), data=[{"type": "heatmap", "z": _drawn(cells)}], traces=[0])
            for layer, cells in enumerate(films, 1)
        ]
    rows = _rows(fields)
    return Picture(
        traces,
        page,
        frames,
        description=_description(title, pixel, fields, rows),
        rows=rows,
        theme=theme,
    )


# what may be drawn


def _fields(panels: Mapping[str, Any]) -> dict[str, Mask]:
    if not 1 <= len(panels) <= MOST_PANELS:
        raise ValueError(f"one to {MOST_PANELS} panels have room, got {len(panels)}")
    fields = {}
    for name, given in panels.items():
        axes = len(getattr(given, "shape", np.shape(given)))
        mask = plain(name, given, "layers height width" if axes == 3 else "height width")
        if mask.dtype != bool:
            raise TypeError(f"{name!r} should be bool (True = is seen), got {mask.dtype}")
        fields[name] = mask.reshape(-1, *mask.shape[-2:])
    shapes = {field.shape for field in fields.values()}
    if len(shapes) > 1:
        raise ValueError(f"panels show the same image after the same layers, got {sorted(shapes)}")
    ((layers, height, width),) = shapes
    if layers > MOST_LAYERS or max(height, width) > LARGEST:
        raise ValueError(
            f"at most {MOST_LAYERS} layers and {LARGEST} × {LARGEST} pixels have room, got "
            f"{layers} layers and {height} × {width} pixels"
        )
    return fields


def _inside(pixel: tuple[int, int], height: int, width: int) -> tuple[int, int]:
    place = check_list("pixel", pixel)
    if len(place) != 2:
        raise ValueError(f"`pixel` should be (row, column), got {pixel!r}")
    row, column = (check_integer("a row or column of `pixel`", number) for number in place)
    if not (0 <= row < height and 0 <= column < width):
        raise ValueError(f"pixel {(row, column)} is outside of an image of {height} × {width}")
    return row, column


def _known_names(what: str, given: object, fields: Mapping[str, Mask]) -> None:
    if given is None:
        return
    given = check_mapping(what, given, '{"window": mask}')
    unknown = sorted(set(given) - set(fields))
    if unknown:
        raise ValueError(f"`{what}` names {unknown}, and the panels are {list(fields)}")


def _like(name: str, given: Any, height: int, width: int) -> Array:
    """An array of the image's size; zeros where nothing is given."""
    if given is None:
        return np.zeros((height, width), int)
    array = plain(name, given, "height width")
    if array.shape != (height, width):
        raise ValueError(f"`{name}` should have shape {(height, width)}, got {array.shape}")
    return array


# where the panels are


@dataclass(frozen=True)
class _Places:
    """Panels in rows of at most four, all in one grid of cells."""

    count: int
    height: int
    width: int

    @property
    def across(self) -> int:
        return self.count if self.count <= 4 else -(-self.count // -(-self.count // 4))

    @property
    def down(self) -> int:
        return -(-self.count // self.across)

    @property
    def cell(self) -> int:
        """The side of a cell on the page, in pixels."""
        room = _SIDE * (1.35 if self.count <= 3 else 1)
        return max(3, round(room / max(self.height, self.width)))

    @property
    def gaps(self) -> tuple[int, int]:
        """Empty cells below a panel, for the next one's name, and beside it."""
        return -(-_ABOVE // self.cell), -(-_BETWEEN // self.cell)

    @property
    def size(self) -> tuple[int, int]:
        below, beside = self.gaps
        tall, wide = self.height + below, self.width + beside
        return self.down * tall - below, self.across * wide - beside

    def corner(self, at: int) -> tuple[int, int]:
        below, beside = self.gaps
        row, column = divmod(at, self.across)
        return row * (self.height + below), column * (self.width + beside)

    def mosaic(self, images: Sequence[Array]) -> Array:
        """All panels in one array, zeros between them."""
        mosaic = np.zeros(self.size, np.uint8)
        for at, image in enumerate(images):
            top, left = self.corner(at)
            mosaic[top : top + self.height, left : left + self.width] = image
        return mosaic


# how it is drawn


def _cells(cells: Array, where: _Places) -> go.Heatmap:
    return go.Heatmap(z=_drawn(cells), coloraxis="coloraxis", hoverinfo="skip")


def _drawn(cells: Array) -> NDArray[np.float32]:
    """The layers as numbers; pixels outside the receptive field are NaN, which stays blank."""
    return np.where(cells > 0, cells, np.nan).astype(np.float32)


def _lines(where: _Places, look: Theme) -> go.Scatter:
    """The edges of all pixels."""
    x: list[float] = []
    y: list[float] = []
    for at in range(where.count):
        top, left = where.corner(at)
        for row in range(where.height + 1):
            x += [left - 0.5, left + where.width - 0.5, np.nan]
            y += [top + row - 0.5] * 2 + [np.nan]
        for column in range(where.width + 1):
            x += [left + column - 0.5] * 2 + [np.nan]
            y += [top - 0.5, top + where.height - 0.5, np.nan]
    return _drawing(x, y, look.grid, 1)


def _edges(where: _Places, labels: Sequence[Array], look: Theme) -> go.Scatter:
    """The edges between pixels of different blocks."""
    x: list[float] = []
    y: list[float] = []
    for at, label in enumerate(labels):
        top, left = where.corner(at)
        for row, column in np.argwhere(label[1:] != label[:-1]):
            x += [left + column - 0.5, left + column + 0.5, np.nan]
            y += [top + row + 0.5] * 2 + [np.nan]
        for row, column in np.argwhere(label[:, 1:] != label[:, :-1]):
            x += [left + column + 0.5] * 2 + [np.nan]
            y += [top + row - 0.5, top + row + 0.5, np.nan]
    return _drawing(x, y, look.ink, 1.5)


def _drawing(x: list[float], y: list[float], colour: str, width: float) -> go.Scatter:
    places = (np.array(values, np.float32) for values in (x, y))
    return go.Scatter(
        **dict(zip("xy", places, strict=True)),
        mode="lines",
        line={"color": colour, "width": width},
        hoverinfo="skip",
    )


def _query_markers(where: _Places, pixel: tuple[int, int]) -> go.Scatter:
    corners = [where.corner(at) for at in range(where.count)]
    colour, symbol = QUERY
    return go.Scatter(
        x=[left + pixel[1] for _, left in corners],
        y=[top + pixel[0] for top, _ in corners],
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": round(0.62 * where.cell)},
        hoverinfo="skip",
    )


def _page(
    look: Theme, title: str, where: _Places, fields: Mapping[str, Mask], layers: int
) -> dict[str, Any]:
    tall, wide = where.size
    high, broad = tall * where.cell, wide * where.cell
    full = max(broad + 40 + (110 if layers > 1 else 0), text_width(title, 16.5) + 16)
    edges: dict[str, Any] = {"fixedrange": True, "visible": False}
    page = layout(
        look,
        title,
        width=full,
        height=high + 76 + 34,
        margin={"l": 20, "r": full - broad - 20, "t": 76, "b": 34},
        xaxis=bare_axis(look, range=[-0.5, wide - 0.5]) | edges,
        yaxis=bare_axis(look, range=[tall - 0.5, -0.5]) | edges,
        coloraxis=_colours(look, layers),
    )
    page["plot_bgcolor"] = look.paper
    page["annotations"] = [
        note(
            look,
            f"{escaped(name)} · {int(field[-1].sum())}",
            (where.corner(at)[1]) / wide,
            1 - where.corner(at)[0] / tall,
        )
        | {"xanchor": "left", "yanchor": "bottom", "font": {"size": 12, "color": look.ink}}
        for at, (name, field) in enumerate(fields.items())
    ]
    caption = "● query · orange: its receptive field and its size"
    page["annotations"].append(note(look, caption, 0, 0, xanchor="left", yanchor="top", yshift=-8))
    return page


def _colours(look: Theme, layers: int) -> dict[str, Any]:
    """A colour for each layer, in steps."""
    shades = [blend((SOON, LATE), at / max(1, layers - 1)) for at in range(layers)]
    steps = [[end / layers, shade] for at, shade in enumerate(shades) for end in (at, at + 1)]
    axis: dict[str, Any] = {"colorscale": steps, "cmin": 0.5, "cmax": layers + 0.5}
    if layers == 1:
        return axis | {"showscale": False}
    values = list(range(1, layers + 1))
    names = [str(layer) for layer in values]
    return axis | {"colorbar": colour_bar(look, "arrives after layer", values, names, 150)}


# descriptions


def _rows(fields: Mapping[str, Mask]) -> list[Row]:
    return [
        {
            "panel": name,
            "after layer": layer,
            "pixels": int(known.sum()),
            "rows": int(known.any(1).sum()),
            "columns": int(known.any(0).sum()),
        }
        for name, field in fields.items()
        for layer, known in enumerate(field, 1)
    ]


def _description(
    title: str, pixel: tuple[int, int], fields: Mapping[str, Mask], rows: Sequence[Row]
) -> str:
    layers, height, width = next(iter(fields.values())).shape
    counts_by_panel = []
    for name in fields:
        counts = [str(row["pixels"]) for row in rows if row["panel"] == name]
        counts_by_panel.append(f"{name}: {', '.join(counts)}")
    after = "" if layers == 1 else f" after 1 … {layers} layers"
    return (
        f"{sentence(title)} Pixels in the receptive field of the pixel in row {pixel[0]}, column "
        f"{pixel[1]} of {height} × {width}{after}: {'; '.join(counts_by_panel)}."
    )
