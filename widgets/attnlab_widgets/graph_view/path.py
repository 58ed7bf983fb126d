"""A path of hops in GraphView: along its edges information travels, one edge in each layer.

``graph.js`` has the same hops and marks for the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from attnlab.lens.graph_weights import Attended
from attnlab_widgets.base import check_range
from attnlab_widgets.graph_view.words import named


@dataclass(frozen=True)
class Hop:
    """Node ``target`` attends to ``source``, which is pair ``at`` of the weights, in ``layer``;
    None where no weights are known."""

    source: int
    target: int
    at: int
    layer: int | None

    def head(self, found: Attended, head: int | None) -> int | None:
        """The head, where the layer of the hop has it, or else the mean of all."""
        lacking = self.layer is None or head is None or head >= len(found.layers[self.layer])
        return None if lacking else head

    def weight(self, found: Attended, head: int | None) -> float | None:
        """The weight of attention on the hop; None where no weights are known."""
        if self.layer is None:
            return None
        return float(found.weights(self.layer, self.head(found, head))[self.at])


def checked_path(path: Any, found: Attended, labels: Sequence[str]) -> list[int]:
    """The nodes of a path, each of which attends to the one before it."""
    if isinstance(path, str) or not hasattr(path, "__iter__"):
        raise TypeError(f"`path` should be a list of nodes, [first, second, …], got {path!r}")
    nodes = [check_range(f"path[{at}]", node, found.n) for at, node in enumerate(path)]
    hops, layers = len(nodes) - 1, len(found.layers)
    if hops < 1:
        raise ValueError(f"`path` should have two nodes or more, which is one hop, got {nodes}")
    if layers and hops > layers:
        raise ValueError(
            f"`path` has {hops} hops and the weights have {layers} layer{'s'[: layers > 1]}, but "
            "information travels along one edge in each; give a shorter path or more layers"
        )
    pairs = {(int(target), int(source)) for target, source in found.pairs}
    for hop, (source, target) in enumerate(pairwise(nodes), 1):
        if (target, source) not in pairs:
            back = (
                "; the edge between them leads the other way" if (source, target) in pairs else ""
            )
            raise ValueError(
                f"hop {hop} of `path` is no edge: no edge leads from {named(labels, source)} to "
                f"{named(labels, target)}{back}"
            )
    return nodes


def hops_along(path: Sequence[int], found: Attended) -> list[Hop]:
    """The hops of a path: hop k in layer k - 1."""
    place = {(int(i), int(j)): at for at, (i, j) in enumerate(found.pairs)}
    return [
        Hop(source, target, place[target, source], hop if found.layers else None)
        for hop, (source, target) in enumerate(pairwise(path))
    ]


def marks(hops: Sequence[Hop], step: int) -> list[tuple[Hop, str, bool]]:
    """The hops that are shown, an edge once, with their numbers and whether one is the present
    hop, which comes last."""
    numbers: dict[int, list[int]] = {}
    for number, hop in enumerate(hops[:step], 1):
        numbers.setdefault(hop.at, []).append(number)
    by_place = {hop.at: hop for hop in hops}
    found = [(by_place[at], ",".join(map(str, own)), step in own) for at, own in numbers.items()]
    return sorted(found, key=lambda mark: mark[2])
