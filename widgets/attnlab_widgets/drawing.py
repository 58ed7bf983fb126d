"""A drawing that can be written as SVG or as PNG in Python alone: no browser, no kaleido.

It is a list of maps, frames, curves, patches and texts; each can be drawn in both formats.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from attnlab.figures import svg
from attnlab.figures.theme import Theme, rgb

_SIZE = 12
_FINER = 2  # pixels of the PNG per unit


@dataclass
class Drawing:
    """Units are CSS pixels. ``parts`` are (kind, arguments), in the order of drawing."""

    wide: int
    high: int
    theme: Theme
    parts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def map(
        self, levels: np.ndarray, palette: list[str], x: float, y: float, w: float, h: float
    ) -> None:
        """``levels`` (rows, columns) are indices into ``palette``."""
        self.parts.append(("map", {"levels": levels, "palette": palette, "box": (x, y, w, h)}))

    def frame(self, x: float, y: float, w: float, h: float, colour: str, width: float = 1) -> None:
        self.parts.append(("frame", {"box": (x, y, w, h), "colour": colour, "width": width}))

    def curve(
        self, points: tuple[svg.Point, svg.Point, svg.Point, svg.Point], colour: str, width: float
    ) -> None:
        """A cubic Bézier curve."""
        self.parts.append(("curve", {"points": points, "colour": colour, "width": width}))

    def patch(self, points: Sequence[svg.Point], colour: str) -> None:
        """An area of one colour, closed by itself."""
        self.parts.append(("patch", {"points": points, "colour": colour}))

    def text(self, content: str, x: float, y: float, **look: Any) -> None:
        """``anchor`` "start" | "middle" | "end", ``quiet``, ``turned`` (upwards), ``size``."""
        self.parts.append(("text", {"content": content, "at": (x, y), **look}))

    def svg(self, description: str) -> str:
        body = (_SVG[kind](self.theme, **part) for kind, part in self.parts)
        paper = self.theme.paper
        return svg.document(body, self.wide, self.high, description=description, paper=paper)

    def png(self, colours: int | None = None) -> bytes:
        """Two pixels per unit; with at most so many ``colours`` the file is smaller."""
        from PIL import Image, ImageDraw

        size = (self.wide * _FINER, self.high * _FINER)
        image = Image.new("RGB", size, rgb(self.theme.paper))
        for kind, part in self.parts:
            _PNG[kind](image, ImageDraw.Draw(image), self.theme, **part)
        if colours is not None:
            image = image.quantize(colours, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        buffer = io.BytesIO()
        image.save(buffer, "PNG", optimize=True)
        return buffer.getvalue()


def _svg_map(theme: Theme, levels: Any, palette: list[str], box: tuple[float, ...]) -> str:
    return svg.bitmap(levels, palette, *box)


def _svg_frame(theme: Theme, box: tuple[float, ...], colour: str, width: float) -> str:
    return svg.rectangle(*box, outline=colour, outline_width=width)


def _svg_curve(theme: Theme, points: Any, colour: str, width: float) -> str:
    return svg.curve(points, colour, width)


def _svg_patch(theme: Theme, points: Sequence[svg.Point], colour: str) -> str:
    return svg.polygon(points, colour)


def _svg_text(
    theme: Theme,
    content: str,
    at: svg.Point,
    anchor: str = "start",
    quiet: bool = False,
    turned: bool = False,
    size: int = _SIZE,
) -> str:
    """The middle of the letters lies at the given height, or to its right when turned."""
    x, y = at
    lower = 0.35 * size
    return svg.text(
        escape(content, quote=False),
        x + lower if turned else x,
        y if turned else y + lower,
        size=size,
        fill=theme.quiet if quiet else theme.ink,
        anchor=anchor,
        turn=-90 if turned else 0,
    )


def _png_map(
    image: Any, _draw: Any, theme: Theme, levels: Any, palette: list[str], box: Any
) -> None:
    from PIL import Image

    x, y, w, h = (round(value * _FINER) for value in box)
    colours = np.array([rgb(colour) for colour in palette], np.uint8)[levels]
    shrink = levels.shape[0] > h or levels.shape[1] > w
    how = Image.Resampling.BOX if shrink else Image.Resampling.NEAREST
    image.paste(Image.fromarray(colours).resize((max(1, w), max(1, h)), how), (x, y))


def _png_frame(_image: Any, draw: Any, theme: Theme, box: Any, colour: str, width: float) -> None:
    x, y, w, h = (value * _FINER for value in box)
    draw.rectangle((x, y, x + w, y + h), outline=rgb(colour), width=round(width * _FINER))


def _png_curve(
    _image: Any, draw: Any, theme: Theme, points: Any, colour: str, width: float
) -> None:
    t = np.linspace(0, 1, 33)[:, None]
    a, b, c, d = (np.array(point) * _FINER for point in points)
    path = a * (1 - t) ** 3 + 3 * b * t * (1 - t) ** 2 + 3 * c * t**2 * (1 - t) + d * t**3
    # PNG lines are opaque, so their colour is mixed with the paper as SVG's opacity would.
    mixed = tuple(
        round(0.75 * ink + 0.25 * paper)
        for ink, paper in zip(rgb(colour), rgb(theme.paper), strict=True)
    )
    points = [tuple(point) for point in path]
    draw.line(points, fill=mixed, width=max(1, round(width * _FINER)), joint="curve")


def _png_patch(
    _image: Any, draw: Any, theme: Theme, points: Sequence[svg.Point], colour: str
) -> None:
    draw.polygon([(x * _FINER, y * _FINER) for x, y in points], fill=rgb(colour))


def _png_text(
    image: Any,
    draw: Any,
    theme: Theme,
    content: str,
    at: svg.Point,
    anchor: str = "start",
    quiet: bool = False,
    turned: bool = False,
    size: int = _SIZE,
) -> None:
    from PIL import Image, ImageDraw

    font = _font(size * _FINER)
    colour = rgb(theme.quiet if quiet else theme.ink)
    x, y = (value * _FINER for value in at)
    place = {"start": "l", "middle": "m", "end": "r"}[anchor]
    if not turned:
        draw.text((x, y), content, fill=colour, font=font, anchor=f"{place}m")
        return
    _, top, right, bottom = font.getbbox(content)
    word = Image.new("L", (max(1, int(right)), max(1, int(bottom - top))))
    ImageDraw.Draw(word).text((0, -top), content, fill=255, font=font)
    word = word.rotate(90, expand=True)
    corner = (round(x - word.width / 2), round(y - word.height))
    image.paste(Image.new("RGB", word.size, colour), corner, word)


def _font(size: int) -> Any:
    """DejaVu Sans where there is one, for its many signs; else the font that comes with Pillow."""
    from PIL import ImageFont

    try:
        return ImageFont.truetype("DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


_SVG: dict[str, Any] = {
    "map": _svg_map,
    "frame": _svg_frame,
    "curve": _svg_curve,
    "patch": _svg_patch,
    "text": _svg_text,
}
_PNG: dict[str, Any] = {
    "map": _png_map,
    "frame": _png_frame,
    "curve": _png_curve,
    "patch": _png_patch,
    "text": _png_text,
}
