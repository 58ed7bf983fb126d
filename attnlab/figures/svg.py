"""SVG elements, each as text: what figures and widgets draw with, in Python alone.

No browser and no plotly is needed. A map is one small indexed PNG inside the SVG, so the size of a
picture hardly grows with the number of its cells.
"""

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attnlab.core.markup import escape
from attnlab.figures.theme import DARK_PAGES, FONT

Point = tuple[float, float]
_SHAPES: dict[str, list[Point]] = {
    "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
    "triangle-up": [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
    "triangle-down": [(0, 1.2), (1.15, -0.9), (-1.15, -0.9)],
    "x": [
        *((0, -0.45), (0.7, -1.15), (1.15, -0.7), (0.45, 0), (1.15, 0.7), (0.7, 1.15)),
        *((0, 0.45), (-0.7, 1.15), (-1.15, 0.7), (-0.45, 0), (-1.15, -0.7), (-0.7, -1.15)),
    ],
}


def document(
    body: Iterable[str], width: float, height: float, *, description: str, paper: str
) -> str:
    """One SVG element on a background of colour ``paper``, with its alternative text."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="{escape(description)}" font-family="{escape(FONT)}" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="{paper}"/>{"".join(body)}</svg>'
    )


def image(light: str, words: str, *, dark: str | None = None) -> str:
    """A whole SVG as an HTML image with ``words`` for readers who do not see it.

    JupyterLab shows no SVG among the HTML of a notebook that is not trusted, but it shows images.
    On a dark page a rule puts the picture ``dark``, if given, in the place of the light one.
    """
    picture = _data_uri(light)
    name = f"attnlab-picture-{zlib.crc32(picture.encode()):08x}"
    rule = ""
    if dark is not None:
        rule = f"<style>{DARK_PAGES} .{name}{{content:url({_data_uri(dark)})}}</style>"
    return (
        f'{rule}<img class="{name}" alt="{escape(words)}" src="{picture}" style="max-width:100%">'
    )


def _data_uri(picture: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(picture.encode()).decode()}"


def rectangle(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str = "none",
    outline: str = "",
    outline_width: float = 1,
) -> str:
    stroke = f' stroke="{outline}" stroke-width="{outline_width:g}"' if outline else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{fill}"{stroke}/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"/>'
    )


def polyline(
    points: Iterable[Point], colour: str, width: float, *, dash: str = "", fill: str = ""
) -> str:
    """Straight lines from point to point; with ``fill``, a closed area."""
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points) + ("Z" if fill else "")
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="{path}" fill="{fill or "none"}" stroke="{colour}" stroke-width="{width:g}"'
        f"{dashes}/>"
    )


def curve(points: Sequence[Point], colour: str, width: float) -> str:
    """A cubic Bézier curve of four points."""
    (x, y), *others = points
    path = f"M{x:.1f} {y:.1f}C" + " ".join(f"{x:.1f} {y:.1f}" for x, y in others)
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:.2f}" '
        'stroke-opacity="0.75"/>'
    )


def polygon(points: Iterable[Point], fill: str) -> str:
    placed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{placed}" fill="{fill}"/>'


def marker(symbol: str, x: float, y: float, size: float, fill: str) -> str:
    """One of plotly's symbols, ``size`` pixels across."""
    r = size / 2
    if symbol == "circle":
        return f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" fill="{fill}"/>'
    return polygon([(x + r * a, y + r * b) for a, b in _SHAPES[symbol]], fill)


def text(
    content: str,
    x: float,
    y: float,
    *,
    size: float = 12,
    fill: str = "#000000",
    anchor: str = "middle",
    turn: float = 0,
    bold: bool = False,
) -> str:
    """``content`` is markup: escape plain text first. ``turn`` is in degrees, clockwise."""
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}" '
        f'text-anchor="{anchor}"{weight}{turned}>{content}</text>'
    )


def bitmap(
    levels: Any, palette: Sequence[str], x: float, y: float, width: float, height: float
) -> str:
    """``levels`` (rows, columns), indices into ``palette``, stretched over a box."""
    return (
        f'<image href="data:image/png;base64,{b64encode(png(levels, palette)).decode()}" '
        f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        'preserveAspectRatio="none" style="image-rendering:pixelated"/>'
    )


def png(levels: Any, palette: Sequence[str]) -> bytes:
    """An indexed PNG: ``levels`` (n, m) are indices into ``palette``; -1 is transparent.

    A colour may have an opacity, as ``#rrggbbaa``.
    """
    levels = np.asarray(levels)
    height, width = levels.shape
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = levels + 1
    colours = b"\0\0\0" + b"".join(bytes.fromhex(colour[1:7]) for colour in palette)
    opacity = b"\0" + b"".join(bytes.fromhex(colour[7:] or "ff") for colour in palette)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", colours), (b"tRNS", opacity.rstrip(b"\xff")))
    data = (b"IDAT", zlib.compress(rows.tobytes(), 9))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*c) for c in (*chunks, data, (b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
