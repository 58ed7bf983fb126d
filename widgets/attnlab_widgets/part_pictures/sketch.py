"""A small drawing with the sentence that says what it shows."""

import math
import textwrap
from dataclasses import dataclass
from typing import Any

from attnlab.core.card import Card
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import Theme

WIDE = 380
SMALL = 10
MARGIN = 12


@dataclass(frozen=True)
class Sketch:
    """``words`` say what is seen, for readers who do not see it and below the picture; the last
    ``key`` parts of the drawing explain its signs."""

    drawing: Drawing
    words: str
    key: int = 0

    def svg(self) -> str:
        return self.drawing.svg(self.words)

    def thumbnail(self) -> "Sketch":
        """The drawing for a tile: without letters, which could not be read there, and their
        room."""
        whole = self.drawing
        inside = Drawing(whole.wide, whole.high, whole.theme, self._signs())
        top, high = self.crop()
        small = Drawing(whole.wide, high, whole.theme)
        small.put(inside, 0, -top)
        return Sketch(small, self.words)

    def crop(self) -> tuple[int, int]:
        """Where the part begins that a tile shows, and how high it is."""
        ends = [y for _, part in self._signs() for y in _heights(part)]
        top = math.floor(min(ends)) - MARGIN
        return top, math.ceil(max(ends)) + MARGIN - top

    def _signs(self) -> list[tuple[str, dict[str, Any]]]:
        parts = self.drawing.parts[: len(self.drawing.parts) - self.key]
        return [(kind, part) for kind, part in parts if kind != "text"] or parts


def _heights(part: dict[str, Any]) -> list[float]:
    """From where to where a part of a drawing goes down."""
    if "box" in part:
        return [part["box"][1], part["box"][1] + part["box"][3]]
    if "at" in part:
        return [part["at"][1]]
    return [y for _, y in part["points"]]


def claimed(card: Card, theme: Theme) -> Sketch:
    """The claims of a card, in the place of a picture."""
    rows = [f"{label}: {text}" for label, text in card.claims.rows()]
    drawing = sheet(30 + 16 * len(rows), theme, card.title)
    for at, row in enumerate(rows):
        drawing.text(textwrap.shorten(row, 60, placeholder=" …"), 8, 32 + 16 * at, size=SMALL)
    return Sketch(drawing, f"{card.title}: {'; '.join(rows)}.")


def counted(number: int, one: str, many: str) -> str:
    """``1 is hidden``, ``none are hidden``, ``3 are hidden``."""
    return f"{number or 'none'} {one if number == 1 else many}"


def sheet(high: int, theme: Theme, title: str) -> Drawing:
    """An empty drawing with its title."""
    drawing = Drawing(WIDE, high, theme)
    drawing.text(title, 8, 12, size=11, bold=True)
    return drawing
