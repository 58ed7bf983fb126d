"""A graph: so many nodes, and edges that lead from one node to another.

Nodes are numbered 0, 1, 2, …. An edge has a direction, from its source to its target; a graph
without directions has each edge in both. There may be several edges between two nodes, edges that
lead from a node to itself (loops), and nodes without any. An edge may have a kind, which is a whole
number, and features.
"""

import numbers
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.shapes import is_stored

MOST_NODES = 2**31 - 1
"""More would not fit into memory, one number each."""


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """``Graph(4, [(0, 1), (1, 2)])`` has four nodes, an edge from 0 to 1 and one from 1 to 2.

    ``edges`` (m, 2), ``kinds`` (m,) and ``features`` (m, f) are tensors, or lists of which tensors
    are made. Without ``kinds`` all edges are of kind 0; without ``features`` they have none.
    """

    nodes: int
    edges: Int[Tensor, "m 2"]
    kinds: Int[Tensor, "m"]
    features: Float[Tensor, "m f"]

    def __init__(
        self, nodes: int, edges: Any = (), kinds: Any = None, features: Any = None
    ) -> None:
        count = check_integer("the number of nodes of a graph", nodes, at_least=1)
        if count > MOST_NODES:
            raise ValueError(f"a graph has at most {MOST_NODES:,} nodes, got {count:,}")
        pairs = _whole("edges", edges, (-1, 2))
        m = len(pairs)
        _check_ends(pairs, count)
        own = torch.zeros(m, dtype=torch.long) if kinds is None else _whole("kinds", kinds, (-1,))
        values = torch.zeros(m, 0) if features is None else _features(features)
        for name, given in (("kinds", own), ("features", values)):
            if len(given) != m:
                raise ValueError(
                    f"there should be one entry of {name} for each edge, but there are "
                    f"{len(given)} for {m} edges"
                )
        if (own < 0).any():
            raise ValueError(f"the kind of an edge is 0, 1, 2, …, got {int(own.min())}")
        made = {"nodes": count, "edges": pairs, "kinds": own, "features": values}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        f = self.features.shape[1]
        beside = f", {f} features each" if f else ""
        return f"<Graph of {self.nodes} nodes and {len(self.edges)} edges{beside}>"

    def both_ways(self) -> Self:
        """With the reverse of each edge beside it, of the same kind and features.

        Loops, which are their own reverse, are not doubled. For a list that names each edge of a
        graph without directions once; one that has both directions already would have them twice.
        """
        turned = self.edges[:, 0] != self.edges[:, 1]
        return type(self)(
            self.nodes,
            torch.cat([self.edges, self.edges[turned].flip(1)]),
            torch.cat([self.kinds, self.kinds[turned]]),
            torch.cat([self.features, self.features[turned]]),
        )

    def with_loops(self, kind: int = 0) -> Self:
        """With a loop of this ``kind`` at every node that has none; its features are zeros."""
        kind = check_integer("kind", kind, at_least=0)
        has = torch.zeros(self.nodes, dtype=torch.bool)
        has[self.edges[self.edges[:, 0] == self.edges[:, 1], 0]] = True
        lacking = (~has).nonzero()
        return type(self)(
            self.nodes,
            torch.cat([self.edges, lacking.expand(-1, 2)]),
            torch.cat([self.kinds, torch.full((len(lacking),), kind)]),
            torch.cat(
                [self.features, self.features.new_zeros(len(lacking), self.features.shape[1])]
            ),
        )

    # ---- other libraries

    @classmethod
    def of_networkx(
        cls, graph: Any, *, features: Sequence[str] = (), kind: str | None = None
    ) -> Self:
        """The graph of networkx, its nodes numbered in the order of ``graph.nodes``.

        Edges of an undirected graph are read in both directions. ``features`` are the names of the
        attributes of edges that become their features, a number or a list of numbers each, and
        ``kind`` that of their kind: ``features=["features"], kind="kind"`` reads ``to_networkx``.
        """
        if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
            raise TypeError(f"a graph of networkx is expected, got a {type(graph).__name__}")
        number = {node: index for index, node in enumerate(graph.nodes)}
        edges = list(graph.edges(data=True))
        if isinstance(features, str) or not isinstance(features, Sequence):
            raise TypeError(f"features should be a list of names of attributes, got {features!r}")
        values = [[x for name in features for x in _numbers(edge, name)] for edge in edges]
        if len({len(row) for row in values}) > 1:
            raise ValueError(
                f"every edge should have equally many features, but {', '.join(features)} hold "
                f"{' or '.join(map(str, sorted({len(row) for row in values})))} numbers"
            )
        made = cls(
            len(number),
            [(number[u], number[v]) for u, v, _ in edges],
            None if kind is None else [_attribute(edge, kind) for edge in edges],
            torch.tensor(values).view(len(edges), len(values[0]) if edges else len(features)),
        )
        return made if graph.is_directed() else made.both_ways()

    def to_networkx(self) -> Any:
        """A ``MultiDiGraph`` of networkx, whose edges have ``kind`` and, if any, ``features``."""
        try:
            import networkx
        except ImportError as error:
            raise ImportError(
                "networkx is not installed; install it with `pip install networkx`"
            ) from error
        made = networkx.MultiDiGraph()
        made.add_nodes_from(range(self.nodes))
        rows = zip(self.edges.tolist(), self.kinds.tolist(), self.features.tolist(), strict=True)
        for (source, target), kind, features in rows:
            beside = {"features": features} if features else {}
            made.add_edge(source, target, kind=kind, **beside)
        return made

    @classmethod
    def of_data(cls, data: Any) -> Self:
        """The graph of a ``Data`` of PyTorch Geometric, or of any object like it.

        Read are ``edge_index`` (2, m), ``num_nodes`` and, where they are there, ``edge_attr``
        (m,) or (m, f), as features, and ``edge_type`` (m,), as kinds.
        """
        index = getattr(data, "edge_index", None)
        if not isinstance(index, Tensor) or index.ndim != 2 or len(index) != 2:
            raise TypeError(
                "an object with edge_index (2, m), as a Data of PyTorch Geometric, is expected, "
                f"got a {type(data).__name__}"
            )
        if getattr(data, "batch", None) is not None:
            raise ValueError(
                "this is a batch of several graphs: give each graph of data.to_data_list()"
            )
        features = getattr(data, "edge_attr", None)
        if isinstance(features, Tensor) and features.ndim == 1:
            features = features[:, None]
        return cls(data.num_nodes, index.mT, getattr(data, "edge_type", None), features)


# ---- checks


def _copied(given: Any) -> Tensor:
    """As a tensor of its own, so that the graph stays as it is when the caller's changes."""
    if isinstance(given, Tensor):
        for kind in ("meta", "nested", "sparse"):
            if getattr(given, f"is_{kind}"):
                raise TypeError(f"a {kind} tensor holds no dense numbers")
    return torch.as_tensor(given).to("cpu", copy=True)


def _whole(name: str, given: Any, shape: tuple[int, ...]) -> Tensor:
    """``given`` as whole numbers of this shape, -1 standing for any size."""
    wanted = ", ".join("m" if size < 0 else str(size) for size in shape)
    try:
        made = _copied(given)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"{name} should be whole numbers ({wanted}), got {_said(given)}") from error
    if made.numel() == 0 and made.ndim <= len(shape):
        return torch.zeros([max(size, 0) for size in shape], dtype=torch.long)
    fits = made.ndim == len(shape) and all(
        size < 0 or size == own for size, own in zip(shape, made.shape, strict=True)
    )
    if not fits or made.is_floating_point() or made.is_complex() or made.dtype == torch.bool:
        raise ValueError(
            f"{name} should be whole numbers of shape ({wanted}), got {made.dtype} of shape "
            f"{tuple(made.shape)}"
        )
    return made.long()


def _said(given: Any) -> str:
    if isinstance(given, Tensor):
        kind = next((k for k in ("meta", "nested", "sparse") if getattr(given, f"is_{k}")), "dense")
        return f"a {kind} tensor of {str(given.dtype).removeprefix('torch.')}"
    return reprlib.repr(given)


def _features(given: Any) -> Tensor:
    try:
        made = _copied(given)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"features should be numbers (m, f), got {_said(given)}") from error
    made = made.float() if is_stored(made.dtype) else made
    if made.ndim != 2 or made.is_complex():
        raise ValueError(
            f"features should be real numbers of shape (m, f), got {made.dtype} of shape "
            f"{tuple(made.shape)}"
        )
    made = made if made.is_floating_point() else made.float()
    if not made.isfinite().all():
        edge = int((~made.isfinite()).any(1).nonzero()[0, 0])
        raise ValueError(f"the features of edge {edge} are not finite: {made[edge].tolist()}")
    return made


def _check_ends(edges: Tensor, nodes: int) -> None:
    wrong = ((edges < 0) | (edges >= nodes)).any(1)
    if wrong.any():
        edge = int(wrong.nonzero()[0, 0])
        source, target = edges[edge].tolist()
        raise ValueError(
            f"edge {edge} leads from {source} to {target}, but the nodes are 0 … {nodes - 1}"
        )


def _numbers(edge: tuple[Any, Any, Any], name: str) -> list[float]:
    value = _attribute(edge, name)
    listed = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(each, numbers.Real) for each in listed):
        raise TypeError(
            f"the attribute {name!r} of the edge from {edge[0]!r} to {edge[1]!r} should be a "
            f"number or a list of numbers, got {value!r}"
        )
    try:
        return [float(each) for each in listed]
    except OverflowError:
        raise ValueError(f"the attribute {name!r} holds a number that no float can hold") from None


def _attribute(edge: tuple[Any, Any, Any], name: str) -> Any:
    source, target, attributes = edge
    if not isinstance(name, str):
        raise TypeError(f"an attribute of edges has a name, got {name!r}")
    if name not in attributes:
        raise ValueError(
            f"the edge from {source!r} to {target!r} has no attribute {name!r}; it has "
            f"{', '.join(map(repr, attributes)) or 'none'}"
        )
    return attributes[name]
