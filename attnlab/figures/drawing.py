"""A drawing that can be written as SVG or as PNG in Python alone: no browser, no kaleido.

It is a list of maps, boxes, lines, patches and texts; each can be drawn in both formats.
"""

import functools
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlab.core.markup import escape
from attnlab.figures import svg
from attnlab.figures.theme import DARK, HATCHING, Theme, rgb

_SIZE = 12
_MARGIN = 24
_FINER = 2  # pixels of the PNG per unit
_STRIPES = 8  # units from one line of the hatching to the next
_COARSER = (2, 1.5, 1, 0.75, 0.5)


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
        """``levels`` (rows, columns) are indices into ``palette``; "#rrggbbaa" lets what lies
        below show through."""
        self.parts.append(("map", {"levels": levels, "palette": palette, "box": (x, y, w, h)}))

    def frame(self, x: float, y: float, w: float, h: float, colour: str, width: float = 1) -> None:
        self.parts.append(("frame", {"box": (x, y, w, h), "colour": colour, "width": width}))

    def box(
        self, x: float, y: float, w: float, h: float, fill: str, outline: str = "", width: float = 1
    ) -> None:
        """A filled rectangle."""
        look = {"fill": fill, "outline": outline, "width": width}
        self.parts.append(("box", {"box": (x, y, w, h), **look}))

    def hatch(self, masked: np.ndarray, x: float, y: float, w: float, h: float) -> None:
        """The hatching of those cells of a map (rows, columns) that may not be attended to."""
        self.parts.append(("hatch", {"masked": np.asarray(masked, bool), "box": (x, y, w, h)}))

    def line(
        self, points: Sequence[svg.Point], colour: str, width: float = 1, dash: str = ""
    ) -> None:
        """Straight from point to point; ``dash`` holds lengths of strokes and gaps, "7 4"."""
        look = {"colour": colour, "width": width, "dash": dash}
        self.parts.append(("line", {"points": points, **look}))

    def disc(self, x: float, y: float, radius: float, colour: str) -> None:
        self.parts.append(("disc", {"at": (x, y), "radius": radius, "colour": colour}))

    def curve(
        self, points: tuple[svg.Point, svg.Point, svg.Point, svg.Point], colour: str, width: float
    ) -> None:
        """A cubic Bézier curve."""
        self.parts.append(("curve", {"points": points, "colour": colour, "width": width}))

    def patch(self, points: Sequence[svg.Point], colour: str) -> None:
        """An area of one colour, closed by itself."""
        self.parts.append(("patch", {"points": points, "colour": colour}))

    def text(self, content: str, x: float, y: float, **look: Any) -> None:
        """``anchor`` "start" | "middle" | "end", ``quiet``, ``turned`` (upwards), ``size``,
        ``bold``, ``colour``."""
        self.parts.append(("text", {"content": content, "at": (x, y), **look}))

    def with_line(self, content: str) -> "Drawing":
        """The same drawing with a quiet sentence below it, on as many lines as it needs."""
        lines = textwrap.wrap(content, max(20, int((self.wide - 2 * _MARGIN) / 6.9)))
        drawing = Drawing(self.wide, self.high + 12 + 18 * len(lines), self.theme, [*self.parts])
        for at, line in enumerate(lines):
            drawing.text(line, _MARGIN, self.high + 9 + 18 * at, quiet=True)
        return drawing

    def put(self, other: "Drawing", x: float, y: float) -> None:
        """Another drawing with its upper left corner there."""
        for kind, part in other.parts:
            moved = dict(part)
            if "box" in part:
                left, top, w, h = part["box"]
                moved["box"] = (left + x, top + y, w, h)
            if "points" in part:
                moved["points"] = [(a + x, b + y) for a, b in part["points"]]
            if "at" in part:
                moved["at"] = (part["at"][0] + x, part["at"][1] + y)
            self.parts.append((kind, moved))

    def svg(self, description: str) -> str:
        body = (_SVG[kind](self.theme, **part) for kind, part in self.parts)
        paper = self.theme.paper
        return svg.document(body, self.wide, self.high, description=description, paper=paper)

    def png(self, colours: int | None = None, *, most: int | None = None) -> bytes:
        """Two pixels per unit; with at most so many ``colours`` the file is smaller.

        Of a file larger than ``most`` bytes, the colours become half as many, and then the pixels
        fewer, until it is not.
        """
        image = self._image()
        for finer in _COARSER:
            for fewer in (colours, colours and colours // 2):
                data = _written(self._scaled(image, finer), fewer, self.theme.paper)
                if most is None or len(data) <= most:
                    return data
        return data

    def _image(self) -> Any:
        from PIL import Image, ImageDraw

        size = (self.wide * _FINER, self.high * _FINER)
        image = Image.new("RGB", size, rgb(self.theme.paper))
        for kind, part in self.parts:
            _PNG[kind](image, ImageDraw.Draw(image), self.theme, **part)
        return image

    def _scaled(self, image: Any, finer: float) -> Any:
        from PIL import Image

        size = (round(self.wide * finer), round(self.high * finer))
        return image if finer == _FINER else image.resize(size, Image.Resampling.LANCZOS)


def _written(image: Any, colours: int | None, paper: str) -> bytes:
    """As a file; of fewer colours one stays exactly that of the paper."""
    from PIL import Image

    if colours is not None:
        image = image.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        palette, at = image.getpalette(), 3 * image.getpixel((0, 0))
        palette[at : at + 3] = rgb(paper)
        image.putpalette(palette)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def hatching(theme: Theme) -> tuple[str, str]:
    """Ground and lines of what is masked."""
    return HATCHING["dark" if theme == DARK else "light"]


def _stripes(masked: np.ndarray, box: tuple[float, ...]) -> list[tuple[svg.Point, svg.Point]]:
    """Diagonal lines through the masked cells of a map, upwards to the right."""
    x, y, w, h = box
    rows, columns = masked.shape
    found: list[tuple[svg.Point, svg.Point]] = []
    for start in np.arange(_STRIPES / 2, w + h, _STRIPES):
        along = np.arange(max(0.0, start - h), min(w, start) + 0.01, 0.5)
        down = start - along
        inside = masked[
            np.clip((down / h * rows).astype(int), 0, rows - 1),
            np.clip((along / w * columns).astype(int), 0, columns - 1),
        ]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], inside, [0]))))
        for first, last in zip(edges[::2], edges[1::2] - 1, strict=True):
            ends = [(x + float(along[at]), y + float(down[at])) for at in (first, last)]
            found.append((ends[0], ends[1]))
    return found


def _runs(masked: np.ndarray, box: tuple[float, ...]) -> list[tuple[float, float, float, float]]:
    """The masked cells of each row, joined where they touch, as boxes."""
    x, y, w, h = box
    rows, columns = masked.shape
    found = []
    for at, row in enumerate(masked):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row, [0])))) * w / columns
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            found.append((x + float(left), y + at * h / rows, float(right - left), h / rows))
    return found


def _svg_map(theme: Theme, levels: Any, palette: list[str], box: tuple[float, ...]) -> str:
    return svg.bitmap(levels, palette, *box)


def _svg_frame(theme: Theme, box: tuple[float, ...], colour: str, width: float) -> str:
    return svg.rectangle(*box, outline=colour, outline_width=width)


def _svg_box(theme: Theme, box: tuple[float, ...], fill: str, outline: str, width: float) -> str:
    return svg.rectangle(*box, fill=fill, outline=outline, outline_width=width)


def _svg_hatch(theme: Theme, masked: np.ndarray, box: tuple[float, ...]) -> str:
    _ground, stroke = hatching(theme)
    cells = "".join(f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z"
                    for x, y, w, h in _runs(masked, box))  # fmt: skip
    lines = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}"
                    for (a, b), (c, d) in _stripes(masked, box))  # fmt: skip
    return (
        f'<path d="{cells}" fill="{theme.panel}"/>'
        f'<path class="attnlab-hatch" d="{lines}" fill="none" stroke="{stroke}"/>'
    )


def _svg_line(
    theme: Theme, points: Sequence[svg.Point], colour: str, width: float, dash: str
) -> str:
    return svg.polyline(points, colour, width, dash=dash)


def _svg_disc(theme: Theme, at: svg.Point, radius: float, colour: str) -> str:
    return svg.marker("circle", *at, 2 * radius, colour)


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
    bold: bool = False,
    colour: str = "",
) -> str:
    """The middle of the letters lies at the given height, or to its right when turned."""
    x, y = at
    lower = 0.35 * size
    return svg.text(
        escape(content, quote=False),
        x + lower if turned else x,
        y if turned else y + lower,
        size=size,
        fill=colour or (theme.quiet if quiet else theme.ink),
        anchor=anchor,
        turn=-90 if turned else 0,
        bold=bold,
    )


def _png_map(
    image: Any, _draw: Any, theme: Theme, levels: Any, palette: list[str], box: Any
) -> None:
    from PIL import Image

    x, y, w, h = (round(value * _FINER) for value in box)
    colours = np.array([_over(colour, theme.paper) for colour in palette], np.uint8)[levels]
    shrink = levels.shape[0] > h or levels.shape[1] > w
    how = Image.Resampling.BOX if shrink else Image.Resampling.NEAREST
    image.paste(Image.fromarray(colours).resize((max(1, w), max(1, h)), how), (x, y))


def _over(colour: str, paper: str) -> tuple[int, ...]:
    """A colour as it looks on the paper."""
    opacity = int(colour[7:] or "ff", 16) / 255
    pairs = zip(rgb(colour[:7]), rgb(paper), strict=True)
    return tuple(round(opacity * ink + (1 - opacity) * below) for ink, below in pairs)


def _png_frame(_image: Any, draw: Any, theme: Theme, box: Any, colour: str, width: float) -> None:
    x, y, w, h = (value * _FINER for value in box)
    draw.rectangle((x, y, x + w, y + h), outline=rgb(colour), width=round(width * _FINER))


def _png_box(
    _image: Any, draw: Any, theme: Theme, box: Any, fill: str, outline: str, width: float
) -> None:
    x, y, w, h = (round(value * _FINER) for value in box)
    edge = rgb(outline) if outline else None
    wide = round(width * _FINER) if outline else 0
    draw.rectangle((x, y, x + max(w, 1), y + max(h, 1)), fill=rgb(fill), outline=edge, width=wide)


def _png_hatch(_image: Any, draw: Any, theme: Theme, masked: np.ndarray, box: Any) -> None:
    _ground, stroke = hatching(theme)
    for x, y, w, h in _runs(masked, box):
        left, top, right, low = (round(v * _FINER) for v in (x, y, x + w, y + h))
        draw.rectangle((left, top, right - 1, low - 1), fill=rgb(theme.panel))
    for (a, b), (c, d) in _stripes(masked, box):
        ends = [(a * _FINER, b * _FINER), (c * _FINER, d * _FINER)]
        draw.line(ends, fill=rgb(stroke), width=_FINER)


def _png_line(
    _image: Any, draw: Any, theme: Theme, points: Any, colour: str, width: float, dash: str
) -> None:
    wide = max(1, round(width * _FINER))
    for part in _dashed(points, [float(length) for length in dash.split()]):
        placed = [(x * _FINER, y * _FINER) for x, y in part]
        draw.line(placed, fill=rgb(colour), width=wide, joint="curve")


def _dashed(points: Sequence[svg.Point], lengths: Sequence[float]) -> list[list[svg.Point]]:
    """A line as its strokes: points of each, where ``lengths`` are strokes and gaps in turn."""
    if not lengths or len(points) < 2:
        return [list(points)]
    path = np.array(points, float)
    far = np.concatenate(([0], np.hypot(*np.diff(path, axis=0).T).cumsum()))
    ends = np.arange(0, far[-1] + sum(lengths), sum(lengths))
    found: list[list[svg.Point]] = []
    for start in ends:
        for at in range(0, len(lengths), 2):
            a = start + sum(lengths[:at])
            b = min(a + lengths[at], far[-1])
            if a < b:
                places = np.concatenate(([a], far[(far > a) & (far < b)], [b]))
                both = zip(*(np.interp(places, far, path[:, k]) for k in (0, 1)), strict=True)
                found.append([(float(x), float(y)) for x, y in both])
    return found


def _png_disc(
    _image: Any, draw: Any, theme: Theme, at: svg.Point, radius: float, colour: str
) -> None:
    (x, y), r = (value * _FINER for value in at), radius * _FINER
    draw.ellipse((x - r, y - r, x + r, y + r), fill=rgb(colour))


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
    bold: bool = False,
    colour: str = "",
) -> None:
    from PIL import Image, ImageDraw

    font = _font(size * _FINER, bold)
    ink = rgb(colour or (theme.quiet if quiet else theme.ink))
    x, y = (value * _FINER for value in at)
    place = {"start": "l", "middle": "m", "end": "r"}[anchor]
    if not turned:
        draw.text((x, y), content, fill=ink, font=font, anchor=f"{place}m")
        return
    _, top, right, bottom = font.getbbox(content)
    word = Image.new("L", (max(1, int(right)), max(1, int(bottom - top))))
    ImageDraw.Draw(word).text((0, -top), content, fill=255, font=font)
    word = word.rotate(90, expand=True)
    corner = (round(x - word.width / 2), round(y - word.height))
    image.paste(Image.new("RGB", word.size, ink), corner, word)


@functools.cache
def _font(size: int, bold: bool) -> Any:
    """DejaVu Sans where there is one, for its many signs; else the font that comes with Pillow."""
    from PIL import ImageFont

    try:
        return ImageFont.truetype("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


_SVG: dict[str, Any] = {
    "map": _svg_map,
    "frame": _svg_frame,
    "box": _svg_box,
    "hatch": _svg_hatch,
    "line": _svg_line,
    "disc": _svg_disc,
    "curve": _svg_curve,
    "patch": _svg_patch,
    "text": _svg_text,
}
_PNG: dict[str, Any] = {
    "map": _png_map,
    "frame": _png_frame,
    "box": _png_box,
    "hatch": _png_hatch,
    "line": _png_line,
    "disc": _png_disc,
    "curve": _png_curve,
    "patch": _png_patch,
    "text": _png_text,
}
