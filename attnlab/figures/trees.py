"""A tree as text and as a picture: every node above the middle of its children, words in one line.

        S
   ┌────┴────┐
  NP         VP
 ┌─┴──┐      │
the  dog   barks
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from attnlab.core.arguments import check_texts
from attnlab.core.markup import escape
from attnlab.figures import svg
from attnlab.figures.labels import sentence, visible
from attnlab.figures.layout import text_width
from attnlab.figures.theme import colours, theme_name
from attnlab.structures.tree import Tree

MOST_LABELS = 1024
_WIDEST_TEXT = 120  # columns
_LEVEL, _SIDE, _SIZE = 44, 14, 13  # pixels
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_SIGNS = dict(zip([0, 3, 12, 13, 14, 15, 10, 6, 9, 5, 11, 7], " │─┴┬┼┌┐└┘├┤", strict=True))


@dataclass(frozen=True)
class TreeDrawing:
    """A drawn tree: a notebook shows the picture, ``print`` the text.

    ``tree``   what is drawn
    ``title``  stands above it, "" for none
    ``theme``  "light", "dark" or "auto", which follows the page
    """

    tree: Tree
    title: str
    theme: str

    @property
    def description(self) -> str:
        """A sentence that says what is drawn."""
        leaves, nodes, depth = len(self.tree.leaves()), len(self.tree.nodes()), self.tree.depth
        title = f"{sentence(self.title)} " if self.title else ""
        return f"{title}A tree of {leaves} leaves and {nodes} nodes, {depth} deep: {self.tree}"

    def svg(self) -> str:
        """The picture as SVG, for papers and slides."""
        look = colours(self.theme)
        spots = _places(self.tree, lambda label: round(text_width(label, _SIZE)) + 12)
        bottom = max(spot.level for spot in spots)
        top = 34 if self.title else 4
        wide = max(spots[0].width, round(text_width(self.title, 15))) + 2 * _SIDE
        left = (wide - spots[0].width) // 2

        def at(spot: _Spot, level: int) -> svg.Point:
            return left + spot.centre, top + 20 + _LEVEL * level

        title = svg.text(escape(self.title), wide / 2, 22, size=15, fill=look.ink)
        parts = [title] if self.title else []
        for spot in spots:
            if spot.parent is not None:
                (x0, y0), (x1, y1) = at(spot.parent, spot.parent.level), at(spot, spot.below)
                corner = at(spot, spot.parent.level + 1)[1] - 16
                points = [(x0, y0 + 7), (x1, corner), (x1, y1 - 16)]
                parts.append(svg.polyline(points, look.quiet, 1.2))
            x, y = at(spot, spot.below)
            fill, bold = (look.ink, False) if spot.is_leaf else (look.quiet, True)
            parts.append(svg.text(escape(spot.label), x, y, size=_SIZE, fill=fill, bold=bold))
        high = top + _LEVEL * bottom + 34
        return svg.document(parts, wide, high, description=self.description, paper=look.paper)

    def __str__(self) -> str:
        return tree_text(self.tree)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        dark = replace(self, theme="dark").svg() if self.theme == "auto" else None
        return svg.image(self.svg(), self.description, dark=dark)


def draw_tree(tree: Tree, *, title: str = "", theme: str | None = None) -> TreeDrawing:
    """The drawing of a tree, for a notebook or for ``print``."""
    check_texts(title=title)
    _check_tree(tree)
    return TreeDrawing(tree, title, theme_name(theme))


def tree_text(tree: Tree) -> str:
    """The tree drawn with characters; beyond 120 columns as an outline, one line per label."""
    _check_tree(tree)
    spots = _places(tree, lambda label: (len(label) | 1) + 2)
    if spots[0].width > _WIDEST_TEXT:
        return _outline(spots)
    bottom = max(spot.below for spot in spots)
    rows = [[" "] * spots[0].width for _ in range(2 * bottom + 1)]
    for spot in spots:
        start = spot.centre - len(spot.label) // 2
        rows[2 * spot.below][start : start + len(spot.label)] = spot.label
        if spot.parent is not None:
            for row in range(2 * spot.level, 2 * spot.below):
                rows[row][spot.centre] = "│"
        if spot.children:
            _join(rows[2 * spot.level + 1], spot)
    return "\n".join("".join(row).rstrip() for row in rows)


@dataclass(eq=False)
class _Spot:
    """Where a node is drawn. Widths and places are columns or pixels."""

    label: str
    parent: _Spot | None
    level: int  # the nodes above it
    children: list[_Spot] = field(default_factory=list)
    width: int = 0  # of the subtree
    start: int = 0  # where the subtree begins
    centre: int = 0
    below: int = 0  # the level at which it is drawn: the last one for leaves

    @property
    def is_leaf(self) -> bool:
        return not self.children


def _places(tree: Tree, width_of: Callable[[str], int]) -> list[_Spot]:
    """All nodes with their places; a node comes before its children.

    A subtree is as wide as its label or its children side by side. A node stands above the middle
    between its first and last child, as far as its label stays above its own subtree.
    """
    spots = _spots(tree)
    bottom = max(spot.level for spot in spots)
    for spot in reversed(spots):
        inner = sum(child.width for child in spot.children)
        spot.width = max(width_of(spot.label), inner)
        spot.width += bool(inner) * (spot.width - inner) % 2  # equal room on both sides
        spot.below = bottom if spot.is_leaf else spot.level
    for spot in spots:
        start = spot.start + (spot.width - sum(child.width for child in spot.children)) // 2
        for child in spot.children:
            child.start = start
            start += child.width
    for spot in reversed(spots):
        spot.centre = spot.start + spot.width // 2
        if spot.children:
            middle = (spot.children[0].centre + spot.children[-1].centre) // 2
            half = width_of(spot.label) // 2
            first, last = spot.start + half, spot.start + spot.width - 1 - half
            spot.centre = min(max(middle, first), max(first, last))
    return spots


def _spots(tree: Tree) -> list[_Spot]:
    spots: list[_Spot] = []
    waiting: list[tuple[Tree, _Spot | None]] = [(tree, None)]
    while waiting:
        subtree, parent = waiting.pop()
        spot = _Spot(visible(subtree.label), parent, 0 if parent is None else parent.level + 1)
        spots.append(spot)
        if parent is not None:
            parent.children.append(spot)
        waiting.extend((child, spot) for child in reversed(subtree.children))
    return spots


def _join(row: list[str], spot: _Spot) -> None:
    """Draw the line between a node and its children."""
    below = {child.centre for child in spot.children}
    ends = {*below, spot.centre}
    for column in range(min(ends), max(ends) + 1):
        sign = _UP * (column == spot.centre) + _DOWN * (column in below)
        sign += _LEFT * (column > min(ends)) + _RIGHT * (column < max(ends))
        row[column] = _SIGNS[sign]


def _outline(spots: list[_Spot]) -> str:
    """One line per label, each child further to the right than its parent."""
    ahead: dict[_Spot, str] = {spots[0]: ""}  # what stands before the children of a node
    lines = [spots[0].label]
    for spot in spots[1:]:
        assert spot.parent is not None
        before, is_last = ahead[spot.parent], spot is spot.parent.children[-1]
        lines.append(f"{before}{'└' if is_last else '├'}── {spot.label}")
        ahead[spot] = before + ("    " if is_last else "│   ")
    return "\n".join(lines)


def _check_tree(tree: object) -> None:
    if not isinstance(tree, Tree):
        raise TypeError(f"`tree` should be a Tree, got a {type(tree).__name__}; see Tree.of")
    count = sum(1 for _ in tree.subtrees())
    if count > MOST_LABELS:
        raise ValueError(
            f"`tree` has {count:,} nodes and leaves; at most {MOST_LABELS:,} can be seen: draw one "
            "of its subtrees"
        )
