"""Whom does a node of a graph attend to, and what has it heard of after so many layers?

    GraphView(graph, seen, labels=names)             # seen: attnlab.watch of a model on this graph
    GraphView(graph, model, inputs=tokens)           # the same: the model is run on the graph
    GraphView(networkx.karate_club_graph())          # without weights: the edges alone
    GraphView(graph, seen, path=[named, next, last]) # a path of two hops, hop by hop

The graph with attention drawn on its edges, and the same weights as a map. The places of the nodes
are computed when the widget is made, and all weights are sent, so a saved file stays alive.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.core.arrays import numbers, plain, tokens_for
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens.graph_structure import (
    adjacency,
    communities,
    degrees,
    distances,
    layout,
    numbered,
    order_by,
)
from attnlab.lens.graph_weights import MOST_NODES, Attended, attended, recorded
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from attnlab_widgets.base import STATIC, BaseWidget, Checked, as_trait_error, check_range
from attnlab_widgets.graph_view import words as graph_words
from attnlab_widgets.graph_view.path import checked_path, hops_along
from attnlab_widgets.graph_view.picture import picture

LONGEST = 30
"""Characters of a label that are shown."""


class GraphView(BaseWidget):
    """A graph, what its nodes attend to, and how far layer upon layer lets them see.

    ``graph``    a ``Graph``, a graph of networkx, a ``Data`` of PyTorch Geometric, or a list of
                 edges (source, target); at most 500 nodes. A target attends to its source
    ``weights``  what the nodes attend to: (layers, heads, n, n), a row for each node that attends;
                 or (layers, heads, m), a weight for each edge in the order of ``graph.edges``; or
                 a recording of ``attnlab.watch``; or a model, which is run on the graph. Tokens of
                 ``token_gt`` that stand for edges or for the graph are left out
    ``inputs``   what the model reads at each node: tokens (n,) or vectors (n, dim)
    ``batch``    the row of the recording in which the graph stands
    ``labels``   n names; the nodes of networkx have theirs, others their numbers. Of long ones the
                 first 30 characters are shown
    ``groups``   of each node the name of its group, which colours it; its community unless given
    ``node``     the chosen node, None for none
    ``layer``    and ``head``, None for the mean of all heads; the layer is that of the shown hop of
                 the path, or the first, unless given
    ``depth``    after how many layers the receptive field of the node is shown, 0 to not show it. A
                 layer leads from a node to all that it attends to, and the node keeps what it has
    ``order``    of the map: "number", "community" (of greatest modularity, found greedily),
                 "degree" (of most neighbours) or, where groups are given, "group"
    ``path``     nodes in the order in which information travels: each attends to the one before
                 it. Information travels along one edge in each layer, so hop k takes place in the
                 kth layer, the first hop in layer 0, and a path has no more hops than there are
                 layers. Without weights it can be of any length
    ``step``     how many hops of the path are shown, from 0 on; all unless given. Where it is set,
                 ``layer`` becomes that of the last of them

    ``node``, ``layer``, ``head``, ``depth``, ``order`` and ``step`` can be read and set; so can
    ``positions``, which of each node is [x, y], from 0 to 1 to the right and downwards.
    """

    _esm = STATIC / "graph_view.js"
    most_bytes = 60_000

    node = traitlets.Int(None, allow_none=True).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(None, allow_none=True).tag(sync=True)
    depth = traitlets.Int(0).tag(sync=True)
    order = traitlets.Unicode("community").tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    positions: Any = Checked().tag(sync=True)
    _graph: Any = traitlets.Dict().tag(sync=True)
    _pairs = traitlets.Bytes().tag(sync=True)  # (P, 2): node, and whom it attends to
    _weights = traitlets.Bytes().tag(sync=True)  # of each layer (h, P)

    def __init__(
        self,
        graph: Any,
        weights: Any = None,
        *,
        inputs: Any = None,
        batch: int = 0,
        labels: Sequence[Any] | None = None,
        groups: Sequence[Any] | None = None,
        node: int | None = None,
        layer: int | None = None,
        head: int | None = None,
        depth: int = 0,
        order: str = "community",
        path: Sequence[int] | None = None,
        step: int | None = None,
        theme: str = "auto",
    ) -> None:
        self.graph, names = _graph_of(graph, labels)
        n = self.graph.nodes
        if n > MOST_NODES:
            raise ValueError(f"a graph of {n} nodes is more than the {MOST_NODES} that are drawn")
        _check_weights(weights, inputs, batch)
        source = weights
        if isinstance(weights, nn.Module):
            source = recorded(weights, self.graph, inputs)
        self._attended = attended(self.graph, source, batch)
        found = tokens_for("labels", names if labels is None else labels, n, "nodes")
        kinds = None if groups is None else tokens_for("groups", groups, n, "nodes")
        told = _described(self.graph, self._attended, kinds)
        shown = [_label(name) for name in found]
        if path is None and step is not None:
            raise ValueError("`step` counts the hops of `path`; give `path`, too")
        nodes = [] if path is None else checked_path(path, self._attended, shown)
        self._hops = hops_along(nodes, self._attended)
        super().__init__(
            positions=[[0.5, 0.5]] * n, _graph={"labels": shown, **told, "path": nodes},
            _pairs=self._attended.pairs.astype("<u2").tobytes(),
            _weights=b"".join(each.tobytes() for each in self._attended.layers), theme=theme,
        )  # fmt: skip
        self.positions = layout(n, self.graph.edges.numpy())
        self.step = len(self._hops) if step is None else step
        if layer is not None:
            self.layer = layer
        self.head, self.node = head, node
        self.depth, self.order = depth, order

    # What follows from the state

    @property
    def labels(self) -> list[str]:
        """What the nodes are called."""
        return list(self._graph["labels"])

    @property
    def communities(self) -> list[int]:
        """The number of each node's community, the largest community first."""
        return list(self._graph["communities"])

    @property
    def path(self) -> list[int]:
        """The nodes of the path; none where no path is given."""
        return list(self._graph["path"])

    @property
    def shown_order(self) -> list[int]:
        """The nodes in the order of the rows and columns of the map."""
        return list(self._graph["orders"][self.order])

    def map(self) -> Tensor:
        """(n, n): in row i the weights with which node i attends to the nodes, in the present layer
        and head; without weights, 1 for each edge."""
        n, (targets, sources) = self.graph.nodes, self._attended.pairs.T
        found = np.zeros((n, n))
        found[targets, sources] = self._values()
        return torch.from_numpy(found)

    def hops(self) -> list[int] | None:
        """After how many layers each node is in the receptive field of the chosen one; -1 for
        never, None where no node is chosen."""
        if self.node is None:
            return None
        links = _links(self._attended)
        return [int(hop) for hop in distances(links)[self.node]]

    def path_weights(self) -> list[float]:
        """The weight of attention on each hop of the path in its layer, in the present head
        or, where the layer lacks it, the mean of all; without weights, 1."""
        found = [hop.weight(self._attended, self.head) for hop in self._hops]
        return [1.0 if weight is None else weight for weight in found]

    def description(self) -> str:
        """What is seen, in a sentence or two."""
        of_path = self._of_path()
        if of_path and self.step and self.node is None:
            return of_path
        return f"{of_path} {self._of_graph()}".lstrip()

    def _of_path(self) -> str:
        if not self._hops:
            return ""
        if not self.step:
            return graph_words.of_path(self.labels, self.path)
        hop, found, where = self._hops[self.step - 1], self._attended, ""
        if hop.layer is not None:
            title, heads = found.titles[hop.layer], len(found.layers[hop.layer])
            where = graph_words.place_of(title, heads, hop.head(found, self.head))
        weight = hop.weight(found, self.head)
        return graph_words.of_hop(self.labels, self.path, self.step, weight, where)

    def _of_graph(self) -> str:
        """The chosen node or, where none is, all of them."""
        labels, found = self.labels, self._attended
        where = ""
        if found.layers:
            title, heads = found.titles[self.layer], len(found.layers[self.layer])
            where = graph_words.place_of(title, heads, self.head)
        if self.node is None:
            return self._of_all(where)
        targets, sources = found.pairs.T
        own = targets == self.node
        if found.layers:
            pairs = zip(sources[own].tolist(), self._values()[own].tolist(), strict=True)
            weights = {other: weight for other, weight in pairs if weight > 0}
            said = graph_words.of_attention(labels, self.node, weights, where, bool(own.any()))
        else:
            said = graph_words.of_edges(labels, self.node, sources[own].tolist())
        hops = self.hops()
        return said + (graph_words.of_field(self.depth, hops) if self.depth and hops else "")

    def _of_all(self, where: str) -> str:
        found = self._attended
        said = graph_words.of_graph(self.graph.nodes, len(self.graph.edges))
        if not found.layers or not len(found.pairs):
            return f"{said} Choose a node to see which edges lead to it."
        values = self._values()
        best = int(values.argmax())
        pair, largest = found.pairs[best].tolist(), float(values[best])
        return said + graph_words.of_largest(self.labels, pair, largest, where)

    def still(self) -> Drawing:
        """The graph, and the map beside it."""
        return picture(self)

    def __repr__(self) -> str:
        return f"GraphView: {self.description()}"

    def _values(self) -> NDArray[np.float64]:
        """(P,)."""
        if not self._attended.layers:
            return np.ones(len(self._attended.pairs))
        return self._attended.weights(self.layer, self.head)

    # What may be set

    @traitlets.validate("node", "layer", "head", "depth", "step")
    def _in_range(self, proposal: Any) -> int | None:
        name, value = proposal["trait"].name, proposal["value"]
        if value is None:
            return None
        count = self._count(name)
        if not count:
            raise traitlets.TraitError(
                f"`{name}` should be None, because there are no weights, got {value}"
            )
        return as_trait_error(check_range, name, value, count)

    @traitlets.validate("order")
    def _an_order(self, proposal: Any) -> str:
        known, value = self._graph["orders"], proposal["value"]
        if value not in known:
            raise traitlets.TraitError(
                f"`order` should be one of {', '.join(known)}, got {value!r}"
                + ("; give `groups`, too" if value == "group" else "")
            )
        return str(value)

    @traitlets.validate("positions")
    def _places(self, proposal: Any) -> list[list[float]]:
        return as_trait_error(_check_places, proposal["value"], len(self.labels))

    @traitlets.observe("layer")
    def _another_layer(self, _change: Any) -> None:
        """A head that the new layer does not have gives way to the mean of all."""
        if self.head is not None and self.head >= self._count("head"):
            self.head = None

    @traitlets.observe("step")
    def _another_hop(self, _change: Any) -> None:
        """The other edges are shown in the layer of the hop."""
        if self.step and self._attended.layers:
            self.layer = self.step - 1

    def _count(self, name: str) -> int:
        """How many values a whole number of the state can have, from 0 on."""
        told = self._graph
        layers = told["layers"]
        here = min(max(self.layer, 0), len(layers) - 1)  # it may be wrong, and be checked next
        heads = layers[here]["h"] if layers else 0
        counts = {
            "node": len(told["labels"]), "layer": max(1, len(layers)), "head": heads,
            "depth": told["deepest"] + 1, "step": max(1, len(told["path"])),
        }  # fmt: skip
        return int(counts[name])


def _check_places(given: Any, n: int) -> list[list[float]]:
    found = numbers("positions", given, "n 2")
    if found.shape != (n, 2) or found.min() < 0 or found.max() > 1:
        raise ValueError(
            f"`positions` should be {n} places [x, y] from 0 to 1, got {found.shape} from "
            f"{found.min():g} to {found.max():g}"
        )
    places: list[list[float]] = np.round(found, 4).tolist()
    return places


# What is given


def _graph_of(given: Any, labels: Any) -> tuple[Graph, list[Any] | None]:
    """The graph, and how networkx calls its nodes."""
    if isinstance(given, Graph):
        return given, None
    if isinstance(given, GraphBatch):
        raise TypeError("`graph` should be one graph, got a batch; give batch.graph(0)")
    if hasattr(given, "nodes") and hasattr(given, "is_directed"):
        return Graph.of_networkx(given), list(given.nodes)
    if hasattr(given, "edge_index"):
        return Graph.of_data(given), None
    edges = plain("graph", given, "m 2")
    if edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            "`graph` should be a Graph, a graph of networkx or whole numbers (m, 2), an edge "
            f"(source, target) each, got {edges.dtype} of shape {edges.shape}"
        )
    count = int(edges.max()) + 1 if labels is None else len(labels)
    return Graph(count, torch.from_numpy(edges.astype(np.int64))), None


def _check_weights(weights: Any, inputs: Any, batch: Any) -> None:
    is_model = isinstance(weights, nn.Module)
    if is_model and inputs is None:
        raise ValueError("a model needs `inputs`, what it reads at the nodes: tokens or vectors")
    if not is_model and inputs is not None:
        raise ValueError("`inputs` are for a model; `weights` is none")
    if batch and (is_model or weights is None):
        raise ValueError("`batch` chooses a row of recorded weights; there are none here")


# What the page is told


def _links(found: Attended) -> NDArray[np.bool_]:
    """(n, n): to whom a layer leads from each node."""
    return adjacency(found.n, found.pairs[:, ::-1])


def _label(name: Any) -> str:
    """As a token is shown, but with its spaces, because a name may have several words."""
    shown = visible(name, LONGEST)
    return shown.replace("␣", " ") if shown.strip("␣") else shown


def _described(graph: Graph, found: Attended, kinds: list[Any] | None) -> dict[str, Any]:
    n, edges = graph.nodes, graph.edges.numpy()
    together, degree = communities(n, edges), degrees(n, edges)
    orders = {
        "number": list(range(n)),
        "community": order_by(together, degree),
        "degree": order_by([0] * n, degree),
    }
    groups = None
    if kinds is not None:
        member = numbered(kinds)
        orders["group"] = order_by(member, degree)
        names = dict(zip(member, kinds, strict=True))
        groups = {
            "names": [_label(names[at]) for at in range(len(names))],
            "of": member,
        }
    layers = zip(found.titles, found.layers, strict=True)
    return {
        "edges": len(edges),
        "communities": together,
        "groups": groups,
        "degrees": degree,
        "orders": orders,
        "deepest": int(distances(_links(found)).max()),
        "layers": [{"title": title, "h": len(maps)} for title, maps in layers],
    }
