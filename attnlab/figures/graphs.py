"""A graph as a picture: nodes at given places, edges as lines, a number of each node as colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnlab.core.arguments import check_mapping, check_texts
from attnlab.core.arrays import Array, numbers, tokens_for
from attnlab.core.markup import escape
from attnlab.figures import svg
from attnlab.figures.labels import sentence, visible
from attnlab.figures.layout import text_width
from attnlab.figures.theme import GROUPS, SERIES, SIGNED, colours, theme_name
from attnlab.structures.graph import Graph

MOST_NODES = 200
_ONE, _OF_MANY, _SIDE, _GAP, _TOP, _DOT = 420, 240, 26, 12, 34, 21  # pixels
_MOST_IN_A_ROW = 4


@dataclass(frozen=True, repr=False)
class GraphDrawing:
    """One graph, drawn once for each entry of ``panels``, whose numbers colour its nodes.

    ``places``  (n, 2), across and up, each from 0 to 1
    ``names``   what stands in the nodes
    ``theme``   "light", "dark" or "auto", which follows the page
    """

    graph: Graph
    places: Array
    panels: Mapping[str, Array]
    names: Sequence[str]
    title: str
    theme: str

    @property
    def description(self) -> str:
        """A sentence that says what is drawn."""
        nodes, pairs = self.graph.nodes, len(self._pairs())
        parts = [sentence(self.title), f"A graph of {nodes} nodes and {pairs} lines."]
        for name, values in self.panels.items():
            kinds = np.unique(values)
            if _is_text(values) or len(kinds) == 2:
                said = (f"{_said(kind)} at {self._at(values == kind)}" for kind in kinds)
                parts.append(f"{name}: {'; '.join(said)}.")
                continue
            order = np.argsort(values, kind="stable")
            low, high = order[0], order[-1]
            parts.append(
                f"{name}: from {values[low]:.2g} at {self.names[low]} to {values[high]:.2g} at "
                f"{self.names[high]}."
            )
        return " ".join(parts)

    def _at(self, chosen: Array) -> str:
        return ", ".join(name for name, one in zip(self.names, chosen, strict=True) if one)

    def svg(self) -> str:
        """The picture as SVG, for papers and slides."""
        look, size = colours(self.theme), self._size
        across = min(len(self.panels), _MOST_IN_A_ROW)
        down = -(-len(self.panels) // across)
        wide = max(across * (size + _GAP) + _GAP, round(text_width(self.title, 15)) + 24)
        left = (wide - across * (size + _GAP) + _GAP) / 2
        parts = [svg.text(escape(self.title), wide / 2, 22, size=15, fill=look.ink)]
        sizes = [float(np.abs(x).max()) for x in self.panels.values() if not _is_text(x)]
        largest = max(sizes, default=1.0) or 1.0
        for index, (name, values) in enumerate(self.panels.items()):
            row, column = divmod(index, across)
            corner = left + column * (size + _GAP), _TOP + row * (size + 22)
            if _is_text(values):
                kinds = list(dict.fromkeys(values))
                fills = [_of_group(kinds.index(kind)) for kind in values]
                parts += self._panel(name, fills, ["#ffffff"] * len(fills), corner)
                parts += self._legend(kinds, corner)
                continue
            fills = [
                _SHADES[round(float(x / largest + 1) / 2 * (len(_SHADES) - 1))] for x in values
            ]
            inks = ["#ffffff" if abs(x / largest) > 0.75 else "#1b1f24" for x in values]
            parts += self._panel(name, fills, inks, corner)
        high = _TOP + down * (size + 22)
        return svg.document(parts, wide, high, description=self.description, paper=look.paper)

    def _legend(self, kinds: Sequence[str], corner: tuple[float, float]) -> list[str]:
        parts, x, y = [], corner[0] + _SIDE, corner[1] + self._size + 6
        for number, kind in enumerate(kinds):
            parts.append(svg.marker("circle", x, y - 4, 10, _of_group(number)))
            words = str(kind)
            wide = text_width(words, 12)
            ink = colours(self.theme).ink
            parts.append(svg.text(escape(words), x + 10 + wide / 2, y, size=12, fill=ink))
            x += wide + 30
        return parts

    def _panel(
        self, name: str, fills: Sequence[str], inks: Sequence[str], corner: tuple[float, float]
    ) -> list[str]:
        look, (x, y) = colours(self.theme), corner
        parts = [svg.text(escape(name), x + self._size / 2, y + 16, fill=look.quiet, bold=True)]
        room = self._size - 2 * _SIDE
        at = [(x + _SIDE + a * room, y + 14 + _SIDE + (1 - b) * room) for a, b in self.places]
        for u, v in self._pairs():
            parts.append(svg.line(*at[u], *at[v], look.quiet, 1.2))
        for (a, b), fill, ink, label in zip(at, fills, inks, self.names, strict=True):
            parts.append(svg.marker("circle", a, b, _DOT + 2, look.quiet))
            parts.append(svg.marker("circle", a, b, _DOT, fill))
            parts.append(svg.text(escape(label), a, b + 4, size=10.5, fill=ink))
        return parts

    @property
    def _size(self) -> int:
        """Width and height of a panel."""
        return _ONE if len(self.panels) == 1 else _OF_MANY

    def _pairs(self) -> list[tuple[int, int]]:
        """The lines, each once; loops are not drawn."""
        found = {(min(u, v), max(u, v)) for u, v in self.graph.edges.tolist() if u != v}
        return sorted(found)

    def __repr__(self) -> str:
        return self.description

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        dark = replace(self, theme="dark").svg() if self.theme == "auto" else None
        return svg.image(self.svg(), self.description, dark=dark)


def draw_graph(
    graph: Graph,
    places: Any,
    panels: Mapping[str, Any],
    *,
    names: Sequence[Any] | None = None,
    title: str,
    theme: str | None = None,
) -> GraphDrawing:
    """``graph`` once for each entry of ``panels``, which maps a heading to a number of each node.

    ``places`` (n, 2) are where the nodes stand, in any unit; both axes are stretched to the panel.
    ``names`` stand in the nodes, their numbers if not given. Numbers are coloured from blue
    (negative) over white (0) to orange (positive), by one scale in all panels; a panel may hold the
    name of each node's group instead. Directions of edges are not drawn.
    """
    check_texts(title=title)
    if not isinstance(graph, Graph):
        raise TypeError(f"`graph` should be a Graph, got a {type(graph).__name__}")
    if graph.nodes > MOST_NODES:
        raise ValueError(
            f"`graph` has {graph.nodes} nodes; at most {MOST_NODES} can be seen: draw a part of it"
        )
    at = numbers("places", places, "n two")
    if at.shape != (graph.nodes, 2):
        raise ValueError(f"`places` should have shape ({graph.nodes}, 2), got {at.shape}")
    given = check_mapping("panels", panels, '{"degree": [1, 2, 1]}')
    values = {
        name: np.array(each) if _texts(each) else numbers(name, each, "n")
        for name, each in given.items()
    }
    for name, each in values.items():
        if len(each) != graph.nodes:
            raise ValueError(
                f"`panels` has {len(each)} numbers for {name!r}, but there are {graph.nodes} nodes"
            )
    labels = tokens_for("names", names, graph.nodes, "nodes of `graph`")
    low, high = at.min(0), at.max(0)
    spread = np.where(high > low, high - low, 1)
    at = np.where(high > low, (at - low) / spread, 0.5)
    shown = [visible(str(label)) for label in labels]
    return GraphDrawing(graph, at, values, shown, title, theme_name(theme))


def _texts(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(each, str) for each in values)


def _is_text(values: Array) -> bool:
    return values.dtype.kind == "U"


def _said(kind: Any) -> str:
    return str(kind) if isinstance(kind, str) else f"{kind:.2g}"


def _of_group(number: int) -> str:
    return GROUPS[number] if number < len(GROUPS) else SERIES[4]


def _shades(steps: int) -> list[str]:
    """The two-sided scale in so many steps."""
    stops = np.array([[int(each[i : i + 2], 16) for i in (1, 3, 5)] for each in SIGNED])
    at = np.linspace(0, len(stops) - 1, steps)
    columns = [np.interp(at, range(len(stops)), stops[:, channel]) for channel in range(3)]
    rows = np.stack(columns, axis=1).round().astype(int).tolist()
    return ["#" + "".join(f"{value:02x}" for value in row) for row in rows]


_SHADES = _shades(41)
