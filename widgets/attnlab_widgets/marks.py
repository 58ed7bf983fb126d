"""Points of different kinds in still pictures; ``src/parts/marks.js`` draws the same ones."""

from attnlab.figures.drawing import Drawing

Point = tuple[float, float]


def shape(kind: int, x: float, y: float, r: float) -> list[Point] | None:
    """The corners of a point; None for a circle."""
    side = 0.9 * r
    corners = {
        1: [(-side, -side), (side, -side), (side, side), (-side, side)],
        2: [(0, -1.25 * r), (1.25 * r, 0), (0, 1.25 * r), (-1.25 * r, 0)],
        3: [(0, -1.2 * r), (1.1 * r, 0.8 * r), (-1.1 * r, 0.8 * r)],
    }.get(kind % 4)
    return corners and [(x + a, y + b) for a, b in corners]


def draw_point(drawing: Drawing, kind: int, colour: str, x: float, y: float, r: float) -> None:
    """A point of that kind, its middle at x and y."""
    corners = shape(kind, x, y, r)
    if corners is None:
        drawing.disc(x, y, r, colour)
    else:
        drawing.patch(corners, colour)
