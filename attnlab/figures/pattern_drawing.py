"""How patterns are drawn: blocks, bitmaps, hatching and panels."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from attnlab.figures.labels import escaped, tick_step
from attnlab.figures.layout import (
    axis,
    bare_axis,
    hatching,
    layout,
    note,
    text_width,
)
from attnlab.figures.svg import png
from attnlab.figures.theme import SERIES, Theme

Mask = NDArray[np.bool_]
_INK, _LINE, _FRAME = SERIES[0], "#808080", "#ffffff"
SIDE = 430


@dataclass(frozen=True)
class Blocks:
    """The pairs in each block of a mask, and how many fit."""

    size: int
    length: int
    pairs: NDArray[np.int64]
    cells: NDArray[np.int64]

    @property
    def full(self) -> Mask:
        return np.asarray(self.pairs == self.cells)

    @property
    def empty(self) -> Mask:
        return np.asarray(self.pairs == 0)

    @property
    def mixed(self) -> Mask:
        return ~self.full & ~self.empty

    def ends(self, at: Any) -> tuple[Any, Any]:
        """The first and the last position of the blocks with these indices."""
        return at * self.size, np.minimum((at + 1) * self.size, self.length) - 1


def blocks_of(mask: Mask, size: int) -> Blocks:
    starts = np.arange(0, len(mask), size)

    def summed(cells: Any) -> Any:
        rows = np.add.reduceat(cells.astype(np.int64), starts, axis=0)
        return np.add.reduceat(rows, starts, axis=1)

    return Blocks(size, len(mask), summed(mask), summed(np.ones_like(mask)))


def overlays(
    mask: Mask, blocks: Blocks, x: str, y: str, theme: str, side: float
) -> list[dict[str, Any]]:
    """The cells with their blocks' lines, and the hatching of empty blocks."""
    n = len(mask)
    drawings = [_cells(mask, blocks, x, y, n / side)]
    hidden = np.kron(blocks.empty, np.ones((blocks.size, blocks.size), bool))[:n, :n]
    return [*drawings, hatching(hidden, x, y, theme)] if hidden.any() else drawings


def _cells(mask: Mask, blocks: Blocks, x: str, y: str, pixel: float) -> dict[str, Any]:
    """One drawing: a bitmap with a pixel per pair, lines between blocks, frames in full ones."""
    n = len(mask)
    data = b64encode(png(np.where(mask, 0, -1), [_INK])).decode()
    lines = "".join(f"M{at} 0V{n}M0 {at}H{n}" for at in range(0, n + 1, blocks.size))
    frames = "".join(_framed(blocks, i, j, 3 * pixel) for i, j in np.argwhere(blocks.full))
    drawing = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {n} {n}" width="{40 * n}" '
        f'height="{40 * n}" preserveAspectRatio="none"><image width="{n}" height="{n}" '
        'preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{data}"/><g fill="none"><path d="{lines}" stroke="{_LINE}" '
        f'stroke-width="{pixel:.3f}"/><path d="{frames}" stroke="{_FRAME}" '
        f'stroke-width="{1.5 * pixel:.3f}"/></g></svg>'
    )
    return {
        "source": "data:image/svg+xml," + quote(drawing, safe=" =:/'(),;+"),
        "xref": x,
        "yref": y,
        "x": -0.5 - 1e-6,  # plotly drops one of two images at the same place
        "y": -0.5,
        "sizex": n,
        "sizey": n,
        "sizing": "stretch",
        "layer": "above",
    }


def _framed(blocks: Blocks, i: int, j: int, inset: float) -> str:
    """A rectangle just inside a block, none where the block is too small for one."""
    (top, bottom), (left, right) = blocks.ends(i), blocks.ends(j)
    high, wide = bottom + 1 - top - 2 * inset, right + 1 - left - 2 * inset
    if min(high, wide) <= 2 * inset:
        return ""
    return f"M{left + inset:.2f} {top + inset:.2f}h{wide:.2f}v{high:.2f}h{-wide:.2f}z"


def hover_texts(blocks: Blocks, x: str, y: str) -> Iterator[go.Scatter]:
    """Invisible points whose hover texts describe the blocks."""
    for name in ("full", "mixed", "empty"):
        i, j = np.nonzero(getattr(blocks, name))
        if not len(i):
            continue
        (top, bottom), (left, right) = blocks.ends(i), blocks.ends(j)
        numbers = [top, bottom, left, right, blocks.pairs[i, j], blocks.cells[i, j]]
        yield go.Scatter(
            x=((left + right) / 2).astype(np.float32),
            y=((top + bottom) / 2).astype(np.float32),
            customdata=np.stack(numbers, 1).astype(np.int32),
            mode="none",
            name=name,
            xaxis=x,
            yaxis=y,
            hovertemplate=(
                "queries %{customdata[0]} to %{customdata[1]}<br>keys %{customdata[2]} to "
                f"%{{customdata[3]}}<br>{name}: %{{customdata[4]}} of %{{customdata[5]}} pairs"
                "<extra></extra>"
            ),
        )


def one_panel(look: Theme, title: str, n: int) -> dict[str, Any]:
    width = max(SIDE + 96, text_width(title, 16.5) + 16)
    margin: dict[str, float] = {"l": 72, "r": width - SIDE - 72, "t": 84, "b": 40}
    return layout(
        look,
        title,
        width=width,
        height=SIDE + 124,
        margin=margin,
        hovermode="closest",
        hoverdistance=-1,
        xaxis=axis(look, "keys", side="top", range=[-0.5, n - 0.5], **_ticks(n)),
        yaxis=axis(look, "queries", range=[n - 0.5, -0.5], **_ticks(n)),
    )


def _ticks(n: int) -> dict[str, Any]:
    step = max(tick_step(n), tick_step(5 * n) // 2)
    places = list(range(0, n, step))
    return {
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [str(place) for place in places],
        "showgrid": False,
        "ticks": "",
        "tickangle": 0,
    }


def legend(look: Theme) -> dict[str, Any]:
    caption = "blue: may be attended to · framed: full block · hatched: empty block"
    return note(look, caption, 0, 0, yanchor="top", xanchor="left", yshift=-10)


def panel_side(count: int) -> int:
    return 220 if count <= 4 else 150


def panel_layout(
    look: Theme, title: str, names: Sequence[str], masks: list[Mask]
) -> dict[str, Any]:
    side, gap, above, n = panel_side(len(masks)), 20, 26, len(masks[0])
    across = 2 if len(masks) == 4 else min(4, len(masks))  # four of them are wider than a notebook
    down = -(-len(masks) // across)
    wide, high = across * (side + gap) - gap, down * (side + above) - above
    width = max(wide + 40, text_width(title, 16.5) + 16)
    margin: dict[str, float] = {"l": 20, "r": width - wide - 20, "t": 70, "b": 36}
    page = layout(
        look,
        title,
        width=width,
        height=high + 106,
        margin=margin,
        hovermode="closest",
        hoverdistance=-1,
    )
    page["images"], page["annotations"] = [], [legend(look)]
    for at, (name, mask) in enumerate(zip(names, masks, strict=True)):
        left, top = at % across * (side + gap) / wide, 1 - at // across * (side + above) / high
        ends = {"x": [-0.5, n - 0.5], "y": [n - 0.5, -0.5]}
        place = {"x": (left, left + side / wide), "y": (top - side / high, top)}
        for letter, other in ("xy", "yx"):
            page[f"{letter}axis{at + 1 if at else ''}"] = bare_axis(
                look,
                range=ends[letter],
                domain=[min(max(end, 0.0), 1.0) for end in place[letter]],
                anchor=numbered(other, at),
                **({"matches": letter} if at else {}),
            )
        share = f"{escaped(name)} · {percent(mask.mean())}"
        annotation = note(look, share, left, top, xanchor="left", yanchor="bottom", yshift=3)
        page["annotations"].append(annotation)
    return page


def numbered(letter: str, at: int) -> str:
    return f"{letter}{at + 1}" if at else letter


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"
