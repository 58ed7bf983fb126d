"""A small drawing with the sentence that says what it shows."""

from dataclasses import dataclass

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import Theme

WIDE = 380
SMALL = 10


@dataclass(frozen=True)
class Sketch:
    """``words`` say what is seen, for readers who do not see it and below the picture."""

    drawing: Drawing
    words: str

    def svg(self) -> str:
        return self.drawing.svg(self.words)

    def thumbnail(self) -> "Sketch":
        """The same without its letters, for a tile in which they could not be read."""
        whole = self.drawing
        kept = [(kind, part) for kind, part in whole.parts if kind != "text"]
        return Sketch(Drawing(whole.wide, whole.high, whole.theme, kept), self.words)


def counted(number: int, one: str, many: str) -> str:
    """``1 is hidden``, ``none are hidden``, ``3 are hidden``."""
    return f"{number or 'none'} {one if number == 1 else many}"


def sheet(high: int, theme: Theme, title: str) -> Drawing:
    """An empty drawing with its title."""
    drawing = Drawing(WIDE, high, theme)
    drawing.text(title, 8, 12, size=11, bold=True)
    return drawing
